// SPDX-License-Identifier: Apache-2.0
// check and unscale: one pass over gradients that finds inf and NaN, the largest magnitude and the sum of squares. A
// tile is first summed as if it were finite. Multiplying and rounding are monotone, so its largest magnitude tells
// whether any element is, or becomes, inf. The sum of squares is NaN only if an element is. Only tiles that fail are
// examined element by element. Included by kernels.cpp only.
#pragma once

#include <type_traits>

#include "core/cpu/columns.h"
#include "core/cpu/convert.h"
#include "core/cpu/kernels.h"
#include "core/cpu/read_ahead.h"
#include "core/cpu/values.h"
#include "core/rules/check.h"

namespace gsc::cpu {
namespace {

/// Vectors of column sums kept in registers: as many as fit next to the maxima.
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

/// Magnitudes for the extremes of a tile: as integers where an integer maximum is fast. A vector then has twice as many
/// 16-bit elements.
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

/// Column sums of squares of whole rows; returns the largest magnitude, which may be NaN.
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
      // In turn: two loops would read the row in two bursts, which is slower from memory.
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
      nonfinite += is_nonfinite(bits, scaled, limit) ? 1 : 0;
      nans += counts_as_nan(bits, scaled) ? 1 : 0;
      const Bits finite = bits < kInfinityBits<Value, Bits> ? bits : 0;
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
  const auto scaled = static_cast<Value>(__builtin_fabs(static_cast<Value>(tile.amax) * inv_scale));
  if (!is_finite_tile(scaled, limit)) return {__builtin_nan(""), tile.amax};
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

}  // namespace
}  // namespace gsc::cpu
