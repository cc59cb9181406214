/* SPDX-License-Identifier: Apache-2.0
 *
 * A memory barrier in every thread of the process, for bindings that count calls without one (Uses). It costs whoever
 * asks for it about a microsecond.
 */
#ifndef GRADSCALER_SWIG_BARRIER_H
#define GRADSCALER_SWIG_BARRIER_H
#if defined(_WIN32)
#include <windows.h>
#elif defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* 0 if the system has none: macOS, Linux before 4.14, a filter of system calls. */
static int gsc_barrier(void) {
#if defined(_WIN32)
  FlushProcessWriteBuffers();
  return 1;
#elif defined(SYS_membarrier)
  enum { PRIVATE_EXPEDITED = 8, REGISTER_PRIVATE_EXPEDITED = 16 };
  return !syscall(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) ||
         (!syscall(SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) &&
          !syscall(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0));
#else
  return 0;
#endif
}
#endif
