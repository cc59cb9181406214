// SPDX-License-Identifier: Apache-2.0
// check and unscale: one pass over gradients that finds inf and NaN, the largest magnitude and the sum of squares. A
// tile is first summed as if it were finite, keeping the largest magnitude. Multiplying and rounding are monotone, so
// that one number tells whether anything in the tile is, or becomes, inf; the sum of squares is NaN only if an element
// is. Only tiles that fail are examined element by element. Included by kernels.cpp only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "core/cpu/columns.h"
#include "core/cpu/convert.h"
#include "core/cpu/kernels.h"
#include "core/cpu/read_ahead.h"
#include "core/cpu/values.h"
#include "core/rules/check.h"

namespace gsc::cpu {
namespace {

/// Vectors of column sums kept in registers: as many as fit beside the maxima.
constexpr int kStrip = kVectorBytes == 64 ? 16 : 8;
/// Independent maxima, to break the dependency chain.
constexpr int kChains = 4;

template <typename D>
struct Shape {
  static constexpr int kSize = sizeof(typename D::Stored);
  static constexpr int kWidth = kGroupBytes / kSize;  ///< columns of a group
  static constexpr int kColumns = kRowBytes / kSize;
  static constexpr int kTile = kTileBytes / kSize;
};

/// Maximum of magnitudes as integers, because an integer maximum vectorises; NaN is the largest.
template <typename Value>
Value largest_of(const Value *x, int n) {
  auto largest = to_bits(Value(0));
  for (int i = 0; i < n; ++i) {
    const auto bits = to_bits(x[i]) & (~to_bits(Value(0)) >> 1);
    largest = bits > largest ? bits : largest;
  }
  return from_bits(largest);
}

/// The largest lane; none is NaN.
template <typename Vector>
GSC_HD auto largest_lane(Vector v) {
  std::remove_cvref_t<decltype(v[0])> lanes[sizeof v / sizeof v[0]];
  store_vector(lanes, v);
  return largest_of(lanes, static_cast<int>(sizeof v / sizeof v[0]));
}

/// Elements as signed integers of their size: magnitudes order like their bits.
template <int Size>
struct WordsOf;
template <>
struct WordsOf<2> {
  using Word = int16_t;
  using Vector = Int16Vector;
};
template <>
struct WordsOf<4> {
  using Word = int32_t;
  using Vector = Int32Vector;
};
template <>
struct WordsOf<8> {
  using Word = int64_t;
  using Vector = Int64Vector;
};

template <typename D>
struct Words : WordsOf<sizeof(typename D::Stored)> {
  using Word = typename WordsOf<sizeof(typename D::Stored)>::Word;
  static constexpr Word kMagnitude = static_cast<Word>(~(uint64_t{1} << (8 * sizeof(Word) - 1)));

  GSC_HD static Word of(double magnitude) { return __builtin_bit_cast(Word, narrow_to<D>(magnitude)); }
  GSC_HD static typename D::Value value(Word word) { return D::widen(__builtin_bit_cast(typename D::Stored, word)); }
};

/// Magnitudes for the extremes of a tile: as integers where an integer maximum is fast. 16-bit elements are twice as many
/// a vector so.
#if defined(__AVX2__)
constexpr int kOrderedAsWords = 4;
#else
constexpr int kOrderedAsWords = 2;
#endif
template <typename D, bool = sizeof(typename D::Stored) <= kOrderedAsWords>
struct Ordered {
  using Vector = typename Words<D>::Vector;
  GSC_HD static Vector load(const typename D::Stored *p) { return load_vector<Vector>(p) & Words<D>::kMagnitude; }
  GSC_HD static Vector load_apart(const typename D::Stored *p) {
    return loaded(load_vector<Vector>(p)) & Words<D>::kMagnitude;
  }
  GSC_HD static typename D::Value value(typename Words<D>::Word lane) { return Words<D>::value(lane); }
  GSC_HD static auto infinity() { return Words<D>::of(__builtin_inf()); }
};
template <typename D>
struct Ordered<D, false> {
  using Vector = typename Magnitudes<D>::Vector;
  GSC_HD static Vector load(const typename D::Stored *p) { return Magnitudes<D>::load(p); }
  GSC_HD static Vector load_apart(const typename D::Stored *p) { return load(p); }
  GSC_HD static typename D::Value value(typename D::Value lane) { return lane; }
  GSC_HD static auto infinity() { return static_cast<typename D::Value>(__builtin_inf()); }
};

/// The next vector of elements to be squared, in the arithmetic type: neither signs nor payloads of NaN matter.
template <typename D>
GSC_HD auto load_squarable(const typename D::Stored *p) {
  if constexpr (sizeof *p == 2 && Values<D, float>::kInVectors) {
    return load_operand<D>(p);
  } else {
    return Magnitudes<D>::load(p);
  }
}

/// sum + x * x. The squares of fp16 are exact in fp32, so that fusing changes nothing.
template <typename D, typename Vector>
GSC_HD Vector add_square(Vector sum, Vector x) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<D, Fp16>) return _mm512_fmadd_ps(x, x, sum);
#elif defined(__FMA__)
  if constexpr (std::is_same_v<D, Fp16>) return _mm256_fmadd_ps(x, x, sum);
#endif
  return sum + x * x;
}

