// SPDX-License-Identifier: Apache-2.0
// Results must not depend on the caller's floating-point environment: rounding mode, flushing of subnormals, traps. So
// every entry point (capi/guard.h), every worker and every task on a caller's thread runs inside a FloatEnvironment.
// On x86-64 vector arithmetic and the mathematical functions obey MXCSR, on AArch64 FPCR. The x87 unit is not used.
#pragma once

#include <cstdint>

#if defined(__SSE__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

// Every result must be rounded to its type, or the bits differ. Clang defines -1 under -ffast-math.
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "gradscaler needs arithmetic in the types as declared: on 32-bit x86 add -msse2 -mfpmath=sse; never -ffast-math"
#endif

namespace gsc {

/// In its scope, this thread rounds to nearest, keeps subnormals and takes no traps. The destructor restores the
/// previous environment; exception flags may be raised, as by any arithmetic. A register is written only if it differs,
/// so a call costs little more than reading one.
class FloatEnvironment {
 public:
#if defined(__SSE__) || defined(_M_X64)
  FloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    if (!is_usual(saved_)) _mm_setcsr(kUsual);
  }
  ~FloatEnvironment() {
    if (!is_usual(saved_)) _mm_setcsr(saved_);
  }
  /// After a callback, which may have changed the environment.
  static void renew() noexcept {
    if (!is_usual(_mm_getcsr())) _mm_setcsr(kUsual);
  }

 private:
  static constexpr uint32_t kUsual = 0x1f80;  // a new thread's: all six exceptions masked, nothing else
  static constexpr uint32_t kFlags = 0x3f;
  static bool is_usual(uint32_t word) { return (word & ~kFlags) == kUsual; }
  uint32_t saved_;
#elif defined(__aarch64__)
  FloatEnvironment() noexcept {
    asm volatile("mrs %0, fpcr" : "=r"(saved_)::"memory");
    if (saved_ != 0) set(0);
  }
  ~FloatEnvironment() {
    if (saved_ != 0) set(saved_);
  }
  /// After a callback, which may have changed the environment.
  static void renew() noexcept { set(0); }

 private:
  static void set(uint64_t word) { asm volatile("msr fpcr, %0" ::"r"(word) : "memory"); }
  uint64_t saved_ = 0;
#else
  FloatEnvironment() noexcept = default;
  static void renew() noexcept {}
#endif

 public:
  FloatEnvironment(const FloatEnvironment &) = delete;
  FloatEnvironment &operator=(const FloatEnvironment &) = delete;
};

}  // namespace gsc
