// SPDX-License-Identifier: Apache-2.0
// The optimizer step over batches of coded state in registers, from the codes and gradients to the new codes and
// weights. It serves the formulas and formats named in update_in_batches; others go block by block (coded_cursor.h). So
// does a batch with NaN, inf, or magnitudes near the ends of fp32, which the short forms of the codes here get wrong:
// nothing is stored before that is known. Included by apply_kernel.h only.
#pragma once

#include "core/cpu/batch.h"

namespace gsc::cpu {
namespace {

/// The formulas of large models: each adds 50 KB to the library.
template <typename F>
constexpr bool kUpdatesInBatches = kVectorBytes >= 32 &&
                                   (std::is_same_v<F, optim::Adam> || std::is_same_v<F, optim::AdamW> ||
                                    std::is_same_v<F, optim::Lion> || std::is_same_v<F, optim::SgdMomentum<false>>);

#if defined(__AVX2__)
/// A slot in fp32.
struct PlainSlot {
  using Stored = float;
  static constexpr int32_t kCode = GSC_FP32;
  static constexpr bool kGrouped = false;
};

/// The codes of a format's slots.
struct Format32 {
  using Moment = PlainSlot;
  using Square = PlainSlot;
  static constexpr bool kDraws = false;
};
struct Format16 {
  using Moment = MomentBf16;
  using Square = SquareE5m11;
  static constexpr bool kDraws = false;  ///< rounded to nearest: with larger betas go block by block
};
struct Format8 {
  using Moment = MomentE4m3;
  using Square = SquareE4m4;
  static constexpr bool kDraws = true;  ///< for means of squares always, for means of gradients with larger betas
};

/// Without a remainder: the weights are rounded stochastically.
struct NoRemainder {};

/// f(constant slot) for the slots of a formula.
template <typename Formula, typename F>
GSC_HD void for_slots(const F &f) {
  if constexpr (Formula::kStates > 0) f(std::integral_constant<int, 0>{});
  if constexpr (Formula::kStates > 1) f(std::integral_constant<int, 1>{});
  static_assert(Formula::kStates <= 2);
}

template <typename Formula, typename Format, int K>
using CodeOf = std::conditional_t<Formula::kKind.slots[K].holds == Slot::kMoment, typename Format::Moment,
                                  typename Format::Square>;

/// The bits of 2^(s - 119) for a scale s, by which E4M3 codes read as fp16 are multiplied: those are 2^8 times too small.
/// NaN where fp32 has no such number.
struct E4m3Factors {
  uint32_t of[256];
  constexpr E4m3Factors() : of() {
    for (uint32_t s = 1; s < 256; ++s) of[s] = s < 247 ? (s + 8U) << 23 : 0x7fc00000U;
  }
};
constexpr E4m3Factors kE4m3Factors;

/// How codes of a batch are read and written. `peak` is what the scale of a group comes from: e is (peak >> kPeakShift);
/// it must not exceed kLargest, and the scale is max(e - kBelow, kSmallest). `number` is
/// what encode takes of a scale, number_of(k) for vector k.
template <typename C>
struct BatchCode;

template <>
struct BatchCode<PlainSlot> {
  GSC_HD static void decode(const float *from, const uint8_t * /*scales*/, Floats &out, Special & /*special*/) {
    load_floats(from, out);
    load_floats(from + kBatch / 2, out + 2);
  }
  template <typename N>
  GSC_HD static void encode(const Floats &x, const N & /*number_of*/, float *to) {
    store_floats(to, x);
    store_floats(to + kBatch / 2, x + 2);
  }
};

template <>
struct BatchCode<MomentBf16> {
  GSC_HD static void decode(const uint16_t *from, const uint8_t * /*scales*/, Floats &out, Special & /*special*/) {
    Words words;
    Lane32s bits;
    load_words(from, words);
    unpack({}, words, bits);
    for_vectors([&](int k) { out[k] = Lanes::value(bits[k]); });
  }
  template <typename N>
  GSC_HD static void encode(const Floats &x, const N & /*number_of*/, uint16_t *to) {
    Words words;
    for (int w = 0; w < 2; ++w) {
      words[w] = upper_words(Lanes::bits(x[2 * w]) + kToNearest, Lanes::bits(x[2 * w + 1]) + kToNearest);
    }
    store_words(to, words);
  }
};

template <>
struct BatchCode<MomentE4m3> {
  static constexpr uint32_t kPeakShift = 24, kLargest = 252, kBelow = 7, kSmallest = 1;
  GSC_HD static Uint32Vector peak(FloatVector x) { return Lanes::bits(x) << 1; }
  /// The bits of 2^(119 - s), by which a magnitude becomes one of fp16.
  GSC_HD static Uint32Vector number(Uint32Vector scale) { return (246U - scale) << 23; }

