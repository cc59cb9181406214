// SPDX-License-Identifier: Apache-2.0
// The optimizer step over batches of coded state, from the codes and gradients to the new codes and weights. It serves
// the formulas and formats named in update_in_batches; others go block by block (cursor.h), and so do batches with
// special numbers: nothing of a batch is stored before it is known to have none. A few batches are updated before the
// first is encoded, so that the divisions of one run beside the codes of another. Included by apply_kernel.h only.
#pragma once

#include "core/cpu/coded/batch_codes.h"
#include "core/rules/optim/formula.h"

namespace gsc::cpu {
namespace {

template <typename F>
constexpr bool kUpdatesInBatches = kVectorBytes >= 32 && kInBatches<F>;

#if defined(__AVX2__)
/// Batches that are updated before the first of them is encoded, if that takes long.
constexpr int kTogether = 4;
static_assert(kDrawn % kTogether == 0);

/// The codes of a format's slots, and how many batches are updated before the first is encoded.
struct Format32 {
  using Moment = PlainSlot;
  using Square = PlainSlot;
  static constexpr int kAhead = 1;
  static constexpr bool kDraws = false;
};
struct Format16 {
  using Moment = MomentBf16;
  using Square = SquareE6m10;
  static constexpr int kAhead = kTogether;
  static constexpr bool kDraws = true;
};
struct Format8 {
  using Moment = MomentE4m3;
  using Square = SquareLog8;
  static constexpr int kAhead = kTogether;
  static constexpr bool kDraws = true;
};

/// Without a remainder: fp32 weights are whole, those of 16 bits are rounded stochastically.
struct NoRemainder {};

/// f(constant slot) for the slots of a formula.
template <typename Formula, typename F>
GSC_HD void for_slots(const F &f) {
  f(Constant<0>{});
  if constexpr (Formula::kStates > 1) f(Constant<1>{});
  static_assert(Formula::kStates == 1 || Formula::kStates == 2);
}

template <typename Formula, typename Format, int K>
using CodeOf = std::conditional_t<Formula::kKind.slots[K].holds == Slot::kMoment, typename Format::Moment,
                                  typename Format::Square>;

/// A batch after its update: means first, then squares if the formula has any.
template <typename Formula, typename Format>
struct Batch {
  static constexpr int kLast = Formula::kStates - 1;
  static_assert(Formula::kKind.slots[0].holds == Slot::kMoment);
  static_assert(kLast == 0 || Formula::kKind.slots[kLast].holds == Slot::kSecondMoment);
  using Squares = std::conditional_t<kLast == 0, PlainSlot, typename Format::Square>;

  BatchFloats state[Formula::kStates];
  BatchFloats params;
  BatchScales<typename Format::Moment, Squares> scales;
  bool is_special;

