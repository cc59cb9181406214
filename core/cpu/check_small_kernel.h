// SPDX-License-Identifier: Apache-2.0
// check_small: checks many tensors of a tile or less in one call, for lists of thousands. Sums and decisions are those
// of check_kernel.h. Tensors of 128, 256 and 512 bytes, a row or part of one, are summed in registers; AVX-512 takes
// eight tensors of the first two sizes at a time. Included by kernels.cpp only.
#pragma once

#include <cstddef>
#include <type_traits>

#include "core/cpu/check_kernel.h"
#include "core/cpu/columns.h"
#include "core/cpu/kernels.h"

namespace gsc::cpu {
namespace {

/// The largest lane; none is NaN.
template <typename Vector>
GSC_HD auto largest_lane(Vector v) {
  std::remove_cvref_t<decltype(v[0])> lanes[sizeof v / sizeof v[0]];
  store_vector(lanes, v);
  return largest_of(lanes, static_cast<int>(sizeof v / sizeof v[0]));
}

/// Of a single row.
template <typename Value>
struct RowSum {
  double sum_sq;  ///< as TileSum's
  Value largest;
};

/// Exactly `Groups` groups of columns in one row, without remainder or padding, so that everything stays in registers.
template <typename D, int Groups>
[[gnu::always_inline]] inline RowSum<typename D::Value> sum_short_row(const typename D::Stored *x) {
  using Value = typename D::Value;
  using Vector = typename Magnitudes<D>::Vector;
  constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(Value));
  constexpr int kElements = Groups * Shape<D>::kWidth;
  Value columns[kElements];
  Vector largest[2]{};
#pragma GCC unroll 16
  for (int i = 0; i < kElements; i += kLanes) {
    const Vector value = Magnitudes<D>::load(x + i);
    store_vector(columns + i, value * value);
    largest[i / kLanes % 2] = larger(value, largest[i / kLanes % 2]);
  }
  return {fold_groups<Shape<D>::kWidth, Groups>(columns), largest_lane(larger(largest[0], largest[1]))};
}

#if defined(__AVX512F__)
// fp32 numbers of 0 and above as double times 2^-896: their bits, moved to their places in a double. This takes half
// the time of a conversion. It is exact, and so are sums wherever plain sums would be: subnormals become normal or stay
// multiples of the smallest double. Inf and NaN become finite.
constexpr double kUnshift = 0x1p+896;
GSC_HD __m512d shifted_upper(__m512i pairs) {
  return _mm512_castsi512_pd(_mm512_maskz_srli_epi64(0xff, pairs, 3));  // the lower half is 0
}
GSC_HD __m512d shifted_half(__m512 pairs, bool upper) {
  const __m512i bits = _mm512_castps_si512(pairs);
  const __m512i moved = upper ? _mm512_maskz_srli_epi64(0xff, bits, 3) : _mm512_maskz_slli_epi64(0xff, bits, 29);
  return _mm512_castsi512_pd(_mm512_and_si512(moved, _mm512_set1_epi64(0x0fffffffe0000000)));
}

// Sums of squares of eight groups of magnitudes, in `a` and `b`, times 2^-896, each left to right. The magnitudes are
// finite and their squares fit fp32.

GSC_HD __m512d sum_squares_of_eight_groups(__m512i a, __m512i b, Fp32) {
  const __m512 x = _mm512_castsi512_ps(a);
  const __m512 y = _mm512_castsi512_ps(b);
  const __m512 squares[2] = {_mm512_mul_ps(x, x), _mm512_mul_ps(y, y)};
  // Column k of the eight groups, each in the upper half of a lane.
  const __m512i first = _mm512_setr_epi32(0, 0, 0, 4, 0, 8, 0, 12, 0, 16, 0, 20, 0, 24, 0, 28);
  const auto column = [&](int k) {
    const __m512i from = _mm512_add_epi32(first, _mm512_set1_epi32(k));
    return shifted_upper(_mm512_castps_si512(_mm512_maskz_permutex2var_ps(0xaaaa, squares[0], from, squares[1])));
  };
  return column(0) + column(1) + column(2) + column(3);
}

/// Columns Column and Column + 1 of eight groups of eight 16-bit magnitudes in `a` and `b`, interleaved, as fp32.
template <int Column>
GSC_HD __m512 two_columns(__m512i a, __m512i b, Bf16) {
  const __m512i group = _mm512_set_epi16(56, 0, 56, 0, 48, 0, 48, 0, 40, 0, 40, 0, 32, 0, 32, 0,  //
                                         24, 0, 24, 0, 16, 0, 16, 0, 8, 0, 8, 0, 0, 0, 0, 0);
  const __m512i from =
      _mm512_add_epi16(group, _mm512_set1_epi64((int64_t{Column + 1} << 48) + (int64_t{Column} << 16)));
  return _mm512_castsi512_ps(_mm512_maskz_permutex2var_epi16(0xaaaaaaaa, a, from, b));
}
template <int Column>
GSC_HD __m512 two_columns(__m512i a, __m512i b, Fp16) {
  // Four columns at once; of the calls for two and two compilers keep one.
  const __m512i group = _mm512_set_epi16(56, 56, 48, 48, 40, 40, 32, 32, 24, 24, 16, 16, 8, 8, 0, 0,  //
                                         56, 56, 48, 48, 40, 40, 32, 32, 24, 24, 16, 16, 8, 8, 0, 0);
  const __m512i columns = _mm512_set_epi32(0x30002, 0x30002, 0x30002, 0x30002, 0x30002, 0x30002, 0x30002, 0x30002,  //
                                           0x10000, 0x10000, 0x10000, 0x10000, 0x10000, 0x10000, 0x10000, 0x10000);
  const __m512i from = _mm512_add_epi16(_mm512_add_epi16(group, columns), _mm512_set1_epi16(Column / 4 * 4));
  const __m512i four = _mm512_maskz_permutex2var_epi16(0xffffffff, a, from, b);
  return _mm512_maskz_cvtph_ps(kAllLanes, _mm512_maskz_extracti64x4_epi64(0xf, four, Column % 4 / 2));
}

/// 16-bit elements are transposed before they are converted.
template <typename D>
GSC_HD __m512d sum_squares_of_eight_groups(__m512i a, __m512i b, D) {
  const auto square = [](__m512 v) { return _mm512_mul_ps(v, v); };
  const __m512 s01 = square(two_columns<0>(a, b, D{}));
  const __m512 s23 = square(two_columns<2>(a, b, D{}));
  const __m512 s45 = square(two_columns<4>(a, b, D{}));
  const __m512 s67 = square(two_columns<6>(a, b, D{}));
  return shifted_half(s01, false) + shifted_half(s01, true) + shifted_half(s23, false) + shifted_half(s23, true) +
         shifted_half(s45, false) + shifted_half(s45, true) + shifted_half(s67, false) + shifted_half(s67, true);
}

/// The largest lane of the bits of magnitudes of D, as a number; NaN is the largest.
template <typename D>
GSC_HD float largest_magnitude(Int32Vector v) {
  const auto bits = reinterpret_cast<__m512i>(v);
  const __m256i eight = _mm256_max_epi32(_mm512_maskz_extracti64x4_epi64(0xf, bits, 0),  //
                                         _mm512_maskz_extracti64x4_epi64(0xf, bits, 1));
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0x55))));
}
template <typename D>
GSC_HD float largest_magnitude(Int16Vector v) {
  const auto bits = reinterpret_cast<__m512i>(v);
  const __m256i sixteen = _mm256_max_epi16(_mm512_maskz_extracti64x4_epi64(0xf, bits, 0),  //
                                           _mm512_maskz_extracti64x4_epi64(0xf, bits, 1));
  const __m128i eight = _mm_max_epi16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
  const __m128i inverse = _mm_set1_epi16(0x7fff);  // there is an instruction for the smallest word only
  const __m128i largest = _mm_xor_si128(_mm_minpos_epu16(_mm_xor_si128(eight, inverse)), inverse);
  if constexpr (std::is_same_v<D, Fp16>) return _mm_cvtss_f32(_mm_cvtph_ps(largest));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_slli_epi32(largest, 16)));
}

