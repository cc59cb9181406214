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
  static constexpr int32_t kCode = GSC_FP32;
  static constexpr bool kGrouped = false;
};

/// How the codes of a batch are read and written. Of a grouped code, e is the largest peak() of a group >> kPeakShift. A
/// batch is special where it exceeds kLargest. The scale is max(e - kBelow, kSmallest), and encode() takes number_of(k),
/// the number() of the scale of vector k. `draw` is NULL to round to nearest.
template <typename C>
struct BatchCode;

template <>
struct BatchCode<PlainSlot> {
  GSC_HD static void decode(const float *from, const uint8_t * /*scales*/, int w, FloatVector *out,
                            Special & /*special*/) {
    load_floats(from + w * kBatch / 2, out);
  }
  template <typename N>
  GSC_HD static void encode(const BatchFloats &x, const N & /*number_of*/, const BatchDraw * /*draw*/, float *to) {
    for (int w = 0; w < 2; ++w) store_floats(to + w * kBatch / 2, x + 2 * w);
  }
};

template <>
struct BatchCode<MomentBf16> {
  GSC_HD static void decode(const uint16_t *from, const uint8_t * /*scales*/, int w, FloatVector *out,
                            Special & /*special*/) {
    unpack(WordVector{}, load_words(from, w), out);
  }
  template <typename N>
  GSC_HD static void encode(const BatchFloats &x, const N & /*number_of*/, const BatchDraw * /*draw*/, uint16_t *to) {
    const auto most = BatchLane::value(BatchLane::all(MomentBf16::kMost));
    const auto rounded = [&](int k) { return BatchLane::bits(least(greatest(x[k], -most), most)) + kToNearest; };
    store_words(to, {upper_words(rounded(0), rounded(1)), upper_words(rounded(2), rounded(3))});
  }
};

/// What decoding takes of a scale, for all scales.
struct ScaleNumbers {
  /// The bits of 2^(s - 119): E4M3 read as fp16 is 2^8 times too small. NaN where fp32 has no such number.
  uint32_t of_moment[256];
  /// What is added to codes of squares, as the upper 9 bits of each word.
  uint32_t of_square[256];
  constexpr ScaleNumbers() : of_moment(), of_square() {
    for (uint32_t s = 0; s < 256; ++s) {
      if (s > 0) of_moment[s] = s < 247 ? (s + 8U) << 23 : 0x7fc00000U;
      of_square[s] = s << 23 | s << 7;
    }
  }
};
constexpr ScaleNumbers kScaleNumbers;

/// The scale of vectors 2w and 2w + 1.
GSC_HD int scale_of(const uint8_t *scales, int w) { return scales[w * kBatchGroups / 2]; }

/// fp16 is E4M3 with one bit more of exponent and seven of mantissa, of subnormals too.
template <>
struct BatchCode<MomentE4m3> {
  static constexpr uint32_t kPeakShift = 24, kLargest = 252, kBelow = 7, kSmallest = 1;
  GSC_HD static Uint32Vector peak(FloatVector x) { return BatchLane::bits(x) << 1; }
  /// The bits of 2^(119 - s), by which a magnitude becomes one of fp16.
  GSC_HD static Uint32Vector number(Uint32Vector scale) { return (246U - scale) << 23; }

  GSC_HD static void decode(const uint8_t *from, const uint8_t *scales, int w, FloatVector *out, Special &special) {
    if (w == 0) special.if_equal_bytes(load_vector<Uint32Vector>(from) | 0x80808080U, Uint32Vector{} - 1U);
    widen_fp16(load_words(reinterpret_cast<const int8_t *>(from), w) << 7 & all_words(0xbf80), out);
    const auto scale = BatchLane::value(BatchLane::all(kScaleNumbers.of_moment[scale_of(scales, w)]));
    out[0] *= scale;
    out[1] *= scale;
  }
  template <typename N>
  GSC_HD static void encode(const BatchFloats &x, const N &number_of, const BatchDraw *draw, uint8_t *to) {
    if (draw != nullptr) return encode_stochastically(x, number_of, draw->exchanged(), to);
    const auto scaled = [&](int k) { return x[k] * BatchLane::value(number_of(k)); };
    BatchWords half;
    BatchWords magnitude;
    for (int w = 0; w < 2; ++w) {
      half[w] = narrow_down(scaled(2 * w), scaled(2 * w + 1));
      magnitude[w] = (half[w] + all_words(0x40)) << 1 >> 8;
    }
    store_narrowed(to, magnitude, half);
  }