  /// Ends the search for special numbers.
  GSC_HD void find_scales(const Special &special) { is_special = scales.find(state[0], state[kLast]) | special.any(); }
  GSC_HD uint32_t scale(int slot, int group) const { return slot == 0 ? scales.mean(group) : scales.square(group); }
};

/// F::update of a vector. Results go to memory, from where encoding takes them: GCC 12 stores them in any case.
template <typename F>
GSC_HD void update_vector(FloatVector param, const FloatVector (*state)[2], int k, FloatVector grad,
                          const Coefficients<float> &c, float *__restrict new_param, float *__restrict first,
                          float *__restrict last) {
  constexpr int kLanes = VectorLanes::kCount;
  float p[kLanes];
  float g[kLanes];
  float s[kMaxStates][kLanes]{};
  store_vector(p, param);
  store_vector(g, grad);
  for_slots<F>([&](auto slot) { store_vector(s[slot], state[slot][k]); });
#pragma GCC unroll 1  // unrolled, it would no longer be vectorised
  for (int i = 0; i < kLanes; ++i) {
    float of_element[kMaxStates] = {s[0][i], s[1][i]};
    float x = p[i];
    update_of<F>(x, of_element, g[i], c, 1.0F);
    new_param[i] = x;
    first[i] = of_element[0];
    if constexpr (F::kStates > 1) last[i] = of_element[1];
  }
}

/// Whole batches of a span: formula F, weights and gradients of dtype D, remainders of type R. by_blocks(i, n)
/// does n elements from element i on the long way. Returns where they end.
template <typename F, typename D, typename R, typename Format, typename B>
[[gnu::noinline]] int64_t update_batches(const ApplySpan &arrays, const CodedCursor &cursor,
                                         const Coefficients<float> &coefficients, const B &by_blocks) {
  constexpr bool kIsSplit = !std::is_same_v<R, NoRemainder>;
  constexpr bool kIsWhole = std::is_same_v<D, Fp32>;
  static_assert(!(kIsSplit && kIsWhole));
  constexpr int kAhead = std::is_same_v<D, Fp16> ? kTogether : Format::kAhead;
  const ApplySpan span = arrays;  // local, as are the coefficients: the stores below cannot alias them
  Coefficients<float> c = coefficients;
  c.is_restrained = 0.0F;
  const float clip = c.sign * span.clip;  // exact
  const auto *grad = static_cast<const typename D::Stored *>(span.grad);
  auto *weight = static_cast<typename D::Stored *>(span.param);
  auto *remainder = static_cast<R *>(span.remainder);
  const auto codes = [&](auto slot, int64_t i) {
    return static_cast<typename CodeOf<F, Format, slot>::Stored *>(span.state[slot]) + i;
  };
  const auto scales = [&](auto slot, int64_t i) {
    using Scale = typename CodeOf<F, Format, slot>::Scale;
    return static_cast<Scale *>(span.scales[slot]) + i / kStateGroup;
  };
  const auto update = [&](int64_t i, Batch<F, Format> &b) {
    Special special;
#pragma GCC unroll 2
    for (int w = 0; w < 2; ++w) {
      FloatVector state[F::kStates][2];
      FloatVector params[2];
      FloatVector grads[2];
      for_slots<F>([&](auto slot) {
        BatchCode<CodeOf<F, Format, slot>>::decode(codes(slot, i), scales(slot, i), w, state[slot], special);
      });
      if constexpr (kIsSplit) {
        load_masters<D>(weight + i, remainder + i, w, params);
      } else {
        load_values<D>(weight + i, w, params);
      }
      load_values<D>(grad + i, w, grads);
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
        const auto lanes_of = [at = 2 * w + k](BatchFloats &x) { return reinterpret_cast<float *>(x + at); };
        update_vector<F>(params[k], state, k, grads[k] * span.inv_scale * clip, c, lanes_of(b.params),
                         lanes_of(b.state[0]), lanes_of(b.state[F::kStates - 1]));
      }
    }
    // A mean of NaN makes NaN of its parameter. fp16's inf is special too.
    const auto checked = [&](int k) { return std::is_same_v<D, Fp16> ? b.params[k] - b.params[k] : b.params[k]; };
    for (int k = 0; k < kBatchVectors; k += 2) special.if_nan(checked(k), checked(k + 1));
    b.find_scales(special);
  };
  const auto store = [&](int64_t i, const Batch<F, Format> &b, const BatchDraw &state_draw,
                         const BatchDraw &param_draw) {
    for_slots<F>([&](auto slot) {
      using C = CodeOf<F, Format, slot>;
      const auto scale_of = [&](int k) { return b.scale(slot, k * kBatchGroups / kBatchVectors); };
      if constexpr (C::kGrouped) {
        for (int g = 0; g < kBatchGroups; ++g) scales(slot, i)[g] = static_cast<typename C::Scale>(b.scale(slot, g));
      }
      BatchCode<C>::encode(b.state[slot], scale_of, state_draw, codes(slot, i));
    });
    if constexpr (kIsSplit) {
      store_masters<D>(b.params, weight + i, remainder + i);
    } else if constexpr (kIsWhole) {
      for (int w = 0; w < 2; ++w) store_floats(weight + i + w * kBatch / 2, b.params + 2 * w);
    } else {
      store_rounded<D>(b.params, param_draw, weight + i);
    }
  };