/// One or several short rows before their lanes are joined.
template <typename D>
struct RowLanes {
  __m512d sums;  ///< of squares, times 2^-896; they hold if the largest magnitude is finite
  typename Words<D>::Vector largest;
};

/// sum_short_row for arithmetic in fp32, in fewer instructions.
template <typename D, int Groups>
[[gnu::always_inline]] inline RowLanes<D> sum_short_row_by_bits(const typename D::Stored *x) {
  using Vector = typename Words<D>::Vector;
  constexpr int kLanes = kVectorBytes / Shape<D>::kSize;
  static_assert(2 * kLanes == 8 * Shape<D>::kWidth);
  Vector largest{};
  const __m512d sums = fold_to_eight<Groups>([&](int i) {
    const auto a = load_vector<Vector>(x + 2 * i * kLanes) & Words<D>::kMagnitude;
    const auto b = load_vector<Vector>(x + (2 * i + 1) * kLanes) & Words<D>::kMagnitude;
    largest = larger(larger(a, b), largest);
    return sum_squares_of_eight_groups(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b), D{});
  });
  return {sums, largest};
}

template <typename D>
GSC_HD RowSum<float> join_row(const RowLanes<D> &row) {
  return {kUnshift * join_lanes(row.sums), largest_magnitude<D>(row.largest)};
}

