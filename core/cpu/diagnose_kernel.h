// SPDX-License-Identifier: Apache-2.0
// diagnose: statistics of one tensor, tile by tile. A tile is first summed as if all its elements were finite and
// normal. The sum, the largest and the smallest magnitude tell whether they are. Only tiles with zeros, subnormals, inf
// or NaN are counted element by element. Included by kernels.cpp only.
#pragma once

#include "core/cpu/check_kernel.h"
#include "core/cpu/columns.h"
#include "core/cpu/convert.h"
#include "core/cpu/kernels.h"
#include "core/rules/diagnose.h"

namespace gsc::cpu {
namespace {

/// Of a tile: the sum of the squares of its finite elements, and the extremes of their magnitudes other than 0.
template <typename Value>
struct TileView {
  double sum_sq = 0.0;
  Value largest = 0;  ///< 0: there are none
  Value smallest = static_cast<Value>(__builtin_inf());
};

/// The next elements as vectors of double, whose signs do not matter.
template <typename D>
struct Doubles {
  static constexpr int kParts = is_wide(D::kCode) ? 1 : 2;
  GSC_HD static void load(const typename D::Stored *p, DoubleVector (&out)[kParts]) {
    const auto value = Magnitudes<D>::load(p);
    if constexpr (kParts == 1) {
      out[0] = value;
    } else {
      out[0] = half_of<0>(value);
      out[1] = half_of<1>(value);
    }
  }
};

#if defined(__AVX2__)
/// From half a vector, which is faster than splitting a whole one.
template <typename D>
struct DoublesOfHalves {
  static constexpr int kParts = 2;
  GSC_HD static void load(const typename D::Stored *p, DoubleVector (&out)[kParts]) {
    out[0] = widen_to_doubles(p, D{});
    out[1] = widen_to_doubles(p + sizeof(DoubleVector) / sizeof(double), D{});
  }
};
template <>
struct Doubles<Fp16> : DoublesOfHalves<Fp16> {};
template <>
struct Doubles<Bf16> : DoublesOfHalves<Bf16> {};
template <>
struct Doubles<Fp32> : DoublesOfHalves<Fp32> {};
#endif

/// sum + x * x in double. The squares of narrower types are exact there, so that fusing changes nothing.
template <typename Value>
GSC_HD DoubleVector add_square(DoubleVector sum, DoubleVector x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(Value) < sizeof(double)) return _mm512_fmadd_pd(x, x, sum);
#elif defined(__FMA__)
  if constexpr (sizeof(Value) < sizeof(double)) return _mm256_fmadd_pd(x, x, sum);
#endif
  return sum + x * x;
}

/// Sums a tile of n elements in the order of reduction.h, with columns in double. Elements that are not finite count as
/// 0 if kMasked, else they make the sum inf or NaN and the extremes meaningless. The last row is padded with zeros.
template <typename D, bool kMasked, ReadAhead A>
TileView<typename D::Value> sum_tile_in_double(const typename D::Stored *x, int n, Ahead<A> ahead) {
  using Value = typename D::Value;
  using Order = Ordered<D>;
  constexpr int kColumns = Shape<D>::kColumns;
  constexpr int kParts = Doubles<D>::kParts;
  constexpr int kDoubles = sizeof(DoubleVector) / sizeof(double);
  constexpr int kOrdered = kVectorBytes / static_cast<int>(sizeof(typename Order::Vector{}[0]));
  constexpr int kWidth = kColumns < kStrip * kDoubles ? kColumns : kStrip * kDoubles;  // of a strip of columns
  const int whole = n / kColumns;
  const int rest = n - whole * kColumns;
  typename D::Stored last[kColumns];
  if (rest > 0) {
    std::memcpy(last, x + whole * kColumns, rest * sizeof *x);
    std::memset(last + rest, 0, (kColumns - rest) * sizeof *x);
  }
  double columns[kColumns];
  // Two of each, to break the dependency chain.
  typename Order::Vector largest[2]{};
  typename Order::Vector smallest[2];
  smallest[0] = smallest[1] = broadcast<typename Order::Vector>(Order::infinity());
  for (int strip = 0; strip < kColumns; strip += kWidth) {
    DoubleVector sums[kWidth / kDoubles]{};
    for (int row = 0; row < whole + (rest > 0 ? 1 : 0); ++row) {
      const auto *p = (row < whole ? x + row * kColumns : last) + strip;
      constexpr int kBytes = kWidth * static_cast<int>(sizeof *x);
      if (row < whole) ahead.template fetch<kBytes>((strip / kWidth * kRows + row) * kBytes);
#pragma GCC unroll 16
      for (int k = 0; k < kWidth; k += kOrdered) {
        const auto value = Order::load(p + k);
        const int chain = k / kOrdered % 2;
        largest[chain] = larger(value, largest[chain]);
        smallest[chain] = smaller(value, smallest[chain]);
      }
#pragma GCC unroll 16
      for (int k = 0; k < kWidth / kDoubles; k += kParts) {
        DoubleVector values[kParts];
        Doubles<D>::load(p + k * kDoubles, values);
        for (int h = 0; h < kParts; ++h) {
          if constexpr (kMasked) values[h] = values[h] - values[h] == 0.0 ? values[h] : DoubleVector{};
          sums[k + h] = add_square<Value>(sums[k + h], values[h]);
        }
      }
    }
#pragma GCC unroll 16
    for (int k = 0; k < kWidth / kDoubles; ++k) store_vector(columns + strip + k * kDoubles, sums[k]);
  }
  const auto largest_lanes = larger(largest[0], largest[1]);
  const auto smallest_lanes = smaller(smallest[0], smallest[1]);
  TileView<Value> tile;
  for (int k = 0; k < kOrdered; ++k) {
    const Value high = Order::value(largest_lanes[k]);
    const Value low = Order::value(smallest_lanes[k]);
    tile.largest = high > tile.largest ? high : tile.largest;
    tile.smallest = low < tile.smallest ? low : tile.smallest;
  }
  tile.sum_sq = fold_columns<Shape<D>::kWidth>(columns, min_int(n, kColumns));
  return tile;
}

/// Counts the zeros, subnormals, inf and NaN of n elements, which begin at `offset` of the span. Returns the extremes.
template <typename D>
TileView<typename D::Value> count_kinds(const typename D::Stored *x, int n, int64_t offset, ChunkDiagnosis *out) {
  using Word = typename Words<D>::Word;
  using Vector = typename Words<D>::Vector;
  constexpr int kLanes = sizeof(Vector) / sizeof(Word);
  const Word inf = Words<D>::of(__builtin_inf());
  const Word normal = Words<D>::of(D::kSmallestNormal);
  Vector infs{};
  Vector nans{};
  Vector zeros{};
  Vector small{};
  Vector largest{};
  Vector smallest = broadcast<Vector>(inf);  // less 1, which makes zeros large
  const auto count = [&](const void *p) {
    const Vector word = load_vector<Vector>(p) & Words<D>::kMagnitude;
    infs -= word == inf;
    nans -= word > inf;
    zeros -= word == 0;
    small -= word < normal;
    const Vector high = word < inf ? word : Vector{};
    const Vector low = (word - 1) & Words<D>::kMagnitude;
    largest = high > largest ? high : largest;
    smallest = low < smallest ? low : smallest;
  };
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) count(x + i);
  if (i < n) {
    Vector padded = broadcast<Vector>(Words<D>::kMagnitude);  // with NaN, to be subtracted
    std::memcpy(&padded, x + i, (n - i) * sizeof *x);
    count(&padded);
    out->nan_count -= kLanes - (n - i);
  }
  int64_t nonfinite = n % kLanes == 0 ? 0 : n % kLanes - kLanes;
  Word high = 0;
  Word low = inf;
  for (int k = 0; k < kLanes; ++k) {
    out->inf_count += infs[k];
    out->nan_count += nans[k];
    nonfinite += infs[k] + nans[k];
    out->zero_count += zeros[k];
    out->subnormal_count += small[k] - zeros[k];
    high = largest[k] > high ? largest[k] : high;
    low = smallest[k] < low ? smallest[k] : low;
  }
  if (out->first_nonfinite < 0 && nonfinite > 0) {
    int k = 0;
    while ((__builtin_bit_cast(Word, x[k]) & Words<D>::kMagnitude) < inf) ++k;
    out->first_nonfinite = offset + k;
  }
  TileView<typename D::Value> tile;
  if (high > 0) tile = {0.0, Words<D>::value(high), Words<D>::value(static_cast<Word>(low + 1))};
  return tile;
}

