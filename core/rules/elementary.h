// SPDX-License-Identifier: Apache-2.0
// Elementary functions in IEEE operations of one written order: the same bits on host and device, where those of the
// mathematical libraries differ.
#pragma once

#include <cstdint>

#include "core/rules/hd.h"

namespace gsc {

GSC_HD float square_root(float x) { return __builtin_sqrtf(x); }
GSC_HD double square_root(double x) { return __builtin_sqrt(x); }

/// The binary logarithm of a finite x > 0.
GSC_HD double binary_logarithm(double x) {
  // The natural one of x = m * 2^e with m from sqrt(0.5) to sqrt(2): 2 (s + s^3/3 + ...), s = (m - 1)/(m + 1).
  int64_t e = 0;
  double m = x;
  for (; m > 1.4142135623730951; m *= 0.5) ++e;
  for (; m < 0.7071067811865476; m *= 2.0) --e;
  const double s = (m - 1.0) / (m + 1.0);
  double sum = 0.0;
  for (int n = 31; n > 0; n -= 2) sum = sum * (s * s) + 1.0 / n;
  return static_cast<double>(e) + 2.0 * s * sum / 0.69314718055994530942;
}

/// 2^exponent.
GSC_HD double binary_power(double exponent) {
  if (!(exponent > -1080.0)) return 0.0;
  if (!(exponent < 1030.0)) return __builtin_inf();
  const auto floor = static_cast<int64_t>(exponent) - (exponent < 0.0 ? 1 : 0);
  const double y = (exponent - static_cast<double>(floor)) * 0.69314718055994530942;
  double x = 1.0;
  for (int n = 24; n > 0; --n) x = 1.0 + y / n * x;
  for (int64_t i = 0; i < floor; ++i) x *= 2.0;
  for (int64_t i = 0; i > floor; --i) x *= 0.5;
  return x;
}

/// base^n by repeated squaring.
GSC_HD double power(double base, int64_t n) {
  double result = 1.0;
  for (; n > 0; n >>= 1) {
    if ((n & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

/// base^exponent for base and exponent >= 0.
GSC_HD double real_power(double base, double exponent) {
  const auto whole = exponent < 0x1p53 ? static_cast<int64_t>(exponent) : 0;
  if (static_cast<double>(whole) == exponent || base == 0.0)
    return exponent > 0.0 ? power(base, whole > 0 ? whole : 1) : 1.0;
  return binary_power(binary_logarithm(base) * exponent);
}

/// 1 - 0.5^x for x in [0, inf].
GSC_HD double one_minus_half_to(double x) {
  if (!(x < 64.0)) return 1.0;
  double y = x * 0.69314718055994530942;
  int halvings = 0;
  for (; y > 0.5; y *= 0.5) ++halvings;
  // 1 - exp(-y) = y - y^2/2! + y^3/3! - ...; doubled, r becomes r (2 - r).
  double r = 0.0;
  for (int n = 16; n > 0; --n) r = y / n * (1.0 - r);
  for (; halvings > 0; --halvings) r *= 2.0 - r;
  return r;
}

}  // namespace gsc