 private:
  template <typename N>
  GSC_HD static void encode_stochastically(const BatchFloats &x, const N &number_of, const BatchDraw &draw,
                                           uint8_t *to) {
    const auto code = [&](int k) { return MomentE4m3::encode<BatchLane>(x[k], 246U - (number_of(k) >> 23), draw[k]); };
    store_words(to, {lower_words(code(0), code(1)), lower_words(code(2), code(3))});
  }
};

/// Of magnitudes: a number with a sign exceeds kLargest.
template <uint32_t Below>
struct BatchSquare {
  /// From 2^127 on, rounding up could take a number beyond the largest.
  static constexpr uint32_t kPeakShift = 23, kLargest = 253, kBelow = Below, kSmallest = 0;
  GSC_HD static Uint32Vector peak(FloatVector x) { return BatchLane::bits(x); }
};

template <>
struct BatchCode<SquareE5m11> : BatchSquare<30> {
  /// What rounding to nearest adds is part of it.
  GSC_HD static Uint32Vector number(Uint32Vector scale) { return (scale << 23) - (kToNearest >> 4); }
  GSC_HD static void decode(const uint16_t *from, const uint8_t *scales, int w, FloatVector *out, Special &special) {
    const WordVector codes = load_words(from, w);
    special.if_equal(codes | 1, all_words(0xffff));  // NaN and inf
    const auto scale = as<WordVector>(BatchLane::all(kScaleNumbers.of_square[scale_of(scales, w)]));
    unpack(codes << 12, codes == 0 ? WordVector{} : (codes >> 4) + scale, out);
  }
  template <typename N>
  GSC_HD static void encode(const BatchFloats &x, const N &number_of, const BatchDraw * /*draw*/, uint16_t *to) {
    BatchWords words;
    for (int w = 0; w < 2; ++w) {
      const Uint32Vector even = BatchLane::bits(x[2 * w]), odd = BatchLane::bits(x[2 * w + 1]);
      const auto code = [&](Uint32Vector bits) { return BatchLane::as_int(bits - number_of(2 * w)) >> 12; };
      const WordVector rounded = positive_words(code(even), code(odd));
      words[w] = larger_word(rounded, smaller_word(words_not_zero(even, odd), all_words(1)));
    }
    store_words(to, words);
  }
};

/// The lower halves of lanes only carry.
template <>
struct BatchCode<SquareE4m4> : BatchSquare<14> {
  GSC_HD static Uint32Vector number(Uint32Vector scale) { return scale << 23 | scale << 7; }
  GSC_HD static void decode(const uint8_t *from, const uint8_t *scales, int w, FloatVector *out, Special &special) {
    if (w == 0) special.if_equal_bytes(load_vector<Uint32Vector>(from) | 0x01010101U, Uint32Vector{} - 1U);
    const WordVector codes = load_words(from, w);
    const auto scale = as<WordVector>(BatchLane::all(kScaleNumbers.of_square[scale_of(scales, w)]));
    unpack(WordVector{}, codes == 0 ? WordVector{} : (codes << 3) + scale, out);
  }
  /// Stochastically only.
  template <typename N>
  GSC_HD static void encode(const BatchFloats &x, const N &number_of, const BatchDraw *draw, uint8_t *to) {
    BatchWords words;
    for (int w = 0; w < 2; ++w) {
      const Uint32Vector even = BatchLane::bits(x[2 * w]), odd = BatchLane::bits(x[2 * w + 1]);
      const WordVector sum = upper_words(even + ((*draw)[2 * w] << 3), odd + ((*draw)[2 * w + 1] << 3));
      const WordVector code = positive_difference(sum, as<WordVector>(number_of(2 * w))) >> 3;
      words[w] = larger_word(code, smaller_word(words_not_zero(even, odd), all_words(1)));
    }
    store_words(to, words);
  }
};