/// Column sums of squares of whole rows; returns the largest magnitude, of which NaN may be one.
template <typename D, ReadAhead A>
typename D::Value sum_rows(const typename D::Stored *x, int rows, typename D::Value *columns, Ahead<A> ahead) {
  using Value = typename D::Value;
  using Vector = typename Magnitudes<D>::Vector;
  using Order = Ordered<D, sizeof(typename D::Stored) == 2>;  // others are loaded once for both
  constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(Value));
  constexpr int kOrdered = kVectorBytes / static_cast<int>(sizeof(typename Order::Vector{}[0]));
  constexpr int kColumns = Shape<D>::kColumns;
  constexpr int kVectors = kColumns / kLanes < kStrip ? kColumns / kLanes : kStrip;
  typename Order::Vector largest[kChains]{};
  for (int strip = 0; strip < kColumns; strip += kVectors * kLanes) {
    Vector sums[kVectors]{};
    for (int row = 0; row < rows; ++row) {
      const auto *p = x + row * kColumns + strip;
      constexpr int kBytes = kVectors * kLanes * Shape<D>::kSize;
      ahead.template fetch<kBytes>((strip / kVectors / kLanes * rows + row) * kBytes);
      // In turn, as two loops would read the row in two bursts, which is slower from memory.
#pragma GCC unroll 16
      for (int k = 0; k < kVectors; ++k) {
        sums[k] = add_square<D>(sums[k], load_squarable<D>(p + k * kLanes));
        const int end = (k + 1) * kLanes;
        if (end % kOrdered != 0) continue;
        auto &chain = largest[end / kOrdered % kChains];
        chain = larger(Order::load_apart(p + end - kOrdered), chain);
      }
    }
    // Element by element: copying the whole array would keep it in memory during the loop.
#pragma GCC unroll 16
    for (int k = 0; k < kVectors; ++k) store_vector(columns + strip + k * kLanes, sums[k]);
  }
  const auto lanes = larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
  Value values[kOrdered];
  for (int k = 0; k < kOrdered; ++k) values[k] = Order::value(lanes[k]);
  return largest_of(values, kOrdered);
}

struct TileSum {
  double sum_sq;  ///< NaN if and only if an element is
  double amax;    ///< inf if an element is; if one is NaN, NaN or the largest of the others
};

/// Squares of a partial row of at least one vector, as columns; returns the largest magnitude that is not NaN. The last
/// vector overlaps the previous one.
template <typename D>
typename D::Value square_columns(const typename D::Stored *x, int n, typename D::Value *columns) {
  using Value = typename D::Value;
  using Vector = typename Magnitudes<D>::Vector;
  constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(Value));
  Vector largest{};
  const auto step = [&](int i) {
    const Vector value = Magnitudes<D>::load(x + i);
    store_vector(columns + i, value * value);
    largest = larger(value, largest);
  };
  for (int i = 0; i < n - kLanes; i += kLanes) step(i);
  step(n - kLanes);
  Value lanes[kLanes];
  store_vector(lanes, largest);
  return largest_of(lanes, kLanes);
}

