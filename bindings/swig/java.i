/* SPDX-License-Identifier: Apache-2.0
 *
 * Typemaps of the Java binding: statuses as exceptions, addresses as long, host buffers as direct ByteBuffers, strings
 * as UTF-8. Every class that SWIG makes stays inside of the package; bindings/java/src has the public ones.
 *
 * The proxies of objects and of long-lived structs destroy them on close(), or from a Cleaner once nothing refers to
 * the proxy. SWIG passes each proxy to the native method next to its address, so that it is reachable until the call
 * returns. java_calls.i counts the calls on what users can close.
 */
%javaconst(1);
%pragma(java) moduleclassmodifiers="final class"
%pragma(java) jniclassclassmodifiers="final class"
%pragma(java) jniclasscode=%{
  static {
    NativeLibrary.load();
  }

  /** Address of the first byte of a direct buffer; 0 if it is not direct. */
  static native long bufferAddress(java.nio.Buffer buffer);

  /** The bytes of a scaler's state at an address. */
  static native java.nio.ByteBuffer stateBytes(long address);

  /** Numbers at an address. */
  static native java.nio.ByteBuffer doubles(long address, long count);

  /** Puts a memory barrier into every thread of the process. False if the system cannot. */
  static native boolean barrier();

  /** sizeof(gsc_report). */
  static native int reportSize();

  /** Makes memory of that size fit to receive a report. */
  static native void prepareReport(long address);

  /** Sends the context's messages to CallbackSlot.log with a number; 0: nowhere. */
  static native void setLog(NativeContext owner, long context, long slot);

  /** Sets CallbackSlot.sum with a number as the scaler's reducer; 0: none. */
  static native void setReducer(NativeScaler owner, long scaler, long slot);
%}

%{
#include "barrier.h"

/* A string of the library's own words; NULL for "". */
static jstring gsc_java_word(JNIEnv *env, const char *word) { return word[0] ? (*env)->NewStringUTF(env, word) : NULL; }

/* Makes GradScalerException.of(...) the pending exception. */
static void gsc_java_throw(JNIEnv *env, gsc_status status, const char *message, const gsc_error *details) {
  const jsize length = (jsize)strlen(message);
  jclass type;
  jmethodID factory;
  jobject exception;
  jstring argument, field;
  jbyteArray text = (*env)->NewByteArray(env, length);
  if (!text) return;
  (*env)->SetByteArrayRegion(env, text, 0, length, (const jbyte *)message);
  argument = gsc_java_word(env, details->argument);
  field = gsc_java_word(env, details->field);
  if ((*env)->ExceptionCheck(env)) return;
  type = (*env)->FindClass(env, "io/github/gradscaler/GradScalerException");
  if (!type) return;
  factory = (*env)->GetStaticMethodID(env, type, "of", 
                                     "(I[BLjava/lang/String;Ljava/lang/String;JJ)Ljava/lang/RuntimeException;");
  if (!factory) return;
  exception = (*env)->CallStaticObjectMethod(env, type, factory, (jint)status, text, argument, field,
                                             (jlong)details->index, (jlong)details->tensor);
  if (!(*env)->ExceptionCheck(env) && exception) (*env)->Throw(env, (jthrowable)exception);
}

/* Throws what the call recorded. Returns whether there was anything. */
static int gsc_java_failed(JNIEnv *env) {
  const char *message = NULL;
  gsc_error details;
  const gsc_status status = gsc_take_pending(&message, &details);
  if (status == GSC_OK) return 0;
  gsc_java_throw(env, status, message, &details);
  return 1;
}

static jbyteArray gsc_java_bytes(JNIEnv *env, const char *text) {
  const jsize length = text ? (jsize)strlen(text) : 0;
  jbyteArray bytes = (*env)->NewByteArray(env, length);
  if (bytes && length) (*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte *)text);
  return bytes;
}

JNIEXPORT jlong JNICALL Java_io_github_gradscaler_NativeCallsJNI_bufferAddress(JNIEnv *env, jclass type,
                                                                              jobject buffer) {
  (void)type;
  return buffer ? (jlong)(intptr_t)(*env)->GetDirectBufferAddress(env, buffer) : 0;
}
%}

%{
JNIEXPORT jobject JNICALL Java_io_github_gradscaler_NativeCallsJNI_stateBytes(JNIEnv *env, jclass type, jlong address) {
  (void)type;
  return (*env)->NewDirectByteBuffer(env, (void *)(intptr_t)address, (jlong)sizeof(gsc_scaler_state));
}

JNIEXPORT jobject JNICALL Java_io_github_gradscaler_NativeCallsJNI_doubles(JNIEnv *env, jclass type, jlong address,
                                                                           jlong count) {
  (void)type;
  return (*env)->NewDirectByteBuffer(env, (void *)(intptr_t)address, count * (jlong)sizeof(double));
}

JNIEXPORT jboolean JNICALL Java_io_github_gradscaler_NativeCallsJNI_barrier(JNIEnv *env, jclass type) {
  (void)env;
  (void)type;
  return (jboolean)gsc_barrier();
}

JNIEXPORT jint JNICALL Java_io_github_gradscaler_NativeCallsJNI_reportSize(JNIEnv *env, jclass type) {
  (void)env;
  (void)type;
  return (jint)sizeof(gsc_report);
}

JNIEXPORT void JNICALL Java_io_github_gradscaler_NativeCallsJNI_prepareReport(JNIEnv *env, jclass type, jlong address) {
  (void)env;
  (void)type;
  ((gsc_report *)(intptr_t)address)->struct_size = (uint32_t)sizeof(gsc_report);
}
%}
%include "java_callbacks.i"