/// The scales of a batch's groups in two slots of codes A and B, which may be one slot. A's groups come first.
template <typename A, typename B>
class BatchScales {
 public:
  GSC_HD void find(const BatchFloats &a, const BatchFloats &b, Special &special) {
    BatchLanes peaks[2];
    for_vectors([&](int k) {
      peaks[0][k] = BatchCode<A>::peak(a[k]);
      peaks[1][k] = BatchCode<B>::peak(b[k]);
    });
    const Uint32Vector e = largest_of_groups(peaks[0], peaks[1]) >> load_vector<Uint32Vector>(kRows.shift);
    special.if_greater(BatchLane::as_int(e), load_vector<Int32Vector>(kRows.largest));
    const Int32Vector scale =
        larger(BatchLane::as_int(e - load_vector<Uint32Vector>(kRows.below)), load_vector<Int32Vector>(kRows.smallest));
    store_vector(scale_, scale);
    store_vector(number_[0], BatchCode<A>::number(BatchLane::as_uint(scale)));
    store_vector(number_[1], BatchCode<B>::number(BatchLane::as_uint(scale)));
  }
  /// Slot: 0 for A, 1 for B.
  template <int Slot>
  GSC_HD Uint32Vector number(int k) const {
    return BatchLane::all(number_[Slot][lane(Slot, k * kBatchGroups / kBatchVectors)]);
  }
  template <int Slot>
  GSC_HD void store(uint8_t *scales) const {
    for (int g = 0; g < kBatchGroups; ++g) scales[g] = static_cast<uint8_t>(scale_[lane(Slot, g)]);
  }

 private:
  static constexpr int kLanes = kBatch / 4;
  GSC_HD static constexpr int lane(int slot, int group) { return (slot * kBatchGroups + group) * 4; }
  struct Rows {
    uint32_t shift[kLanes], largest[kLanes], below[kLanes], smallest[kLanes];
    constexpr Rows() : shift(), largest(), below(), smallest() {
      for (int i = 0; i < kLanes; ++i) {
        const bool is_a = i < kLanes / 2;
        shift[i] = is_a ? BatchCode<A>::kPeakShift : BatchCode<B>::kPeakShift;
        largest[i] = is_a ? BatchCode<A>::kLargest : BatchCode<B>::kLargest;
        below[i] = is_a ? BatchCode<A>::kBelow : BatchCode<B>::kBelow;
        smallest[i] = is_a ? BatchCode<A>::kSmallest : BatchCode<B>::kSmallest;
      }
    }
  };
  alignas(kVectorBytes) static constexpr Rows kRows{};

  alignas(kVectorBytes) uint32_t scale_[kLanes];
  alignas(kVectorBytes) uint32_t number_[2][kLanes];
};
/// Of slots without groups.
struct NoScales {
  GSC_HD void find(const BatchFloats & /*a*/, const BatchFloats & /*b*/, Special & /*special*/) {}
  template <int Slot>
  GSC_HD Uint32Vector number(int /*k*/) const {
    return Uint32Vector{};
  }
  template <int Slot>
  GSC_HD void store(uint8_t * /*to*/) const {}
};

template <typename D>
GSC_HD void load_halves(const uint16_t *from, int w, FloatVector *out) {
  const WordVector words = load_words(from, w);
  if constexpr (std::is_same_v<D, Bf16>) return unpack(WordVector{}, words, out);
  widen_fp16(words, out);
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