// --- exponents -------------------------------------------------------------------------------------------------------

constexpr int kByteVector = kVectorBytes < 32 ? kVectorBytes : 32;
using Bytes [[gnu::vector_size(kByteVector)]] = uint8_t;

/// Below this many different exponents, comparing with each of them is faster than incrementing counters (measured).
constexpr int kFewExponents = kVectorBytes < 32 ? 16 : 48;

/// Compares the exponent fields of n elements, a byte each, with every field of [low, high]: add(field, how many).
template <typename F>
void count_equal(const uint8_t *fields, int n, int low, int high, const F &add) {
  constexpr int kTogether = 4;
  constexpr int kSegment = 128 * kByteVector;  // so that counters of a byte do not overflow
  for (int begin = 0; begin < n; begin += kSegment) {
    const int end = min_int(n, begin + kSegment);
    for (int field = low; field <= high; field += kTogether) {
      Bytes counts[kTogether]{};
      Bytes wanted[kTogether];
      for (int k = 0; k < kTogether; ++k) wanted[k] = broadcast<Bytes>(static_cast<uint8_t>(field + k));
      for (int i = begin; i < end; i += kByteVector) {
        const auto found = load_vector<Bytes>(fields + i);
#pragma GCC unroll 4
        for (int k = 0; k < kTogether; ++k) counts[k] -= reinterpret_cast<Bytes>(found == wanted[k]);
      }
      for (int k = 0; k < kTogether && field + k <= high; ++k) {
        uint8_t lanes[kByteVector];
        store_vector(lanes, counts[k]);
        int sum = 0;
        for (const uint8_t lane : lanes) sum += lane;
        add(field + k, sum);
      }
    }
  }
}

