// SPDX-License-Identifier: Apache-2.0
// State and masters of a batch, from their codes and back. The codes are those of core/rules/state_codes.h and split.h,
// in the fewest operations: on bytes and words where those do, and without the cases that `Special` is told of (NaN,
// inf, magnitudes near the ends of fp32). Those go block by block. Included by coded_groups.h only.
#pragma once

#include "core/cpu/coded/batch.h"

#if defined(__AVX2__)
namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

/// A slot in fp32.
struct PlainSlot {
  using Stored = float;
  using Scale = uint8_t;  ///< of code that serves all
  static constexpr int32_t kCode = GSC_FP32;
  static constexpr bool kGrouped = false;
};

/// How the codes of a batch are read and written, w the half of it. Codes are rounded stochastically. encode() takes the
/// scale of vector k as scale_of(k).
template <typename C>
struct BatchCode;

template <>
struct BatchCode<PlainSlot> {
  GSC_HD static void decode(const float *from, const uint8_t * /*scales*/, int w, FloatVector *out,
                            Special & /*special*/) {
    load_floats(from + w * kBatch / 2, out);
  }
  template <typename S>
  GSC_HD static void encode(const BatchFloats &x, const S & /*scale_of*/, const BatchDraw & /*draw*/, float *to) {
    for (int w = 0; w < 2; ++w) store_floats(to + w * kBatch / 2, x + 2 * w);
  }
};

template <>
struct BatchCode<MomentBf16> {
  GSC_HD static void decode(const uint16_t *from, const uint8_t * /*scales*/, int w, FloatVector *out,
                            Special & /*special*/) {
    unpack(WordVector{}, load_words(from, w), out);
  }
  template <typename S>
  GSC_HD static void encode(const BatchFloats &x, const S & /*scale_of*/, const BatchDraw &draw, uint16_t *to) {
    const auto most = BatchLane::value(BatchLane::all(MomentBf16::kMost));
    const auto rounded = [&](int k) { return BatchLane::bits(least(greatest(x[k], -most), most)) + draw.of_mean(k); };
    store_words(to, {upper_words(rounded(0), rounded(1)), upper_words(rounded(2), rounded(3))});
  }
};

/// The scale of vectors 2w and 2w + 1.
template <typename Scale>
GSC_HD uint32_t scale_at(const Scale *scales, int w) {
  return scales[w * kBatchGroups / 2];
}
/// The bits of 2^(s - 119) for all scales of means: E4M3 read as fp16 is 2^8 times too small. NaN where fp32 has no such
/// number.
struct MomentScales {
  uint32_t bits[256];
  constexpr MomentScales() : bits() {
    for (uint32_t s = 1; s < 256; ++s) bits[s] = s < 247 ? (s + 8U) << 23 : 0x7fc00000U;
  }
};
constexpr MomentScales kMomentScales;

/// fp16 is E4M3 with one bit more of exponent and seven of mantissa, of subnormals too.
template <>
struct BatchCode<MomentE4m3> {
  GSC_HD static void decode(const uint8_t *from, const uint8_t *scales, int w, FloatVector *out, Special &special) {
    if (w == 0) special.if_equal_bytes(load_vector<Uint32Vector>(from) | 0x80808080U, Uint32Vector{} - 1U);
    widen_fp16(load_words(reinterpret_cast<const int8_t *>(from), w) << 7 & all_words(0xbf80), out);
    const auto scale = BatchLane::value(BatchLane::all(kMomentScales.bits[scale_at(scales, w)]));
    out[0] *= scale;
    out[1] *= scale;
  }
  /// As MomentE4m3::encode, the end of it in words.
  template <typename S>
  GSC_HD static void encode(const BatchFloats &x, const S &scale_of, const BatchDraw &draw, uint8_t *to) {
    const auto rounded = [&](int k) {
      const FloatVector scaled = BatchLane::value(BatchLane::bits(x[k]) & 0x7fffffffU) *
                                 BatchLane::value(BatchLane::all((254U - scale_of(k)) << 23));
      const Int32Vector subnormal = BatchLane::as_int(BatchLane::bits(scaled + MomentE4m3::kSmallestNormal));
      const Int32Vector normal = BatchLane::as_int(BatchLane::bits(scaled)) + (1 << 23);
      return BatchLane::as_uint(larger(subnormal, normal)) + (draw.of_mean(k) << 4);
    };
    BatchWords words;
    for (int w = 0; w < 2; ++w) {
      const WordVector sign = saturated_words(BatchLane::bits(x[2 * w]), BatchLane::bits(x[2 * w + 1]));
      const WordVector code = (upper_words(rounded(2 * w), rounded(2 * w + 1)) - all_words(121 << 7)) >> 4;
      words[w] = code | (sign >> 8 & all_words(0x80));
    }
    store_words(to, words);
  }
};