/* Statuses and the values of calls that record theirs. */
%typemap(jni) gsc_status "void"
%typemap(jtype) gsc_status "void"
%typemap(jstype) gsc_status "void"
%typemap(javaout) gsc_status { $jnicall; }
%typemap(out, null = "") gsc_status {
  if ($1 != GSC_OK) gsc_pending = $1;
  if (gsc_java_failed(jenv)) return $null;
}
%typemap(out) int32_t, int, uint32_t, unsigned int, int64_t, long, long long, float, double {
  if (gsc_java_failed(jenv)) return $null;
  $result = $1;
}
%typemap(out) SWIGTYPE * {
  if (gsc_java_failed(jenv)) return $null;
  $result = (jlong)(intptr_t)$1;
}
/* Addresses of objects. */
%typemap(in) SWIGTYPE * { $1 = ($1_ltype)(intptr_t)$input; }
%typemap(out) gsc_tensor_diagnosis, gsc_history_entry, gsc_recommendation {
  $&1_ltype copy;
  if (gsc_java_failed(jenv)) return $null;
  copy = ($&1_ltype)gsc_swig_allocate(sizeof $1);
  if (!copy) {
    gsc_java_failed(jenv);
    return $null;
  }
  *copy = $1;
  $result = (jlong)(intptr_t)copy;
}

/* Addresses. */
%typemap(jni) void *ADDRESS "jlong"
%typemap(jtype) void *ADDRESS "long"
%typemap(jstype) void *ADDRESS "long"
%typemap(javain) void *ADDRESS "$javainput"
%typemap(javaout) void *ADDRESS { return $jnicall; }
%typemap(in) void *ADDRESS { $1 = ($1_ltype)(intptr_t)$input; }
%typemap(out) void *ADDRESS { $result = (jlong)(intptr_t)$1; }

/* Text: UTF-8 on both sides; Java adds the terminating zero. */
%typemap(jni) const char * "jbyteArray"
%typemap(jtype) const char * "byte[]"
%typemap(jstype) const char * "String"
%typemap(javain) const char * "Text.toNative($javainput)"
%typemap(javaout) const char * { return Text.fromNative($jnicall); }
%typemap(in) const char * {
  $1 = NULL;
  if ($input) {
    $1 = ($1_ltype)(*jenv)->GetByteArrayElements(jenv, $input, NULL);
    if (!$1) return $null;
  }
}
%typemap(freearg) const char * {
  if ($1) (*jenv)->ReleaseByteArrayElements(jenv, $input, (jbyte *)$1, JNI_ABORT);
}
%typemap(out) const char * {
  if (gsc_java_failed(jenv)) return $null;
  $result = gsc_java_bytes(jenv, $1);
}

/* A direct buffer from its first byte to its capacity; the public layer cuts it to what is meant. */
%typemap(jni) (void *buffer, int64_t size), (const void *buffer, int64_t size) "jobject"
%typemap(jtype) (void *buffer, int64_t size), (const void *buffer, int64_t size) "java.nio.ByteBuffer"
%typemap(jstype) (void *buffer, int64_t size), (const void *buffer, int64_t size) "java.nio.ByteBuffer"
%typemap(javain) (void *buffer, int64_t size), (const void *buffer, int64_t size) "$javainput"
%typemap(in) (void *buffer, int64_t size), (const void *buffer, int64_t size) {
  $1 = (*jenv)->GetDirectBufferAddress(jenv, $input);
  $2 = (int64_t)(*jenv)->GetDirectBufferCapacity(jenv, $input);
}

/* Structs: plain values, freed by close(). */
%typemap(javaclassmodifiers) SWIGTYPE "final class"
%typemap(javainterfaces) SWIGTYPE "AutoCloseable"
%typemap(javafinalize) SWIGTYPE ""
%typemap(javadestruct, methodname = "close", methodmodifiers = "public synchronized", parameters = "") SWIGTYPE {
  if (swigCPtr != 0 && swigCMemOwn) {
    swigCMemOwn = false;
    $jnicall;
  }
  swigCPtr = 0;
  if (states != null) {
    states.release();
    states = null;
  }
}

%typemap(javabody) SWIGTYPE %{
  private long swigCPtr;
  private boolean swigCMemOwn;
  /** Owners of memory that the struct points at. */
  private Object[] kept;
  private Owners.States states;

  $javaclassname(long cPtr, boolean cMemoryOwn) {
    swigCMemOwn = cMemoryOwn;
    swigCPtr = cPtr;
  }

  static long getCPtr($javaclassname object) {
    return object == null ? 0 : object.swigCPtr;
  }

  void keep(Object... objects) {
    kept = objects;
  }

  void hold(Owners.States others) {
    states = others;
    states.hold();
  }
%}

/* Objects and structs that live long: destroyed by close(), or once nothing refers to the proxy. */
%define GSC_OBJECT(TYPE)
%typemap(javabody) TYPE, struct TYPE %{
  private final long swigCPtr;
  private final Uses uses;

  $javaclassname(long cPtr, boolean cMemoryOwn) {
    swigCPtr = cPtr;
    uses = new Uses(this, "$javaclassname", cPtr, NativeCallsJNI::delete_$javaclassname);
  }

  static long getCPtr($javaclassname object) {
    return object == null ? 0 : object.swigCPtr;
  }
%}
%typemap(javadestruct, methodname = "close", methodmodifiers = "public", parameters = "") TYPE, struct TYPE {
    uses.close();
  }
%enddef
GSC_OBJECT(gsc_diagnoses)
GSC_OBJECT(gsc_scaler_options)
GSC_OBJECT(gsc_scaler_state)
GSC_OBJECT(gsc_optimizer_options)

%rename("%(lowercamelcase)s", %$isfunction) "";
%rename("%(lowercamelcase)s", %$isvariable) "";
