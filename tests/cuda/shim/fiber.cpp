// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#if defined(__x86_64__)
// Saves the callee's registers on the stack, leaves the stack pointer in *save, and goes on where `load` was left.
extern "C" void gsc_switch_stacks(void **save, void *load);
asm(R"(
.text
.globl gsc_switch_stacks
gsc_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace gsc::cuda::emulation {

void prepare(Left &fiber, char *stack, size_t bytes, void (*main)()) {
  constexpr int kSavedRegisters = 6;
  // The switch pops the saved registers and returns into main, whose own return address is never used.
  auto **top = reinterpret_cast<void **>(stack + bytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void *>(main);
  for (int r = 0; r < kSavedRegisters; ++r) *--top = nullptr;
  fiber.stack_pointer = top;
}

void switch_to(Left &from, Left &to) { gsc_switch_stacks(&from.stack_pointer, to.stack_pointer); }

}  // namespace gsc::cuda::emulation

#else
namespace gsc::cuda::emulation {

void prepare(Left &fiber, char *stack, size_t bytes, void (*main)()) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, main, 0);
}

void switch_to(Left &from, Left &to) { swapcontext(&from.context, &to.context); }

}  // namespace gsc::cuda::emulation
#endif
