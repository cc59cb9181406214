// SPDX-License-Identifier: Apache-2.0
//
// Double-precision reference for the element-wise operations and norms, written from the public header.
// Products are formed in double, which is exact for the product of two fp32 numbers, and rounded as in the header:
// first to the arithmetic type (fp32, or fp64 where an fp64 tensor takes part), then to the dtype that is stored.
#ifndef GRADSCALER_TESTS_SUPPORT_ORACLE_H
#define GRADSCALER_TESTS_SUPPORT_ORACLE_H
#include <algorithm>
#include <vector>

#include "tests/support/dtypes.h"

namespace gsc_test {

inline int32_t arithmetic_dtype(int32_t a, int32_t b) { return a == GSC_FP64 || b == GSC_FP64 ? GSC_FP64 : GSC_FP32; }

/// fmaf for tests that compare bits: the C library's, or where that rounds twice, one that does not.
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

/// src * factor as it is stored in `dst`; src has been stored in `src_dtype`.
inline double ref_scale(double src, int32_t src_dtype, float factor, int32_t dst_dtype) {
  const double product = round_to(src * factor, arithmetic_dtype(src_dtype, dst_dtype));
  return round_to(product, dst_dtype);
}

struct Norms {
  double l2 = 0.0;
  double inf = 0.0;
};

/// Norms of values * factor. NaN wins over inf, which wins over everything else. Scaled so that no square over- or
/// underflows.
inline Norms ref_norms(const std::vector<double> &values, double factor = 1.0) {
  Norms norms;
  bool has_nan = false;
  for (const double value : values) {
    has_nan = has_nan || std::isnan(value);
    norms.inf = std::max(norms.inf, std::fabs(value * factor));
  }
  if (has_nan) return {kNan, kNan};
  if (std::isinf(norms.inf) || norms.inf == 0.0) return {norms.inf, norms.inf};
  double sum = 0.0;
  for (const double value : values) {
    const double ratio = value * factor / norms.inf;
    sum += ratio * ratio;
  }
  norms.l2 = norms.inf * std::sqrt(sum);
  return norms;
}

/// Relative error allowed to an L2 norm. The library may sum a tile of a few thousand squares in fp32 lanes before it
/// goes on in fp64: at most a few hundred additions a lane, each off by half an ulp (6e-8), and the root halves that.
inline constexpr double kNormTolerance = 1e-5;

}  // namespace gsc_test
#endif
