// SPDX-License-Identifier: Apache-2.0
// Folds column sums into one number in the order of core/rules/reduction.h. Compiled once per
// instruction set, hence the namespace (kernels.cpp).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/cpu/convert.h"
#include "core/rules/reduction.h"

namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

#if defined(__AVX512F__)
/// Of groups 0..3 and 4..7 of eight columns each: the elements that `low` picks, then those that `high` picks.
struct Picked {
  __m512 ab_low, cd_low, ab_high, cd_high;
};
GSC_HD Picked pick_from_eight(const float *columns, __m512i low, __m512i high) {
  const __m512 a = _mm512_loadu_ps(columns);
  const __m512 b = _mm512_loadu_ps(columns + 16);
  const __m512 c = _mm512_loadu_ps(columns + 32);
  const __m512 d = _mm512_loadu_ps(columns + 48);
  return {_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(c, low, d), _mm512_permutex2var_ps(a, high, b),
          _mm512_permutex2var_ps(c, high, d)};
}

/// Sums of eight groups of four or eight columns, each left to right: transposed, so that lanes are groups. Intrinsics,
/// because GCC 12 emits three times as many instructions otherwise, and lists of tiny tensors consist of these.
template <int Width>
GSC_HD __m512d sum_eight_groups(const float *columns) {
  if constexpr (Width == 4) {
    const __m512 a = _mm512_loadu_ps(columns);
    const __m512 b = _mm512_loadu_ps(columns + 16);
    const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i high = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
    const __m512 c01 = _mm512_permutex2var_ps(a, low, b);
    const __m512 c23 = _mm512_permutex2var_ps(a, high, b);
    return half_of<0>(c01) + half_of<1>(c01) + half_of<0>(c23) + half_of<1>(c23);
  } else {
    // Columns 0..3 and 4..7 of four groups, then columns k and k + 1 of eight.
    const __m512i low = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i high = _mm512_setr_epi32(4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    const auto [ab0, cd0, ab4, cd4] = pick_from_eight(columns, low, high);
    const __m512 c01 = _mm512_permutex2var_ps(ab0, first, cd0);
    const __m512 c23 = _mm512_permutex2var_ps(ab0, second, cd0);
    const __m512 c45 = _mm512_permutex2var_ps(ab4, first, cd4);
    const __m512 c67 = _mm512_permutex2var_ps(ab4, second, cd4);
    return half_of<0>(c01) + half_of<1>(c01) + half_of<0>(c23) + half_of<1>(c23) + half_of<0>(c45) + half_of<1>(c45) +
           half_of<0>(c67) + half_of<1>(c67);
  }
}
#endif

#if defined(__AVX512F__)
/// Reduces eight lanes by halving.
GSC_HD double join_lanes(__m512d v) {
  const __m256d four = _mm256_add_pd(_mm512_maskz_extractf64x4_pd(0xf, v, 0), _mm512_maskz_extractf64x4_pd(0xf, v, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/// Reduces 8, 16 or 32 groups by halving, for join_lanes; sum_eight(i) sums groups 8 * i to 8 * i + 7.
template <int Groups, typename F>
GSC_HD __m512d fold_to_eight(const F &sum_eight) {
  __m512d sums[Groups / 8];
#pragma GCC unroll 4
  for (int i = 0; i < Groups / 8; ++i) sums[i] = sum_eight(i);
  if constexpr (Groups == 32) return (sums[0] + sums[2]) + (sums[1] + sums[3]);
  if constexpr (Groups == 16) return sums[0] + sums[1];
  return sums[0];
}
#endif

/// Sums of groups [0, Groups) of columns, each left to right in double.
template <int Width, int Groups, typename A>
GSC_HD void sum_groups(const A *columns, double *groups) {
  for (int g = 0; g < Groups; ++g) {
    double sum = static_cast<double>(columns[g * Width]);
    for (int k = 1; k < Width; ++k) sum += static_cast<double>(columns[g * Width + k]);
    groups[g] = sum;
  }
}

/// Sums of `Groups` groups of columns, reduced by halving. All counts are constants, so the compiler keeps it in
/// vectors.
template <int Width, int Groups, typename A>
[[gnu::always_inline]] inline double fold_groups(const A *columns) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<A, float> && Groups % 8 == 0 && (Width == 4 || Width == 8)) {
    return join_lanes(fold_to_eight<Groups>([&](int i) { return sum_eight_groups<Width>(columns + i * 8 * Width); }));
  }
#endif
  double groups[Groups];
  sum_groups<Width, Groups>(columns, groups);
  if constexpr (Groups > 16) {
    for (int g = 0; g < 16; ++g) groups[g] += groups[g + 16];
  }
  if constexpr (Groups > 8) {
    for (int g = 0; g < 8; ++g) groups[g] += groups[g + 8];
  }
  if constexpr (Groups > 4) {
    for (int g = 0; g < 4; ++g) groups[g] += groups[g + 4];
  }
  if constexpr (Groups > 2) {
    for (int g = 0; g < 2; ++g) groups[g] += groups[g + 2];
  }
  return Groups > 1 ? groups[0] + groups[1] : groups[0];
}

/// Reduces a tile's column sums: the Width columns of a group left to right in double, then the 32 groups by halving.
/// Columns from `used` on count as zero; since adding zeros changes nothing, groups past the next power of two are
/// skipped.
template <int Width, typename A>
double fold_columns(A *columns, int used) {
  const int count = (used + Width - 1) / Width;
  const int padded = count > 16 ? 32 : (count > 8 ? 16 : (count > 4 ? 8 : (count > 2 ? 4 : 2)));
  for (int i = used; i < padded * Width; ++i) columns[i] = A(0);
  switch (padded) {
    case 2:
      return fold_groups<Width, 2>(columns);
    case 4:
      return fold_groups<Width, 4>(columns);
    case 8:
      return fold_groups<Width, 8>(columns);
    case 16:
      return fold_groups<Width, 16>(columns);
    default:
      return fold_groups<Width, kGroups>(columns);
  }
}

/// Column sums in double, in reduction.h's order. Width, the number of columns of a 16-byte group, determines the size
/// of rows and tiles.
template <int Width>
class DoubleColumns {
 public:
  static constexpr int kColumns = Width * kGroups;

  /// Adds the squares of the next n values. All calls but the last pass the same power of two: at least kBlock or a
  /// row, at most a tile.
  template <typename T>
  void add_squares(const T *__restrict values, int n) {
    if (elements_ == 0) std::memset(columns_, 0, sizeof columns_);
    // Calls pass whole rows, except for one-byte elements, whose rows are longer than a block.
    double *columns = columns_ + (kColumns > kBlock ? elements_ % kColumns : 0);
    for (int row = 0; row < n; row += kColumns) {
      const int width = min_int(n - row, kColumns);
      for (int i = 0; i < width; ++i) {
        const double x = static_cast<double>(values[row + i]);
        columns[i] += x * x;
      }
    }
    elements_ += n;
    if (elements_ == kColumns * kRows) fold();
  }

  double total() {
    if (elements_ > 0) fold();
    return total_;
  }

 private:
  void fold() {
    total_ += fold_columns<Width>(columns_, min_int(elements_, kColumns));
    elements_ = 0;
  }

  double columns_[kColumns];
  double total_ = 0.0;
  int elements_ = 0;  ///< of the current tile
};

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