/// Sums a tile of n elements as if it were finite; judge_tile decides whether the result holds.
template <typename D, ReadAhead A>
TileSum sum_tile(const typename D::Stored *x, int n, Ahead<A> ahead) {
  using Value = typename D::Value;
  constexpr int kColumns = Shape<D>::kColumns;
  Value columns[kColumns];
  const int rows = n / kColumns;
  const int rest = n - rows * kColumns;
  Value largest = 0;
  if (rows == 0 && rest >= kVectorBytes / static_cast<int>(sizeof(Value))) {
    largest = square_columns<D>(x, rest, columns);
  } else {
    if (rows > 0) largest = sum_rows<D>(x, rows, columns, ahead);
    Value buffer[kColumns];
    const Value *last = buffer;
    if constexpr (sizeof(typename D::Stored) == sizeof(Value)) {
      last = x + rows * kColumns;
    } else {
      load_block(D::kCode, x + rows * kColumns, buffer, rest);
    }
    for (int i = 0; i < rest; ++i) columns[i] = (rows > 0 ? columns[i] : Value(0)) + last[i] * last[i];
    const Value found = largest_of(last, rest);
    largest = found <= largest ? largest : found;
  }
  return {fold_columns<Shape<D>::kWidth>(columns, rows > 0 ? kColumns : rest), static_cast<double>(largest)};
}

/// The same sum with columns in double, for magnitudes whose squares would overflow or underflow fp32.
template <typename D>
double sum_tile_wide(const typename D::Stored *x, int n) {
  DoubleColumns<Shape<D>::kWidth> columns;
  for (int i = 0; i < n; i += kBlock) {
    float values[kBlock];
    const int count = min_int(n - i, kBlock);
    load_block(D::kCode, x + i, values, count);
    columns.add_squares(values, count);
  }
  return columns.total();
}

/// A tile with non-finite elements or results: counts them and finds the first.
template <typename D>
void count_nonfinite(const typename D::Stored *x, int n, int64_t offset, typename D::Value inv_scale,
                     typename D::Value limit, ChunkStat *out) {
  using Value = typename D::Value;
  using Bits = typename Magnitudes<D>::Bits;
  constexpr auto kInfBits = static_cast<Bits>(__builtin_bit_cast(Bits, static_cast<Value>(kInfinity)));
  for (int i = 0; i < n; i += kBlock) {
    Value values[kBlock];
    const int count = min_int(n - i, kBlock);
    load_block(D::kCode, x + i, values, count);
    // Branch-free with lanes of one width, so that it vectorises: an all-NaN gradient is not slow.
    Bits nonfinite = 0;
    Bits nans = 0;
    Bits largest = 0;
    for (int k = 0; k < count; ++k) {
      const Value stored = static_cast<Value>(__builtin_fabs(values[k]));
      const Value scaled = static_cast<Value>(__builtin_fabs(values[k] * inv_scale));
      const Bits bits = __builtin_bit_cast(Bits, stored);
      nonfinite += ((bits >= kInfBits) | !(scaled < limit)) ? 1 : 0;
      nans += ((bits > kInfBits) | ((bits < kInfBits) & (scaled != scaled))) ? 1 : 0;
      const Bits finite = bits < kInfBits ? bits : 0;
      largest = finite > largest ? finite : largest;
    }
    if (out->first < 0 && nonfinite > 0) {
      int k = 0;
      while (__builtin_fabs(values[k]) < kInfinity && __builtin_fabs(values[k] * inv_scale) < limit) ++k;
      out->first = offset + i + k;
    }
    out->inf_count += nonfinite - nans;
    out->nan_count += nans;
    const auto amax = static_cast<double>(__builtin_bit_cast(Value, largest));
    out->amax = amax > out->amax ? amax : out->amax;
  }
}

template <typename D>
void scale_tile(typename D::Stored *x, int n, typename D::Value factor) {
  using Value = typename D::Value;
  if constexpr (Values<D, Value>::kInVectors) {
    compute_in_vectors<Elementwise::kScale, D, D, Value, false>(factor, Value(0), x, x, n);
    return;
  }
  for (int i = 0; i < n; i += kBlock) {
    Value values[kBlock];
    const int count = min_int(n - i, kBlock);
    load_block(D::kCode, x + i, values, count);
    for (int k = 0; k < count; ++k) values[k] *= factor;
    store_block(D::kCode, x + i, values, count);
  }
}