  Batch<F, Format> batches[kAhead];
  DrawnHalves state_draws;
  DrawnHalves param_draws;
  const int64_t end = span.n / kBatch * kBatch;
  for (int64_t start = 0; start < end; start += kAhead * kBatch) {
    const int count = min_int((end - start) / kBatch, kAhead);
    const int drawn = static_cast<int>(start / kBatch % kDrawn);
    if (drawn == 0) {
      const auto draw = [&](Draw purpose, DrawnHalves &halves) {
        draw_halves<kMaxChains>(cursor.keys(), span.first + start, span.step, purpose, halves.of);
      };
      if constexpr (Format::kDraws) draw(Draw::kState, state_draws);
      if constexpr (!kIsSplit && !kIsWhole) draw(Draw::kParam, param_draws);
    }
    const auto begin = [&](int n) {
      const int64_t i = start + n * kBatch;
      // Steps that are bound by arithmetic keep up by themselves on most processors.
      if ((span.prefetch_bytes != 0 || std::is_same_v<Format, Format32>)&&i % kCodedBlock == 0)
        cursor.prefetch_after(i, true);
      update(i, batches[n]);
    };
    const auto finish = [&](int n) {
      const int64_t i = start + n * kBatch;
      if (batches[n].is_special) [[unlikely]] {
        by_blocks(i, kBatch);
      } else {
        store(i, batches[n], BatchDraw(state_draws, drawn + n), BatchDraw(param_draws, drawn + n));
      }
    };
#pragma GCC unroll 1
    for (int n = 0; n < count; ++n) begin(n);
#pragma GCC unroll 1
    for (int n = 0; n < count; ++n) finish(n);
  }
  return end;
}

/// update_batches where it serves: weights and gradients of one dtype, in the formats of docs/state.md, and nothing that
/// restrains a step.
template <typename F, typename B>
int64_t update_in_batches(const ApplySpan &span, const CodedCursor &cursor, const Coefficients<float> &c,
                          const B &by_blocks) {
  if (is_clamped(span.clip_value) || span.zero_grads || span.write_grads || span.model_copy != nullptr) return 0;
  if (span.grad_dtype != span.param_dtype || c.is_restrained != 0.0F) return 0;
  const auto is_in = [&](auto format) {
    bool result = true;
    for_slots<F>([&](auto slot) {
      using Format = decltype(format);
      using C = CodeOf<F, Format, slot>;
      result = result && span.state_dtype[slot] == C::kCode;
      if (Format::kDraws) result = result && cursor.is_random(slot);
    });
    return result;
  };
  const auto with = [&](auto d, auto remainder, auto format) {
    return update_batches<F, decltype(d), decltype(remainder), decltype(format)>(span, cursor, c, by_blocks);
  };
  if (span.param_dtype == GSC_FP32) {
    if (is_in(Format8{})) return with(Fp32{}, NoRemainder{}, Format8{});
    return is_in(Format16{}) ? with(Fp32{}, NoRemainder{}, Format16{}) : 0;
  }
  const auto update = [&](auto d) -> int64_t {
    if (is_in(Format8{})) {
      if (span.master == GSC_MASTER_SPLIT16) return with(d, int16_t{}, Format8{});
      if (span.master == GSC_MASTER_SPLIT8) return with(d, int8_t{}, Format8{});
      if (span.master == GSC_MASTER_STOCHASTIC) return with(d, NoRemainder{}, Format8{});
    }
    if (span.master != GSC_MASTER_SPLIT16) return 0;
    if (is_in(Format16{})) return with(d, int16_t{}, Format16{});
    if (is_in(Format32{})) return with(d, int16_t{}, Format32{});
    return 0;
  };
  return span.param_dtype == GSC_FP16 ? update(Fp16{}) : update(Bf16{});
}
#endif

}  // namespace
}  // namespace gsc::cpu
