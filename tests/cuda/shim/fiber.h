// SPDX-License-Identifier: Apache-2.0
//
// Fibers: several stacks that one thread runs on in turn. On x86-64 a switch is a few instructions; elsewhere ucontext
// does it, with system calls.
#ifndef GRADSCALER_TESTS_CUDA_SHIM_FIBER_H
#define GRADSCALER_TESTS_CUDA_SHIM_FIBER_H
#include <cstddef>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gsc::cuda::emulation {

/// Where a fiber, or the thread itself, has been left.
struct Left {
#if defined(__x86_64__)
  void *stack_pointer;
#else
  ucontext_t context;
#endif
};

/// A fiber that has yet to begin: main(), which never returns, on a stack of its own.
void prepare(Left &fiber, char *stack, std::size_t bytes, void (*main)());
/// Leaves the running fiber and goes on with another.
void switch_to(Left &from, Left &to);

}  // namespace gsc::cuda::emulation
#endif
