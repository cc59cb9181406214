// SPDX-License-Identifier: Apache-2.0
// diagnose: the detailed look at one tensor, block by block in double. Included by kernels.cpp only.
#pragma once

#include "core/cpu/columns.h"
#include "core/cpu/kernels.h"

namespace gsc::cpu {
namespace {

double smallest_normal(int32_t dtype) {
  return dtype == GSC_FP16 ? 0x1p-14 : (dtype == GSC_FP64 ? 0x1p-1022 : 0x1p-126);
}

/// Counts floor(log2(|x|)) of the finite non-zero values; the exponent field of a double has it, as every subnormal of
/// the smaller dtypes is a normal double and those of fp64 lie below bin 0.
void count_exponents(const double *magnitudes, int n, int64_t *histogram) {
  for (int i = 0; i < n; ++i) {
    const auto field = static_cast<int>(to_bits(magnitudes[i]) >> 52);
    if (field == 0x7ff || magnitudes[i] == 0.0) continue;
    const int bin = field - 1023 - GSC_EXPONENT_MIN;
    const int clamped = bin < 0 ? 0 : (bin < GSC_EXPONENT_BINS ? bin : GSC_EXPONENT_BINS - 1);
    ++histogram[clamped];
  }
}

/// Width is that of the dtype's groups: the sum of squares is in reduction.h's order, with columns in double.
template <int Width>
void diagnose_span(DiagnoseSpan *span) {
  constexpr double kInf = __builtin_inf();
  const int64_t bytes = dtype_bytes(span->dtype);
  const double normal = smallest_normal(span->dtype);
  DoubleColumns<Width> squares;
  constexpr auto kInfBits = static_cast<int64_t>(__builtin_bit_cast(int64_t, kInf));
  // Magnitudes order like their bits, and a maximum of integers is vectorised.
  int64_t largest = 0;
  int64_t smallest = kInfBits;
  for (int64_t i = 0; i < span->n; i += kBlock) {
    const int n = min_int(span->n - i, kBlock);
    double x[kBlock];
    double finite[kBlock];
    load_block(span->dtype, at(span->data, i * bytes), x, n);
    int64_t infs = 0;
    int64_t nans = 0;
    int64_t zeros = 0;
    int64_t subnormals = 0;
    // In small loops, since the comparisons of one make the compiler branch in the other.
    for (int k = 0; k < n; ++k) {
      x[k] = __builtin_fabs(x[k]);
      infs += x[k] == kInf ? 1 : 0;
      nans += x[k] != x[k] ? 1 : 0;
      zeros += x[k] == 0.0 ? 1 : 0;
      subnormals += x[k] < normal ? 1 : 0;
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
  switch (span->dtype) {
    case GSC_FP16:
    case GSC_BF16:
      return diagnose_span<8>(span);
    case GSC_FP32:
      return diagnose_span<4>(span);
    default:
      return diagnose_span<2>(span);
  }
}

}  // namespace
}  // namespace gsc::cpu