/// Joins the lanes of Rows rows, half of them in `a` and half in `b`, by halving: 8 / Rows of each row are left.
template <int Rows, typename D>
GSC_HD RowLanes<D> join_rows(const RowLanes<D> &a, const RowLanes<D> &b) {
  const auto lower = [](__m512d v, __m512d w) {
    if constexpr (Rows == 8) return _mm512_maskz_unpacklo_pd(0xff, v, w);
    return _mm512_maskz_shuffle_f64x2(0xff, v, w, Rows == 2 ? 0x44 : 0x88);
  };
  const auto upper = [](__m512d v, __m512d w) {
    if constexpr (Rows == 8) return _mm512_maskz_unpackhi_pd(0xff, v, w);
    return _mm512_maskz_shuffle_f64x2(0xff, v, w, Rows == 2 ? 0xee : 0xdd);
  };
  using Vector = typename Words<D>::Vector;
  const auto v = reinterpret_cast<__m512d>(a.largest);
  const auto w = reinterpret_cast<__m512d>(b.largest);
  return {lower(a.sums, b.sums) + upper(a.sums, b.sums),
          larger(reinterpret_cast<Vector>(lower(v, w)), reinterpret_cast<Vector>(upper(v, w)))};
}

/// The rows of tensors[0..Rows), joined.
template <typename D, int Groups, int Rows>
[[gnu::always_inline]] inline RowLanes<D> sum_short_rows(const Tensor *tensors) {
  if constexpr (Rows == 1) {
    return sum_short_row_by_bits<D, Groups>(static_cast<const typename D::Stored *>(tensors->data));
  } else {
    const auto first = sum_short_rows<D, Groups, Rows / 2>(tensors);
    return join_rows<Rows>(first, sum_short_rows<D, Groups, Rows / 2>(tensors + Rows / 2));
  }
}

/// The largest word of each 64-bit lane, as largest_magnitude.
template <typename D>
GSC_HD __m256 largest_of_lanes(Int32Vector v) {
  const auto bits = reinterpret_cast<__m512i>(v);
  const __m512i largest = _mm512_maskz_max_epi32(kAllLanes, bits, _mm512_maskz_srli_epi64(0xff, bits, 32));
  return _mm256_castsi256_ps(_mm512_maskz_cvtepi64_epi32(0xff, largest));
}
template <typename D>
GSC_HD __m256 largest_of_lanes(Int16Vector v) {
  const auto bits = reinterpret_cast<__m512i>(v);
  const __m512i two = _mm512_maskz_max_epi16(0xffffffff, bits, _mm512_maskz_srli_epi64(0xff, bits, 32));
  const __m512i one = _mm512_maskz_max_epi16(0xffffffff, two, _mm512_maskz_srli_epi64(0xff, two, 16));
  const __m128i largest = _mm512_maskz_cvtepi64_epi16(0xff, one);
  if constexpr (std::is_same_v<D, Fp16>) return _mm256_cvtph_ps(largest);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(largest), 16));
}

/// squares_fit of all lanes.
GSC_HD bool all_squares_fit(__m256 amax) {
  const auto zero = _mm256_cmp_ps_mask(amax, _mm256_setzero_ps(), _CMP_EQ_OQ);
  const auto above = _mm256_cmp_ps_mask(amax, _mm256_set1_ps(kSafeMin), _CMP_GE_OQ);
  const auto below = _mm256_cmp_ps_mask(amax, _mm256_set1_ps(kSafeMax), _CMP_LE_OQ);
  return (zero | (above & below)) == 0xff;
}