/// Exponents of any range, counted one by one in four histograms in turn: equal neighbours would wait for each other.
template <typename D>
void count_each(const typename D::Stored *x, int n, int64_t *histogram) {
  constexpr int kNone = GSC_EXPONENT_BINS;
  uint32_t counts[4][GSC_EXPONENT_BINS + 1] = {};
  for (int i = 0; i < n; i += kBlock) {
    const int count = min_int(n - i, kBlock);
    double values[kBlock];
    uint16_t bins[kBlock + 3];
    load_block(D::kCode, x + i, values, count);
    for (int k = 0; k < count; ++k) {
      const double magnitude = __builtin_fabs(values[k]);
      const int bin = exponent_bin(to_bits(magnitude));
      bins[k] = static_cast<uint16_t>(magnitude > 0.0 && magnitude < __builtin_inf() ? bin : kNone);
    }
    for (int k = count; k < count + 3; ++k) bins[k] = kNone;
    for (int k = 0; k < count; k += 4) {
      for (int h = 0; h < 4; ++h) ++counts[h][bins[k + h]];
    }
  }
  for (int b = 0; b < GSC_EXPONENT_BINS; ++b) {
    histogram[b] += counts[0][b] + counts[1][b] + counts[2][b] + counts[3][b];
  }
}

/// Whether subnormals of D are normal numbers in fp32.
template <typename D>
constexpr bool kNormalInFloat =
    sizeof(typename D::Stored)<sizeof(float) && D::kSmallestExponent> Fp32::kSmallestExponent + 23;