/// The steps are whole words, the upper halves of base + (code << shift).
template <>
struct BatchCode<SquareLog8> {
  using C = SquareLog8;
  static_assert(C::kFinest == 16);
  GSC_HD static WordVector base_words(uint32_t scale) { return all_words(static_cast<int>((scale & 0x3ffU) << 5)); }
  GSC_HD static void decode(const uint8_t *from, const uint16_t *scales, int w, FloatVector *out, Special &special) {
    if (w == 0) special.if_equal_bytes(load_vector<Uint32Vector>(from) | 0x01010101U, Uint32Vector{} - 1U);
    const uint32_t scale = scale_at(scales, w);
    const WordVector codes = load_words(from, w);
    unpack(WordVector{}, codes == 0 ? WordVector{} : shift_left(codes, scale >> 10) + base_words(scale), out);
  }
  /// The lower halves of lanes only carry.
  template <typename S>
  GSC_HD static void encode(const BatchFloats &x, const S &scale_of, const BatchDraw &draw, uint8_t *to) {
    BatchWords words;
    for (int w = 0; w < 2; ++w) {
      const uint32_t scale = scale_of(2 * w), widening = scale >> 10;
      const Uint32Vector even = BatchLane::bits(x[2 * w]), odd = BatchLane::bits(x[2 * w + 1]);
      const WordVector sum =
          upper_words(even + shift_left(draw[2 * w], widening), odd + shift_left(draw[2 * w + 1], widening));
      const WordVector code = shift_right(positive_difference(sum, base_words(scale)), widening);
      words[w] = larger_word(code, smaller_word(saturated_words(even, odd), all_words(1)));
    }
    store_words(to, words);
  }
};

template <>
struct BatchCode<SquareE6m10> {
  using C = SquareE6m10;
  GSC_HD static void decode(const uint16_t *from, const uint8_t *scales, int w, FloatVector *out, Special &special) {
    const WordVector codes = load_words(from, w);
    special.if_equal(codes | 1, all_words(0xffff));  // NaN and inf
    const WordVector base = all_words(static_cast<int>(scale_at(scales, w) << 7));
    unpack(codes << C::kShift, codes == 0 ? WordVector{} : (codes >> (16 - C::kShift)) + base, out);
  }
  template <typename S>
  GSC_HD static void encode(const BatchFloats &x, const S &scale_of, const BatchDraw &draw, uint16_t *to) {
    BatchWords words;
    for (int w = 0; w < 2; ++w) {
      const Uint32Vector base = BatchLane::all(scale_of(2 * w) << 23);
      const auto code = [&](int k) {
        const Uint32Vector distance = BatchLane::bits(x[k]) - base;
        return BatchLane::as_int(distance + (draw[k] >> (16 - C::kShift))) >> C::kShift;
      };
      const WordVector rounded = positive_words(code(2 * w), code(2 * w + 1));
      const WordVector not_zero = saturated_words(BatchLane::bits(x[2 * w]), BatchLane::bits(x[2 * w + 1]));
      words[w] = larger_word(rounded, smaller_word(not_zero, all_words(1)));
    }
    store_words(to, words);
  }
};

/// The scales of a batch's groups in a slot of means, if Mean is MomentE4m3, and in one of squares, if Square is grouped.
template <typename Mean, typename Square>
class BatchScales {
 public:
  static constexpr bool kHasMeans = Mean::kGrouped, kHasSquares = Square::kGrouped;
  static constexpr bool kHasSmallest = std::is_same_v<Square, SquareLog8>;

  /// Whether a magnitude is for the long way: those that a scale does not reach, close to the end of fp32, inf and NaN. A
  /// square with a sign is above them. Scales are found one by one, beside the vectors of the next batch.
  GSC_HD bool find(const BatchFloats &means, const BatchFloats &squares) {
    if constexpr (!kHasMeans && !kHasSquares) return false;
    BatchLanes peaks[2]{};
    for_vectors([&](int k) {
      if constexpr (kHasMeans) peaks[0][k] = BatchLane::bits(means[k]) & 0x7fffffffU;
      if constexpr (kHasSquares) peaks[1][k] = BatchLane::bits(squares[k]);
    });
    Maxima largest, negated{};
    store_vector(largest.of, largest_of_groups(peaks[0], peaks[1]));
    if constexpr (kHasSmallest) {
      // Unsigned, the smallest is the greatest of these, and 0 the smallest of all, so that it leaves an element out.
      for_vectors([&](int k) { peaks[1][k] = 0U - peaks[1][k]; });
      store_vector(negated.of, largest_of_groups(peaks[1], peaks[1]));
    }
    bool is_special = false;
#pragma GCC unroll 2
    for (int g = 0; g < kBatchGroups; ++g) {
      if constexpr (kHasMeans) {
        const uint32_t x = largest.of[4 * g];
        mean_[g] = MomentE4m3::scale_for(x, 0);
        is_special |= x >= 253U << 23;
      }
      if constexpr (kHasSquares) {
        const int lane = 4 * (kBatchGroups + g);
        square_[g] = Square::scale_for(largest.of[lane], 0x80000000U + negated.of[lane]);
        is_special |= largest.of[lane] >= 254U << 23;
      }
    }
    return is_special;
  }
  GSC_HD uint32_t mean(int group) const { return mean_[group]; }
  GSC_HD uint32_t square(int group) const { return square_[group]; }