  GSC_HD static void decode(const uint8_t *from, const uint8_t *scales, Floats &out, Special &special) {
    special.if_equal_bytes(load_vector<Uint32Vector>(from) | 0x80808080U, Uint32Vector{} - 1U);
    Words words;
    load_words(reinterpret_cast<const int8_t *>(from), words);
    for (int w = 0; w < 2; ++w) widen_fp16(words[w] << 7 & all_words(0xbf80), out + 2 * w);
    for_vectors([&](int k) {
      out[k] *= Lanes::value(Lanes::all(kE4m3Factors.of[scales[k * kBatchGroups / kBatchVectors]]));
    });
  }
  /// To nearest: fp16 has seven bits more, of which the first is added to what it cuts off.
  template <typename N>
  GSC_HD static void encode(const Floats &x, const N &number_of, uint8_t *to) {
    Words words;
    for (int w = 0; w < 2; ++w) {
      const auto scaled = [&](int k) { return x[k] * Lanes::value(number_of(k)); };
      const WordVector half = narrow_down(scaled(2 * w), scaled(2 * w + 1));
      const WordVector rounded = half + all_words(0x40);
      words[w] = chosen(all_words(0x8000), half, rounded + rounded) >> 8;
    }
    store_narrowed(to, words);
  }
  template <typename N>
  GSC_HD static void encode(const Floats &x, const N &number_of, const BatchDraw &draw,
                            uint8_t *to) {
    const BatchDraw exchanged = draw.exchanged();
    const auto code = [&](int k) {
      const Uint32Vector scale = 246U - (number_of(k) >> 23);
      return MomentE4m3::encode<Lanes>(x[k], scale, exchanged[k]);
    };
    const Words words = {lower_words(code(0), code(1)), lower_words(code(2), code(3))};
    store_words(to, words);
  }
};

/// Of numbers that are not negative: a negative one is above kLargest.
template <int32_t Below>
struct BatchSquare {
  static constexpr uint32_t kPeakShift = 23, kLargest = 254, kBelow = Below, kSmallest = 0;
  GSC_HD static Uint32Vector peak(FloatVector x) { return Lanes::bits(x); }
};

template <>
struct BatchCode<SquareE5m11> : BatchSquare<30> {
  GSC_HD static Uint32Vector number(Uint32Vector scale) { return scale << 23; }
  GSC_HD static void decode(const uint16_t *from, const uint8_t *scales, Floats &out, Special &special) {
    Words words;
    Lane32s codes;
    load_words(from, words);
    for (const WordVector &w : words) special.if_equal(w, all_words(0xffff));
    unpack({}, words, codes);
    for_vectors([&](int k) {
      const Uint32Vector scale = Lanes::all(static_cast<uint32_t>(scales[k * kBatchGroups / kBatchVectors]) << 23);
      out[k] = Lanes::value(codes[k] == 0U ? Uint32Vector{} : (codes[k] >> 4) + scale);
    });
  }
  template <typename N>
  GSC_HD static void encode(const Floats &x, const N &number_of, uint16_t *to) {
    const auto code = [&](int k) {
      const Uint32Vector bits = Lanes::bits(x[k]);
      const auto above = as<Int32Vector>(bits + (kToNearest >> 4) - number_of(k));
      const Uint32Vector rounded = as<Uint32Vector>(larger(above, Int32Vector{})) >> 12;
      return larger_lane(rounded, smaller_lane(bits, Lanes::all(1)));
    };
    const Words words = {lower_words(code(0), code(1)), lower_words(code(2), code(3))};
    store_words(to, words);
  }
};

template <>
struct BatchCode<SquareE4m4> : BatchSquare<14> {
  GSC_HD static Uint32Vector number(Uint32Vector scale) { return scale << 23 | scale << 7; }
  GSC_HD static void decode(const uint8_t *from, const uint8_t *scales, Floats &out, Special &special) {
    special.if_equal_bytes(load_vector<Uint32Vector>(from), Uint32Vector{} - 1U);
    Words words;
    load_words(from, words);
    for (int w = 0; w < 2; ++w) {
      const WordVector scale = all_words(scales[w * kBatchGroups / 2] << 7);
      words[w] = words[w] == 0 ? WordVector{} : (words[w] << 3) + scale;
    }
    Lane32s bits;
    unpack({}, words, bits);
    for_vectors([&](int k) { out[k] = Lanes::value(bits[k]); });
  }
  template <typename N>
  GSC_HD static void encode(const Floats &x, const N &number_of, const BatchDraw &draw,
                            uint8_t *to) {
    Words words;
    for (int w = 0; w < 2; ++w) {
      const Uint32Vector even = Lanes::bits(x[2 * w]), odd = Lanes::bits(x[2 * w + 1]);
      const WordVector sum = upper_words(even + (draw[2 * w] << 3), odd + (draw[2 * w + 1] << 3));
      const WordVector code = positive_difference(sum, as<WordVector>(number_of(2 * w))) >> 3;
      words[w] = larger_word(code, smaller_word(words_not_zero(even, odd), all_words(1)));
    }
    store_words(to, words);
  }
};

template <typename D>
GSC_HD void load_halves(const uint16_t *from, Floats &out) {
  Words words;
  load_words(from, words);
  if constexpr (std::is_same_v<D, Bf16>) {
    Lane32s bits;
    unpack({}, words, bits);
    for_vectors([&](int k) { out[k] = Lanes::value(bits[k]); });
  } else {
    for (int w = 0; w < 2; ++w) widen_fp16(words[w], out + 2 * w);
  }
}

/// Remainders as 16-bit numbers, and back.
GSC_HD void load_remainders(const int16_t *p, Words &out) { load_words(reinterpret_cast<const uint16_t *>(p), out); }
GSC_HD void load_remainders(const int8_t *p, Words &out) {
  load_words(reinterpret_cast<const uint8_t *>(p), out);
  for (WordVector &words : out) words <<= 8;
}
GSC_HD void store_remainders(int16_t *p, const Words &x) { store_words(reinterpret_cast<uint16_t *>(p), x); }
GSC_HD void store_remainders(int8_t *p, const Words &x) {
  store_words(reinterpret_cast<uint8_t *>(p), {x[0] >> 8, x[1] >> 8});
}

/// Weights of a batch with their remainders. For bf16 the two are added by halves, as words; see Split.
template <typename D, typename R>
GSC_HD void load_masters(const uint16_t *weights, const R *remainders, Floats &out) {
  Words upper, lower;
  Lane32s bits;
  load_words(weights, upper);
  load_remainders(remainders, lower);
  if constexpr (std::is_same_v<D, Bf16>) {
    for (int w = 0; w < 2; ++w) {
      lower[w] = (upper[w] & 0x7fff) == 0 ? larger_signed(lower[w], WordVector{}) : lower[w];
      upper[w] += as<WordVector>(as<Int16Vector>(lower[w]) >> 15);
    }
    unpack(lower, upper, bits);
    for_vectors([&](int k) { out[k] = Lanes::value(bits[k]); });
  } else {
    constexpr int kShift = 32 - 8 * static_cast<int>(sizeof(R));
    Lane32s signed_remainders;
    unpack(upper, {}, bits);
    unpack({}, lower, signed_remainders);
    for_vectors([&](int k) {
      out[k] = Split<D, R>::template join<Lanes>(bits[k], as<Int32Vector>(signed_remainders[k]) >> kShift);
    });
  }
}

template <typename D, typename R>
GSC_HD void store_masters(const Floats &x, uint16_t *weights, R *remainders) {
  Words upper, lower;
  for (int w = 0; w < 2; ++w) {
    if constexpr (std::is_same_v<D, Bf16>) {
      constexpr uint32_t kHalf = (1U << Split<D, R>::kDropped) >> 1;
      const Uint32Vector even = Lanes::bits(x[2 * w]) + kHalf, odd = Lanes::bits(x[2 * w + 1]) + kHalf;
      lower[w] = lower_words(even, odd);
      upper[w] = upper_words(even, odd) + (lower[w] >> 15);
    } else {
      const auto even = Split<D, R>::template divide<Lanes>(x[2 * w]);
      const auto odd = Split<D, R>::template divide<Lanes>(x[2 * w + 1]);
      upper[w] = lower_words(even.weight, odd.weight);
      lower[w] = lower_words(even.remainder << Split<D, R>::kDropped, odd.remainder << Split<D, R>::kDropped);
    }
  }
  store_words(weights, upper);
  store_remainders(remainders, lower);
}

template <typename D>
GSC_HD void store_rounded(const Floats &x, const BatchDraw &draw, uint16_t *weights) {
  Words words;
  for (int w = 0; w < 2; ++w) {
    const int even = 2 * w, odd = 2 * w + 1;
    if constexpr (std::is_same_v<D, Bf16>) {
      words[w] = upper_words(Lanes::bits(x[even]) + draw[even], Lanes::bits(x[odd]) + draw[odd]);
    } else {
      words[w] = lower_words(round_stochastically<D, Lanes>(x[even], draw[even]),
                             round_stochastically<D, Lanes>(x[odd], draw[odd]));
    }
  }
  store_words(weights, words);
}

/// F::update of a vector. Results go to memory, from where the encoding takes them: GCC 12 would store them twice.
template <typename F>
GSC_HD void update_vector(FloatVector param, const Floats *state, int k, FloatVector grad, const Coefficients<float> &c,
                          float *__restrict to, float *__restrict to0, float *__restrict to1) {
  constexpr int kLanes = VectorLanes::kCount;
  float p[kLanes];
  float g[kLanes];
  float s[kMaxStates][kLanes]{};
  store_vector(p, param);
  store_vector(g, grad);
  for_slots<F>([&](auto slot) { store_vector(s[slot], state[slot][k]); });
#pragma GCC unroll 1  // unrolled, it would no longer be vectorised
  for (int i = 0; i < kLanes; ++i) {
    float one[kMaxStates] = {s[0][i], s[1][i]};
    float x = p[i];
    update_of<F>(x, one, g[i], c, 1.0F);
    to[i] = x;
    to0[i] = one[0];
    if constexpr (F::kStates > 1) to1[i] = one[1];
  }
}

/// The scales of a batch's groups, whose slots have codes A and B, or one of them. Lanes of A's groups come first.
template <typename A, typename B>
class BatchScales {
 public:
  BatchScales() = default;
  GSC_HD BatchScales(const Floats &a, const Floats &b, Special &special) {
    Lane32s peaks[2];
    for_vectors([&](int k) {
      peaks[0][k] = BatchCode<A>::peak(a[k]);
      peaks[1][k] = BatchCode<B>::peak(b[k]);
    });
    const Uint32Vector e = largest_of_groups(peaks[0], peaks[1]) >> load_vector<Uint32Vector>(kRows.shift);
    special.if_greater(as<Int32Vector>(e), load_vector<Int32Vector>(kRows.largest));
    const Int32Vector scale = larger(as<Int32Vector>(e - load_vector<Uint32Vector>(kRows.below)),
                                     load_vector<Int32Vector>(kRows.smallest));
    store_vector(scale_, scale);
    store_vector(number_[0], BatchCode<A>::number(as<Uint32Vector>(scale)));
    store_vector(number_[1], BatchCode<B>::number(as<Uint32Vector>(scale)));
  }
  /// For vector k. Slot: 0 for A, 1 for B.
  template <int Slot>
  [[nodiscard]] GSC_HD Uint32Vector number(int k) const {
    return Lanes::all(number_[Slot][lane(Slot, k * kBatchGroups / kBatchVectors)]);
  }
  template <int Slot>
  GSC_HD void store(uint8_t *scales) const {
    for (int g = 0; g < kBatchGroups; ++g) scales[g] = static_cast<uint8_t>(scale_[lane(Slot, g)]);
  }

