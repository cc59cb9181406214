/* SPDX-License-Identifier: Apache-2.0
 *
 * What jni.h includes for the part of JNI that depends on the system, for cross-compilation: a JDK has jni.h for every
 * system and this header only for its own. The types have the sizes that the JNI specification gives them.
 */
#ifndef GRADSCALER_JNI_MD_H
#define GRADSCALER_JNI_MD_H

#if defined(_WIN32)
#define JNIEXPORT __declspec(dllexport)
#define JNIIMPORT __declspec(dllimport)
#define JNICALL __stdcall
#else
#define JNIEXPORT __attribute__((visibility("default")))
#define JNIIMPORT JNIEXPORT
#define JNICALL
#endif

typedef signed char jbyte;
typedef int jint;
typedef long long jlong;

#endif