/// Counts the exponents of a tile.
template <typename D>
void count_exponents(const typename D::Stored *x, int n, const TileView<typename D::Value> &tile, int64_t *histogram) {
  using Word = typename Words<D>::Word;
  constexpr int kNormalExponent = static_cast<int>(__builtin_bit_cast(int64_t, D::kSmallestNormal) >> 52) - 1023;
  constexpr int kMantissaBits = kNormalExponent - D::kSmallestExponent;
  if (tile.largest == 0) return;
  const auto field_of = [](typename D::Value magnitude) {
    return static_cast<int>(Words<D>::of(static_cast<double>(magnitude)) >> kMantissaBits);
  };
  const int low = field_of(tile.smallest);
  const int high = field_of(tile.largest);
  if constexpr (kNormalInFloat<D>) {
    if (low == 0) {
      constexpr int kPart = Shape<Fp32>::kTile;
      float values[kPart];
      for (int i = 0; i < n; i += kPart) {
        const int part = min_int(n - i, kPart);
        for (int k = 0; k < part; k += kBlock) load_block(D::kCode, x + i + k, values + k, min_int(part - k, kBlock));
        count_exponents<Fp32>(values, part, {0.0, tile.largest, tile.smallest}, histogram);
      }
      return;
    }
  }
  // Field 0 has subnormals, of several exponents.
  if (low == 0 || high - low >= kFewExponents) return count_each<D>(x, n, histogram);
  constexpr int kTile = Shape<D>::kTile;
  uint8_t fields[(kTile + kByteVector - 1) / kByteVector * kByteVector];
  // Fields of fp64 do not fit into a byte.
  constexpr bool kWide = sizeof(Word) == 8;
  const int base = kWide ? low : 0;
  for (int k = 0; k < n; ++k) {
    const auto field = static_cast<Word>((__builtin_bit_cast(Word, x[k]) & Words<D>::kMagnitude) >> kMantissaBits);
    fields[k] = static_cast<uint8_t>(!kWide ? field : (field - base < 0 || field - base > 255 ? 255 : field - base));
  }
  const int padded = (n + kByteVector - 1) / kByteVector * kByteVector;
  std::memset(fields + n, 255, padded - n);
  count_equal(fields, padded, low - base, high - base, [&](int field, int count) {
    const auto bin = field + base - 1 + kNormalExponent - GSC_EXPONENT_MIN;
    histogram[bin < 0 ? 0 : (bin < GSC_EXPONENT_BINS ? bin : GSC_EXPONENT_BINS - 1)] += count;
  });
}

template <typename D, ReadAhead A>
void diagnose_span(const typename D::Stored *x, int64_t count, int64_t *histogram, ChunkDiagnosis *out) {
  using Value = typename D::Value;
  *out = ChunkDiagnosis{0, 0, 0, 0, -1, 0.0, 0.0, 0.0};
  TileView<Value> all;
  for (int64_t i = 0; i < count; i += Shape<D>::kTile) {
    const int n = min_int(count - i, Shape<D>::kTile);
    TileView<Value> tile = sum_tile_in_double<D, false>(x + i, n, Ahead<A>::of(x + i));
    const bool finite = tile.sum_sq < __builtin_inf();
    if (!finite || tile.smallest < static_cast<Value>(D::kSmallestNormal)) {
      constexpr Ahead<ReadAhead::kNone> kInCache{nullptr};
      const double sum_sq = finite ? tile.sum_sq : sum_tile_in_double<D, true>(x + i, n, kInCache).sum_sq;
      tile = count_kinds<D>(x + i, n, i, out);
      tile.sum_sq = sum_sq;
    }
    all.sum_sq += tile.sum_sq;
    all.largest = tile.largest > all.largest ? tile.largest : all.largest;
    all.smallest = tile.smallest < all.smallest ? tile.smallest : all.smallest;
    if (histogram != nullptr) count_exponents<D>(x + i, n, tile, histogram);
  }
  out->sum_sq = all.sum_sq;
  out->amax = static_cast<double>(all.largest);
  out->amin = all.largest > 0 ? static_cast<double>(all.smallest) : 0.0;
}

void diagnose(int32_t dtype, const void *data, int64_t n, ReadAhead ahead, int64_t *histogram, ChunkDiagnosis *out) {
  with_read_ahead(ahead, n * dtype_bytes(dtype), [&](auto a) {
    with_dtype(dtype, [&](auto d) {
      using D = decltype(d);
      diagnose_span<D, a()>(static_cast<const typename D::Stored *>(data), n, histogram, out);
    });
  });
}

}  // namespace
}  // namespace gsc::cpu
