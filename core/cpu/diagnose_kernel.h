// SPDX-License-Identifier: Apache-2.0
// diagnose: statistics of one tensor, block by block in double. Included by kernels.cpp only.
#pragma once

#include "core/cpu/columns.h"
#include "core/cpu/convert.h"
#include "core/cpu/kernels.h"
#include "core/rules/diagnose.h"

namespace gsc::cpu {
namespace {

/// Counts the finite nonzero values.
void count_exponents(const double *magnitudes, int n, int64_t *histogram) {
  for (int i = 0; i < n; ++i) {
    if (magnitudes[i] > 0.0 && magnitudes[i] < __builtin_inf()) ++histogram[exponent_bin(to_bits(magnitudes[i]))];
  }
}

/// The sum of squares is in reduction.h's order, with columns in double.
template <typename D>
void diagnose_span(DiagnoseSpan *span) {
  constexpr double kInf = __builtin_inf();
  constexpr int64_t kBytes = sizeof(typename D::Stored);
  DoubleColumns<kGroupBytes / static_cast<int>(kBytes)> squares;
  constexpr auto kInfBits = static_cast<int64_t>(__builtin_bit_cast(int64_t, kInf));
  // Magnitudes order like their bits, and an integer maximum vectorises.
  int64_t largest = 0;
  int64_t smallest = kInfBits;
  for (int64_t i = 0; i < span->n; i += kBlock) {
    const int n = min_int(span->n - i, kBlock);
    double x[kBlock];
    double finite[kBlock];
    load_block(D::kCode, at(span->data, i * kBytes), x, n);
    int64_t infs = 0;
    int64_t nans = 0;
    int64_t zeros = 0;
    int64_t subnormals = 0;
    // Separate small loops: in one loop the compiler would branch.
    for (int k = 0; k < n; ++k) {
      x[k] = __builtin_fabs(x[k]);
      infs += x[k] == kInf ? 1 : 0;
      nans += x[k] != x[k] ? 1 : 0;
      zeros += x[k] == 0.0 ? 1 : 0;
      subnormals += x[k] < D::kSmallestNormal ? 1 : 0;
    }
    for (int k = 0; k < n; ++k) {
      const auto order = __builtin_bit_cast(int64_t, x[k]);
      const int64_t high = order < kInfBits ? order : 0;
      finite[k] = __builtin_bit_cast(double, high);
      largest = high > largest ? high : largest;
    }
    for (int k = 0; k < n; ++k) {
      const auto order = __builtin_bit_cast(int64_t, x[k]);
      const int64_t low = order > 0 ? order : kInfBits;
      smallest = low < smallest ? low : smallest;
    }
    if (span->first_nonfinite < 0 && infs + nans > 0) {
      int k = 0;
      while (x[k] < kInf) ++k;
      span->first_nonfinite = i + k;
    }
    span->inf_count += infs;
    span->nan_count += nans;
    span->zero_count += zeros;
    span->subnormal_count += subnormals - zeros;
    squares.add_squares(finite, n);
    if (span->histogram != nullptr) count_exponents(x, n, span->histogram);
  }
  span->amax = __builtin_bit_cast(double, largest);
  span->amin = smallest < kInfBits ? __builtin_bit_cast(double, smallest) : 0.0;
  span->sum_sq = squares.total();
}

void diagnose(DiagnoseSpan *span) {
  span->inf_count = span->nan_count = span->zero_count = span->subnormal_count = 0;
  span->first_nonfinite = -1;
  with_dtype(span->dtype, [&](auto d) { diagnose_span<decltype(d)>(span); });
}

}  // namespace
}  // namespace gsc::cpu