/// Eight short rows, whose lanes are joined together. Returns false if one needs judge_tile.
template <typename D, int Groups>
[[gnu::always_inline]] inline bool check_eight_rows(const Tensor *tensors, ChunkPartial *out) {
  const RowLanes<D> rows = sum_short_rows<D, Groups, 8>(tensors);
  const __m256 largest = largest_of_lanes<D>(rows.largest);
  if (!all_squares_fit(largest)) return false;
  static_assert(sizeof(ChunkPartial) == 16 && offsetof(ChunkSum, amax) == 8);
  // In the order 0, 4, 1, 5, 2, 6, 3, 7.
  const __m512d sum_sq = rows.sums * _mm512_set1_pd(kUnshift);
  const __m512d amax = _mm512_maskz_cvtps_pd(0xff, largest);
  _mm512_storeu_pd(out, _mm512_maskz_unpacklo_pd(0xff, sum_sq, amax));
  _mm512_storeu_pd(out + 4, _mm512_maskz_unpackhi_pd(0xff, sum_sq, amax));
  return true;
}
#endif

/// tensors[0], tensors[1], ... that have `Groups` groups in one row, until one has another size or needs judge_tile.
/// Most tensors of long lists are of these sizes.
template <typename D, int Groups>
[[gnu::noinline]] int64_t check_short_rows(const Tensor *tensors, int64_t count, ChunkPartial *out) {
#if defined(__AVX512F__)
  constexpr bool kByBits = std::is_same_v<typename D::Value, float>;
#else
  constexpr bool kByBits = false;
#endif
  const auto is_short = [](const Tensor &t) { return t.dtype == D::kCode && t.count == Groups * Shape<D>::kWidth; };
  const auto next_eight_are_short = [&](const Tensor *next) {
    for (int k = 0; k < 8; ++k) {
      if (!is_short(next[k])) return false;
    }
    return true;
  };
  int64_t i = 0;
  if constexpr (kByBits && Groups <= 16) {  // of more, eight do not fit in registers
    while (i + 8 <= count && next_eight_are_short(tensors + i) && check_eight_rows<D, Groups>(tensors + i, out + i)) {
      i += 8;
    }
  }
  for (; i < count && is_short(tensors[i]); ++i) {
    const auto *x = static_cast<const typename D::Stored *>(tensors[i].data);
    RowSum<typename D::Value> row;
    if constexpr (kByBits) {
      row = join_row(sum_short_row_by_bits<D, Groups>(x));
    } else {
      row = sum_short_row<D, Groups>(x);
      if (row.sum_sq != row.sum_sq) break;
    }
    if (!squares_fit(row.largest)) break;
    out[i].sum = {row.sum_sq, static_cast<double>(row.largest)};
  }
  return i;
}

/// check_short_rows for the sizes that it knows; 0 for others. 256 and 512 bytes are the common ones.
template <typename D>
int64_t check_short(const Tensor *tensors, int64_t count, ChunkPartial *out) {
  switch (tensors[0].count) {
    case 8 * Shape<D>::kWidth:
      return check_short_rows<D, 8>(tensors, count, out);
    case 16 * Shape<D>::kWidth:
      return check_short_rows<D, 16>(tensors, count, out);
    case 32 * Shape<D>::kWidth:
      return check_short_rows<D, 32>(tensors, count, out);
    default:
      return 0;
  }
}

template <typename D>
int64_t check_small_span(const Tensor *tensors, int64_t count, float inv_scale_word, double fp64_limit,
                         ChunkPartial *out) {
  using Value = typename D::Value;
  const Value limit = finite_limit<D, false>(fp64_limit);
  const Value inv_scale = static_cast<Value>(inv_scale_word);
  // Multiplying is monotone: what squares_fit accepts is finite, too.
  const bool fits = __builtin_fabs(static_cast<Value>(kSafeMax) * inv_scale) < limit;
  for (int64_t i = 0; i < count; ++i) {
    if (const int64_t done = fits ? check_short<D>(tensors + i, count - i, out + i) : 0; done > 0) {
      i += done - 1;
      continue;
    }
    const Tensor &t = tensors[i];
    if (t.dtype != D::kCode || t.count == 0 || t.count > Shape<D>::kTile) return i;
    const auto *x = static_cast<const typename D::Stored *>(t.data);
    const int n = static_cast<int>(t.count);
    const TileSum sums = sum_tile<D>(x, n, Ahead<ReadAhead::kNone>::of(x));
    const TileSum tile = judge_tile<D>(sums, x, n, inv_scale, limit);
    if (tile.sum_sq != tile.sum_sq) return i;
    out[i].sum = {tile.sum_sq, tile.amax};
  }
  return count;
}

int64_t check_small(const Tensor *tensors, int64_t count, float inv_scale, double fp64_limit, ChunkPartial *out) {
  if (count == 0) return 0;
  return with_dtype(tensors[0].dtype,
                    [&](auto d) { return check_small_span<decltype(d)>(tensors, count, inv_scale, fp64_limit, out); });
}

}  // namespace
}  // namespace gsc::cpu