/// The tile's sum and largest magnitude from its narrow columns, or from wide ones if needed; sum_sq is NaN if and only
/// if an element is non-finite or becomes so.
template <typename D>
GSC_HD TileSum judge_tile(TileSum tile, const typename D::Stored *x, int n, typename D::Value inv_scale,
                          typename D::Value limit) {
  using Value = typename D::Value;
  if (!(__builtin_fabs(static_cast<Value>(tile.amax) * inv_scale) < limit)) return {__builtin_nan(""), tile.amax};
  if constexpr (!D::kSquaresFit) {
    if (!squares_fit(tile.amax) && tile.sum_sq == tile.sum_sq) tile.sum_sq = sum_tile_wide<D>(x, n);
  }
  return tile;
}

template <typename D, bool Write, ReadAhead A>
void stat_span(void *data, int64_t n, float inv_scale_word, double fp64_limit, ChunkStat *out) {
  using Value = typename D::Value;
  constexpr int kTile = Shape<D>::kTile;
  const Value limit = finite_limit<D, Write>(fp64_limit);
  const Value inv_scale = static_cast<Value>(inv_scale_word);
  auto *x = static_cast<typename D::Stored *>(data);
  *out = ChunkStat{0.0, 0.0, 0, 0, -1};
  for (int64_t i = 0; i < n; i += kTile) {
    const int count = min_int(n - i, kTile);
    const TileSum sums = sum_tile<D>(x + i, count, Ahead<A>::of(x + i));
    const TileSum tile = judge_tile<D>(sums, x + i, count, inv_scale, limit);
    if (tile.sum_sq != tile.sum_sq) {
      count_nonfinite<D>(x + i, count, i, inv_scale, limit, out);
    } else {
      out->sum_sq += tile.sum_sq;
      out->amax = tile.amax > out->amax ? tile.amax : out->amax;
    }
    if constexpr (Write) scale_tile<D>(x + i, count, inv_scale);
  }
  if (out->inf_count > 0) out->sum_sq = __builtin_inf();
  if (out->nan_count > 0) out->sum_sq = __builtin_nan("");
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

/// A short row, or several, before their lanes are joined.
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
/// Lists of thousands consist of these.
template <typename D, int Groups>
[[gnu::noinline]] int64_t check_short_rows(const Tensor *tensors, int64_t count, ChunkPartial *out) {
#if defined(__AVX512F__)
  constexpr bool kByBits = std::is_same_v<typename D::Value, float>;
#else
  constexpr bool kByBits = false;
#endif
  const auto is_short = [](const Tensor &t) { return t.dtype == D::kCode && t.count == Groups * Shape<D>::kWidth; };
  int64_t i = 0;
  if constexpr (kByBits && Groups <= 16) {  // of more, eight do not fit in registers
    while (i + 8 <= count && std::all_of(tensors + i, tensors + i + 8, is_short) &&
           check_eight_rows<D, Groups>(tensors + i, out + i)) {
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
  // Multiplying is monotone: what squares_fit takes is then finite, too.
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

template <bool Write>
void stat(int32_t dtype, void *data, int64_t n, float inv_scale, double fp64_limit, ReadAhead ahead, ChunkStat *out) {
  with_read_ahead(ahead, n * dtype_bytes(dtype), [&](auto a) {
    with_dtype(dtype, [&](auto d) { stat_span<decltype(d), Write, a()>(data, n, inv_scale, fp64_limit, out); });
  });
}

// check never writes: stat_span<D, false> has no store to `data`.
void check(int32_t dtype, const void *data, int64_t n, float inv_scale, double fp64_limit, ReadAhead ahead,
           ChunkStat *out) {
  stat<false>(dtype, const_cast<void *>(data), n, inv_scale, fp64_limit, ahead, out);
}

void unscale(int32_t dtype, void *data, int64_t n, float inv_scale, double fp64_limit, ReadAhead ahead,
             ChunkStat *out) {
  // Where a little prefetching is best, none is for data that is rewritten.
  if (ahead == ReadAhead::kPageStarts) ahead = ReadAhead::kNone;
  stat<true>(dtype, data, n, inv_scale, fp64_limit, ahead, out);
}

int64_t check_small(const Tensor *tensors, int64_t count, float inv_scale, double fp64_limit, ChunkPartial *out) {
  if (count == 0) return 0;
  return with_dtype(tensors[0].dtype,
                    [&](auto d) { return check_small_span<decltype(d)>(tensors, count, inv_scale, fp64_limit, out); });
}

}  // namespace
}  // namespace gsc::cpu
