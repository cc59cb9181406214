// SPDX-License-Identifier: Apache-2.0
//
// fmaf for tests that compare bits: that of the C library, or where that rounds twice, one that does not.
#ifndef GRADSCALER_TESTS_SUPPORT_FMA_H
#define GRADSCALER_TESTS_SUPPORT_FMA_H

#include <cmath>

namespace gsc_test {

inline float fmaf_rounded_once(float a, float b, float c) {
#if defined(__MINGW32__) && !defined(__clang__)
  // MinGW-w64's computes in long double, whose 64 bits do not hold every sum. A quad holds the product and has 65 bits
  // left for the sum.
  __extension__ using Quad = __float128;
  return static_cast<float>(static_cast<Quad>(a) * b + c);
#else
  return std::fmaf(a, b, c);
#endif
}

}  // namespace gsc_test

#endif  // GRADSCALER_TESTS_SUPPORT_FMA_H
