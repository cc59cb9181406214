// SPDX-License-Identifier: Apache-2.0
//
// Fibers: several stacks that one thread switches between. On x86-64 a switch takes a few instructions; elsewhere it
// uses ucontext, with system calls.
#ifndef GRADSCALER_TESTS_CUDA_SHIM_FIBER_H
#define GRADSCALER_TESTS_CUDA_SHIM_FIBER_H
#include <cstddef>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gsc::cuda::emulation {

/// Where a fiber, or the thread itself, was suspended.
struct Left {
#if defined(__x86_64__)
  void *stack_pointer;
#else
  ucontext_t context;
#endif
};

/// A new fiber: main(), which never returns, on its own stack.
void prepare(Left &fiber, char *stack, size_t bytes, void (*main)());
/// Suspends the running fiber and resumes another.
void switch_to(Left &from, Left &to);

}  // namespace gsc::cuda::emulation
#endif