 private:
  static constexpr int kLanes = kBatch / 4;
  GSC_HD static constexpr int lane(int slot, int group) { return (slot * kBatchGroups + group) * 4; }
  struct Rows {
    alignas(kVectorBytes) uint32_t shift[kLanes], largest[kLanes], below[kLanes], smallest[kLanes];
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
  static constexpr Rows kRows{};

  alignas(kVectorBytes) uint32_t scale_[kLanes];
  alignas(kVectorBytes) uint32_t number_[2][kLanes];
};
struct NoScales {
  template <int Slot>
  GSC_HD Uint32Vector number(int /*k*/) const {
    return Uint32Vector{};
  }
};

/// The scales of the new state, for the slots of a format that have any.
template <typename Formula, typename Format>
GSC_HD auto scales_of(const Floats *state, Special &special) {
  constexpr int kLast = Formula::kStates - 1;
  using First = CodeOf<Formula, Format, 0>;
  using Last = CodeOf<Formula, Format, kLast>;
  static_assert(!First::kGrouped || Last::kGrouped);
  if constexpr (First::kGrouped) {
    return BatchScales<First, Last>(state[0], state[kLast], special);
  } else if constexpr (Last::kGrouped) {
    return BatchScales<Last, Last>(state[kLast], state[kLast], special);
  } else {
    static_cast<void>(state), static_cast<void>(special);
    return NoScales{};
  }
}

constexpr int kAhead = AHEAD;
/// Whole batches of a span: formula F, weights and gradients of dtype D, remainders of type R. by_blocks(i) does the batch
/// at element i in the long way. Returns where they end.
template <typename F, typename D, typename R, typename Format, typename B>
[[gnu::noinline]] int64_t update_batches(const ApplySpan &arrays, const CodedCursor &cursor,
                                         const Coefficients<float> &coefficients, const B &by_blocks) {
  constexpr bool kIsSplit = !std::is_same_v<R, NoRemainder>;
  const ApplySpan span = arrays;  // local, as are the coefficients: the stores below cannot alias them
  const Coefficients<float> c = coefficients;
  const float clip = c.sign * span.clip;  // exact
  const auto *grad = static_cast<const uint16_t *>(span.grad);
  auto *weight = static_cast<uint16_t *>(span.param);
  auto *remainder = static_cast<R *>(span.remainder);
  const auto codes = [&](auto slot, int64_t i) {
    return static_cast<typename CodeOf<F, Format, slot>::Stored *>(span.state[slot]) + i;
  };
  const auto scale = [&](auto slot, int64_t i) { return span.scales[slot] + i / kStateGroup; };
  const int64_t end = span.n / kBatch * kBatch;
  using AllScales = decltype(scales_of<F, Format>(static_cast<const Floats *>(nullptr), std::declval<Special &>()));
  struct Batch {
    union {
    Floats state[F::kStates];
    float s[F::kStates][kBatch];
    };
    union {
    Floats params;
    float p[kBatch];
    };
    AllScales scales;
    bool special;
  };
  Batch batches[kAhead];
  alignas(kCacheLine) uint32_t state_bits[kAhead * kBatch / 2], param_bits[kAhead * kBatch / 2];
  for (int64_t start = 0; start < end; start += kAhead * kBatch) {
    const int count = min_int((end - start) / kBatch, kAhead);
    for (int n = 0; n < count; n += kDrawn) {
      if constexpr (Format::kDraws) draw_words(cursor.keys(), span.first + start + n * kBatch, span.step, Draw::kState, state_bits + n * kBatch / 2);
      if constexpr (!kIsSplit) draw_words(cursor.keys(), span.first + start + n * kBatch, span.step, Draw::kParam, param_bits + n * kBatch / 2);
    }
#pragma GCC unroll 1
  for (int n = 0; n < count; ++n) {
    const int64_t i = start + n * kBatch;
    if ((span.prefetch || std::is_same_v<Format, Format32>) && i % kCodedBlock == 0) cursor.prefetch_after(i, true);
    Batch &b = batches[n];
    Special special;
    Floats state[F::kStates];
    Floats params;
    Floats grads;
    for_slots<F>([&](auto slot) {
      BatchCode<CodeOf<F, Format, slot>>::decode(codes(slot, i), scale(slot, i), state[slot], special);
    });
    if constexpr (kIsSplit) {
      load_masters<D>(weight + i, remainder + i, params);
    } else {
      load_halves<D>(weight + i, params);
    }
    load_halves<D>(grad + i, grads);
    if constexpr (!NOUPD) for_vectors([&](int k) { update_vector<F>(params[k], state, k, grads[k] * span.inv_scale * clip, c, b.p + k * Lanes::kCount, b.s[0] + k * Lanes::kCount, b.s[F::kStates - 1] + k * Lanes::kCount); });
    b.scales = scales_of<F, Format>(b.state, special);
    special.if_nan(b.params[0], b.params[1]);
    special.if_nan(b.params[2], b.params[3]);
    for_slots<F>([&](auto slot) {
      if constexpr (std::is_same_v<CodeOf<F, Format, slot>, MomentBf16>) {
        special.if_nan(b.state[slot][0], b.state[slot][1]);
        special.if_nan(b.state[slot][2], b.state[slot][3]);
      }
    });
    b.special = special.any();
  }
#pragma GCC unroll 1
  for (int n = 0; n < count; ++n) {
    const int64_t i = start + n * kBatch;
    const Batch &b = batches[n];
    if (b.special) [[unlikely]] {
      by_blocks(i);
      continue;
    }
    const auto encode = [&](const auto &...drawn) {
      for_slots<F>([&](auto slot) {
        using C = CodeOf<F, Format, slot>;
        const auto number = [&](int k) { return b.scales.template number<slot>(k); };
        if constexpr (C::kGrouped) b.scales.template store<slot>(scale(slot, i));
        if constexpr (std::is_same_v<C, MomentE4m3>) {
          if (!cursor.is_random(slot)) return BatchCode<C>::encode(b.state[slot], number, codes(slot, i));
        }
        BatchCode<C>::encode(b.state[slot], number, drawn..., codes(slot, i));
      });
    };
    if constexpr (Format::kDraws) {
      encode(BatchDraw(state_bits + n * kBatch / 2));
    } else {
      encode();
    }
    if constexpr (kIsSplit) {
      store_masters<D>(b.params, weight + i, remainder + i);
    } else {
      store_rounded<D>(b.params, BatchDraw(param_bits + n * kBatch / 2), weight + i);
    }
  }
  }
  return end;
}

/// update_batches where it serves: weights and gradients of one 16-bit dtype, in the formats of docs/state.md.
template <typename F, typename B>
int64_t update_in_batches(const ApplySpan &span, const CodedCursor &cursor, const Coefficients<float> &c,
                          const B &by_blocks) {
  if (is_clamped(span.clip_value) || span.zero_grads || span.write_grads || span.model_copy != nullptr) return 0;
  if (span.grad_dtype != span.param_dtype || span.param_dtype == GSC_FP32) return 0;
  const auto is_in = [&](auto format) {
    bool result = true;
    for_slots<F>([&](auto slot) {
      using C = CodeOf<F, decltype(format), slot>;
      result = result && span.state_dtype[slot] == C::kCode;
      if constexpr (!decltype(format)::kDraws) result = result && !cursor.is_random(slot);
      if constexpr (std::is_same_v<C, SquareE4m4>) result = result && cursor.is_random(slot);
    });
    return result;
  };
  const auto update = [&](auto d) -> int64_t {
    using D = decltype(d);
    const auto with = [&](auto remainder, auto format) {
      return update_batches<F, D, decltype(remainder), decltype(format)>(span, cursor, c, by_blocks);
    };
    if (is_in(Format8{})) {
      if (span.master == GSC_MASTER_SPLIT16) return with(int16_t{}, Format8{});
      if (span.master == GSC_MASTER_SPLIT8) return with(int8_t{}, Format8{});
      if (span.master == GSC_MASTER_STOCHASTIC) return with(NoRemainder{}, Format8{});
    }
    if (span.master != GSC_MASTER_SPLIT16) return 0;
    if (is_in(Format16{})) return with(int16_t{}, Format16{});
    if (is_in(Format32{})) return with(int16_t{}, Format32{});
    return 0;
  };
  return span.param_dtype == GSC_FP16 ? update(Fp16{}) : update(Bf16{});
}
#endif

}  // namespace
}  // namespace gsc::cpu