 private:
  struct Maxima {
    alignas(kVectorBytes) uint32_t of[kBatch / 4];
  };
  uint32_t mean_[kBatchGroups];
  uint32_t square_[kBatchGroups];
};

/// Half w of a batch of weights or gradients.
template <typename D>
GSC_HD void load_values(const typename D::Stored *from, int w, FloatVector *out) {
  if constexpr (std::is_same_v<D, Fp32>) {
    load_floats(from + w * kBatch / 2, out);
  } else if constexpr (std::is_same_v<D, Bf16>) {
    unpack(WordVector{}, load_words(from, w), out);
  } else {
    widen_fp16(load_words(from, w), out);
  }
}

/// Remainders in the upper bits of words, and back.
GSC_HD WordVector load_remainders(const int16_t *p, int w) {
  return load_words(reinterpret_cast<const uint16_t *>(p), w);
}
GSC_HD WordVector load_remainders(const int8_t *p, int w) {
  return load_words(reinterpret_cast<const uint8_t *>(p), w) << 8;
}
GSC_HD void store_remainders(int16_t *p, const BatchWords &x) { store_words(reinterpret_cast<uint16_t *>(p), x); }
GSC_HD void store_remainders(int8_t *p, const BatchWords &x) {
  store_words(reinterpret_cast<uint8_t *>(p), {x[0] >> 8, x[1] >> 8});
}

/// Masters joined as words: a remainder below 0 takes 1 from the weight.
template <typename D, typename R>
GSC_HD void load_masters(const uint16_t *weights, const R *remainders, int w, FloatVector *out) {
  const WordVector upper = load_words(weights, w);
  WordVector lower = load_remainders(remainders, w);
  lower = (upper & 0x7fff) == 0 ? larger_signed(lower, WordVector{}) : lower;
  unpack(lower, upper + as<WordVector>(as<Int16Vector>(lower) >> 15), out);
  if constexpr (std::is_same_v<D, Fp16>) {
    for (int k = 0; k < 2; ++k) {
      const Uint32Vector fixed = BatchLane::bits(out[k]);
      out[k] = BatchLane::value(Fraction<D>::template to<BatchLane>(fixed & 0x7fffffffU) | (fixed & 0x80000000U));
    }
  }
}

/// Halves 2w and 2w + 1 of weights as words and their 16 fraction bits, `add`(k) added. fp16: without inf.
template <typename D, typename F>
GSC_HD void divide_words(const BatchFloats &x, int w, const F &add, WordVector &weights, WordVector &fraction) {
  const Uint32Vector bits[2] = {BatchLane::bits(x[2 * w]), BatchLane::bits(x[2 * w + 1])};
  Uint32Vector fixed[2];
  for (int k = 0; k < 2; ++k) {
    fixed[k] = bits[k];
    if constexpr (std::is_same_v<D, Fp16>) fixed[k] = Fraction<D>::template from<BatchLane>(bits[k] & 0x7fffffffU);
    fixed[k] += add(2 * w + k);
  }
  fraction = lower_words(fixed[0], fixed[1]);
  weights = upper_words(fixed[0], fixed[1]);
  if constexpr (std::is_same_v<D, Fp16>) weights |= upper_words(bits[0], bits[1]) & all_words(0x8000);
}

template <typename D, typename R>
GSC_HD void store_masters(const BatchFloats &x, uint16_t *weights, R *remainders) {
  constexpr uint32_t kHalf = (1U << Split<D, R>::kDropped) >> 1;
  BatchWords upper, lower;
  for (int w = 0; w < 2; ++w) {
    divide_words<D>(
        x, w, [](int /*k*/) { return BatchLane::all(kHalf); }, upper[w], lower[w]);
    upper[w] += lower[w] >> 15;
  }
  store_words(weights, upper);
  store_remainders(remainders, lower);
}

/// Weights without masters, rounded stochastically.
template <typename D>
GSC_HD void store_rounded(const BatchFloats &x, const BatchDraw &draw, uint16_t *weights) {
  BatchWords upper, lower;
  for (int w = 0; w < 2; ++w)
    divide_words<D>(
        x, w, [&](int k) { return draw[k]; }, upper[w], lower[w]);
  store_words(weights, upper);
}

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
#endif
