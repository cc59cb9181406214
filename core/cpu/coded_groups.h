// SPDX-License-Identifier: Apache-2.0
// The optimizer step over whole groups of coded state in registers, from the codes and gradients to the new codes and
// weights. It serves the formulas and formats named in update_in_groups; others go block by block (coded_cursor.h). A
// group is stored one round after it was computed, so its divisions run beside the codes of its neighbours. Included by
// apply_kernel.h only.
#pragma once

#include "core/cpu/coded_cursor.h"

namespace gsc::cpu {
namespace {

constexpr int kGroupVectors = kStateGroup / VectorLanes::kCount;
using GroupFloats = FloatVector[kGroupVectors];

/// A slot in fp32.
struct PlainSlot {
  using Stored = float;
  static constexpr int32_t kCode = GSC_FP32;
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
  static constexpr bool kDraws = true;
};

/// Without a remainder: the weights are rounded stochastically.
struct NoRemainder {};

/// f(vector) for the vectors of a group.
template <typename F>
GSC_HD void for_vectors(const F &f) {
#pragma GCC unroll 8
  for (int k = 0; k < kGroupVectors; ++k) f(k);
}

/// f(constant slot) for the slots of a formula.
template <typename Formula, typename F>
GSC_HD void for_slots(const F &f) {
  if constexpr (Formula::kStates > 0) f(std::integral_constant<int, 0>{});
  if constexpr (Formula::kStates > 1) f(std::integral_constant<int, 1>{});
  if constexpr (Formula::kStates > 2) f(std::integral_constant<int, 2>{});
}

template <typename Formula, typename Format, int K>
using CodeOf = std::conditional_t<Formula::kKind.slots[K].holds == Slot::kMoment, typename Format::Moment,
                                  typename Format::Square>;

template <typename C>
GSC_HD void decode_group(const typename C::Stored *codes, const uint8_t *scale, GroupFloats &out) {
  using L = VectorLanes;
  for_vectors([&](int k) {
    if constexpr (std::is_same_v<C, PlainSlot>) {
      out[k] = L::load(codes + k * L::kCount);
    } else {
      out[k] = C::template decode<L>(L::load(codes + k * L::kCount), L::all(C::kGrouped ? *scale : 0));
    }
  });
}

/// bias(k): what vector k is rounded by.
template <typename C, typename B>
GSC_HD void encode_group(const GroupFloats &x, const B &bias, typename C::Stored *codes, uint8_t *scale) {
  using L = VectorLanes;
  if constexpr (std::is_same_v<C, PlainSlot>) {
    for_vectors([&](int k) { L::store(codes + k * L::kCount, x[k]); });
  } else {
    L::Uint all{};
    if constexpr (C::kGrouped) {
      L::Int largest{};
      for_vectors([&](int k) { largest = greatest(largest, finite_magnitude<L>(x[k])); });
      all = C::template scale_for<L>(L::as_uint(largest_in_all(largest)));
      *scale = static_cast<uint8_t>(all[0]);
    }
    L::Uint code[kGroupVectors];
    for_vectors([&](int k) { code[k] = C::template encode<L>(x[k], all, bias(k)); });
    L::store_neighbours(codes, code);
  }
}

/// F::update of a vector, whose slots are state[...][k].
template <typename F>
GSC_HD void update_vector(FloatVector &param, GroupFloats *state, int k, FloatVector grad,
                          const Coefficients<float> &c) {
  constexpr int kLanes = VectorLanes::kCount;
  float p[kLanes];
  float g[kLanes];
  float s[kMaxStates][kLanes]{};
  store_vector(p, param);
  store_vector(g, grad);
  for_slots<F>([&](auto slot) { store_vector(s[slot], state[slot][k]); });
#pragma GCC unroll 1  // unrolled, it would no longer be vectorised
  for (int i = 0; i < kLanes; ++i) update_element<F>(p[i], s[0], s[1], s[2], g[i], i, c);
  param = load_vector<FloatVector>(p);
  for_slots<F>([&](auto slot) { state[slot][k] = load_vector<FloatVector>(s[slot]); });
}

/// What slots of one kind are rounded by: 16 random bits, or half a unit.
struct Bias {
  VectorLanes::Uint keep, add;
  explicit Bias(bool is_random)
      : keep(VectorLanes::all(is_random ? 0xffffU : 0U)), add(VectorLanes::all(is_random ? 0U : kToNearest)) {}
};

/// Whole groups of a span: formula F, weights and gradients of dtype D, remainders of type R. Returns where they end.
template <typename F, typename D, typename R, typename Format>
[[gnu::noinline]] int64_t update_groups(const ApplySpan &arrays, const CodedCursor &cursor,
                                        const Coefficients<float> &coefficients) {
  using L = VectorLanes;
  constexpr bool kIsSplit = !std::is_same_v<R, NoRemainder>;
  constexpr int kPeriod = drawn(kMaxChains);
  constexpr int kKept = 2 * kPeriod;  // of this group and of the one before
  const ApplySpan span = arrays;      // local, as are the coefficients: the stores below cannot alias them
  const Coefficients<float> c = coefficients;
  const float clip = c.sign * span.clip;  // exact
  const Bias biases[kMaxStates] = {Bias(cursor.is_random(0)), Bias(cursor.is_random(1)), Bias(cursor.is_random(2))};
  const auto *grad = static_cast<const typename D::Stored *>(span.grad);
  auto *weight = static_cast<uint16_t *>(span.param);
  auto *remainder = static_cast<R *>(span.remainder);
  alignas(kCacheLine) uint16_t state_bits[kKept];
  alignas(kCacheLine) uint16_t param_bits[kKept];
  const auto codes = [&](auto slot, int64_t i) {
    return static_cast<typename CodeOf<F, Format, slot>::Stored *>(span.state[slot]) + i;
  };
  const auto scale = [&](auto slot, int64_t i) { return span.scales[slot] + i / kStateGroup; };
  const int64_t end = span.n / kStateGroup * kStateGroup;
  GroupFloats state[kMaxStates] = {};
  GroupFloats params = {};
#pragma GCC unroll 1
  for (int64_t i = 0; i <= end; i += kStateGroup) {
    GroupFloats next_state[kMaxStates] = {};
    GroupFloats next_params = {};
    if (i < end) {
      // 8 bits take so long that most processors keep up by themselves.
      if ((span.prefetch || !Format::kDraws) && i % kCodedBlock == 0) cursor.prefetch_after(i, true);
      if (i % kPeriod == 0) {
        if constexpr (Format::kDraws)
          cursor.template draw_for<kMaxChains>(Draw::kState, i, kPeriod, state_bits + i % kKept);
        if constexpr (!kIsSplit) cursor.template draw_for<kMaxChains>(Draw::kParam, i, kPeriod, param_bits + i % kKept);
      }
      for_slots<F>(
          [&](auto slot) { decode_group<CodeOf<F, Format, slot>>(codes(slot, i), scale(slot, i), next_state[slot]); });
      for_vectors([&](int k) {
        const int64_t e = i + k * L::kCount;
        if constexpr (kIsSplit) {
          next_params[k] = Split<D, R>::template join<L>(L::load(weight + e), L::load(remainder + e));
        } else {
          next_params[k] = load_operand<D>(weight + e);
        }
        update_vector<F>(next_params[k], next_state, k, load_operand<D>(grad + e) * span.inv_scale * clip, c);
      });
    }
    if (i > 0) {
      const int64_t last = i - kStateGroup;
      const auto drawn_for = [&](const uint16_t *bits, int k) { return L::load(bits + last % kKept + k * L::kCount); };
      for_slots<F>([&](auto slot) {
        using C = CodeOf<F, Format, slot>;
        const auto bias = [&](int k) {
          if constexpr (!Format::kDraws) {
            return L::all(kToNearest);
          } else {
            return (bias_of<C>(drawn_for(state_bits, k)) & biases[slot].keep) | biases[slot].add;
          }
        };
        encode_group<C>(state[slot], bias, codes(slot, last), scale(slot, last));
      });
      L::Uint weights[kGroupVectors];
      if constexpr (kIsSplit) {
        L::Uint remainders[kGroupVectors];
        for_vectors([&](int k) {
          const auto parts = Split<D, R>::template divide<L>(params[k]);
          weights[k] = parts.weight;
          remainders[k] = parts.remainder;
        });
        L::store_neighbours(remainder + last, remainders);
      } else {
        for_vectors([&](int k) { weights[k] = round_stochastically<D, L>(params[k], drawn_for(param_bits, k)); });
      }
      L::store_neighbours(weight + last, weights);
    }
    for_vectors([&](int k) {
      for_slots<F>([&](auto slot) { state[slot][k] = next_state[slot][k]; });
      params[k] = next_params[k];
    });
  }
  return end;
}

/// Only with many vector registers, and for the formulas of large models: each adds 50 KB to the library.
template <typename F>
constexpr bool kUpdatesInGroups = kVectorBytes == 64 &&
                                  (std::is_same_v<F, optim::Adam> || std::is_same_v<F, optim::AdamW> ||
                                   std::is_same_v<F, optim::Lion> || std::is_same_v<F, optim::SgdMomentum<false>>);

/// update_groups where it serves: weights and gradients of one 16-bit dtype, in the formats of docs/state.md.
template <typename F>
int64_t update_in_groups(const ApplySpan &span, const CodedCursor &cursor, const Coefficients<float> &c) {
  if (is_clamped(span.clip_value) || span.zero_grads || span.write_grads || span.model_copy != nullptr) return 0;
  if (span.grad_dtype != span.param_dtype || span.param_dtype == GSC_FP32) return 0;
  const auto is_in = [&](auto format) {
    bool result = true;
    for_slots<F>([&](auto slot) {
      result = result && span.state_dtype[slot] == CodeOf<F, decltype(format), slot>::kCode;
      result = result && (decltype(format)::kDraws || !cursor.is_random(slot));
    });
    return result;
  };
  const auto update = [&](auto d) -> int64_t {
    using D = decltype(d);
    if (is_in(Format8{})) {
      if (span.master == GSC_MASTER_SPLIT16) return update_groups<F, D, int16_t, Format8>(span, cursor, c);
      if (span.master == GSC_MASTER_SPLIT8) return update_groups<F, D, int8_t, Format8>(span, cursor, c);
      if (span.master == GSC_MASTER_STOCHASTIC) return update_groups<F, D, NoRemainder, Format8>(span, cursor, c);
    }
    if (span.master != GSC_MASTER_SPLIT16) return 0;
    if (is_in(Format16{})) return update_groups<F, D, int16_t, Format16>(span, cursor, c);
    if (is_in(Format32{})) return update_groups<F, D, int16_t, Format32>(span, cursor, c);
    return 0;
  };
  return span.param_dtype == GSC_FP16 ? update(Fp16{}) : update(Bf16{});
}

}  // namespace
}  // namespace gsc::cpu
