// SPDX-License-Identifier: Apache-2.0
// Every update formula by number. The kernels of each backend and the table of optimizers are made from this list.
// A formula states its kind of optimizer and the sweeps that it takes.
#pragma once

#include <type_traits>

#include "core/rules/optim/adagrad.h"
#include "core/rules/optim/adam.h"
#include "core/rules/optim/adam_like.h"
#include "core/rules/optim/ademamix.h"
#include "core/rules/optim/layerwise.h"
#include "core/rules/optim/lion.h"
#include "core/rules/optim/schedule_free.h"
#include "core/rules/optim/sgd.h"

namespace gsc {

/// X(enumerator, formula) for every variant.
#define GSC_FOR_EACH_VARIANT(X)                             \
  X(kSgd, optim::Sgd)                                       \
  X(kSgdMomentum, optim::SgdMomentum<false>)                \
  X(kSgdNesterov, optim::SgdMomentum<true>)                 \
  X(kAdam, optim::Adam)                                     \
  X(kAdamAmsgrad, optim::AdamAmsgrad)                       \
  X(kAdamW, optim::AdamW)                                   \
  X(kAdamWAmsgrad, optim::AdamWAmsgrad)                     \
  X(kAdagrad, optim::Adagrad)                               \
  X(kLion, optim::Lion)                                     \
  X(kLamb, optim::Lamb)                                     \
  X(kRmsprop, optim::Rmsprop)                               \
  X(kRmspropMomentum, optim::RmspropMomentum<false>)        \
  X(kRmspropCentered, optim::RmspropCentered)               \
  X(kRmspropCenteredMomentum, optim::RmspropMomentum<true>) \
  X(kAdadelta, optim::Adadelta)                             \
  X(kAdamax, optim::Adamax)                                 \
  X(kNadam, optim::Nadam)                                   \
  X(kRadam, optim::Radam)                                   \
  X(kAdaBelief, optim::AdaBelief)                           \
  X(kAdemamix, optim::AdEMAMix)                             \
  X(kAdamWScheduleFree, optim::ScheduleFreeAdamW)           \
  X(kSgdScheduleFree, optim::ScheduleFreeSgd)               \
  X(kLars, optim::Lars)                                     \
  X(kLarsMomentum, optim::LarsMomentum)                     \
  X(kNovograd, optim::Novograd)

enum class Variant : int32_t {
#define GSC_ENUMERATOR(enumerator, formula) enumerator,
  GSC_FOR_EACH_VARIANT(GSC_ENUMERATOR)
#undef GSC_ENUMERATOR
};

#define GSC_ONE(enumerator, formula) +1
inline constexpr int kVariantCount = 0 GSC_FOR_EACH_VARIANT(GSC_ONE);
#undef GSC_ONE

/// Formulas that differ in their coefficients alone share kernels: those of `Sweep`, a formula whose `update` and `rate`
/// are the same.
template <typename F>
struct SweepOfFormula {
  using Type = F;
};
template <typename F>
requires requires { typename F::Sweep; }
struct SweepOfFormula<F> {
  using Type = typename F::Sweep;
};
template <typename F>
using SweepOf = typename SweepOfFormula<F>::Type;

template <typename F>
constexpr bool is_consistent() {
  bool result = F::kStates <= kMaxStates && F::kStates == SweepOf<F>::kStates;
  for (int s = 0; s < F::kStates; ++s) result &= F::kKind.slots[s].holds == SweepOf<F>::kKind.slots[s].holds;
  return result;
}
#define GSC_ASSERT(enumerator, formula) static_assert(is_consistent<formula>());
GSC_FOR_EACH_VARIANT(GSC_ASSERT)
#undef GSC_ASSERT

/// A kind takes the last of its formulas that qualifies: one with a `kFlag` if that flag is set, one with
/// `kNeedsMomentum = true` if momentum is not 0, one with neither always.
template <typename F>
inline constexpr uint32_t kFlag = [] {
  if constexpr (requires { F::kFlag; }) return uint32_t{F::kFlag};
  return uint32_t{0};
}();
template <typename F>
inline constexpr bool kNeedsMomentum = [] {
  if constexpr (requires { F::kNeedsMomentum; }) return F::kNeedsMomentum;
  return false;
}();
/// `kOwnFlags` of a formula are those that only its coefficients depend on.
template <typename F>
inline constexpr uint32_t kOwnFlags = [] {
  if constexpr (requires { F::kOwnFlags; }) return uint32_t{F::kOwnFlags};
  return uint32_t{0};
}();

/// f(formula) for a variant.
GSC_ANY_SPACE
template <typename F>
GSC_HD decltype(auto) with_variant(Variant variant, const F &f) {
  switch (variant) {
#define GSC_CASE(enumerator, formula) \
  case Variant::enumerator:           \
    return f(formula{});
    GSC_FOR_EACH_VARIANT(GSC_CASE)
#undef GSC_CASE
  }
  __builtin_unreachable();
}

/// `rate(slot, coefficients)` of a formula is 1 minus the factor by which a step multiplies the old value of a slot. It
/// decides how the slot is rounded where it is stored in fewer bits (core/rules/state_codes.h).

/// A formula with `kNeedsNorms = true` scales its update of a tensor by a ratio that takes norms of the whole tensor. It
/// takes two sweeps: `moments` updates the state and returns the element's direction; `ratio` makes the tensor's factor
/// from the sums of squares of its parameters and of its directions; `apply` computes the direction again from the state
/// and moves the parameter. With `kGradientsLast = true` the first sweep only takes norms: it calls `direction`, and the
/// second `update`, with the ratio as its last argument. Any other formula does it all in `update`.
template <typename F>
inline constexpr bool kNeedsNorms = [] {
  if constexpr (requires { F::kNeedsNorms; }) return F::kNeedsNorms;
  return false;
}();
template <typename F>
inline constexpr bool kGradientsLast = requires {
  F::kGradientsLast;
};
/// The last sweep, or the only one, takes gradients and updates state.
template <typename F>
inline constexpr bool kUpdatesLast = !kNeedsNorms<F> || kGradientsLast<F>;
GSC_HD bool gradients_last(Variant variant) {
  return with_variant(variant, [](auto formula) { return kGradientsLast<decltype(formula)>; });
}
template <typename F, typename T>
GSC_HD void update_of(T &p, T *state, T g, const Coefficients<T> &c, T ratio) {
  if constexpr (kNeedsNorms<F>) {
    F::update(p, state, g, c, ratio);
  } else {
    F::update(p, state, g, c);
  }
}

/// A formula with `kAverages = true` averages the iterates of each tensor. Its coefficients are those of a tensor, not of
/// a group, and its last slot is an Average.
template <typename F>
inline constexpr bool kAverages = requires {
  F::kAverages;
};
GSC_HD bool averages(Variant variant) {
  return with_variant(variant, [](auto formula) { return kAverages<decltype(formula)>; });
}

GSC_HD bool needs_norms(Variant variant) {
  return with_variant(variant, [](auto formula) { return kNeedsNorms<decltype(formula)>; });
}

/// State slots of a formula with a number per element.
GSC_HD int32_t state_count(Variant variant) {
  return with_variant(variant, [](auto formula) { return int32_t{decltype(formula)::kStates}; });
}
/// Whether a slot with numbers per tensor follows.
inline bool has_numbers(Variant variant) {
  return with_variant(variant, [](auto formula) {
    using F = decltype(formula);
    if constexpr (F::kStates < kMaxStates) return numbers_of(F::kKind.slots[F::kStates].holds) > 0;
    return false;
  });
}

template <typename F>
GSC_HD Coefficients<double> coefficients_of_formula(const Hyper &h, double lr, bool maximize, int64_t step,
                                                    const Averaging &averaging) {
  if constexpr (kAverages<F>)
    return F::coefficients(h, lr, maximize, step, averaging);
  else
    return F::coefficients(h, lr, maximize, step);
}

/// The coefficients of a group, or of a tensor in it, for step `step` (counted from 1).
GSC_HD Coefficients<double> make_coefficients(Variant variant, const Hyper &h, double lr, bool maximize, int64_t step,
                                              const Averaging &averaging = {}) {
  Coefficients<double> c = with_variant(variant, [&](auto formula) {
    return coefficients_of_formula<decltype(formula)>(h, lr, maximize, step, averaging);
  });
  c.ema_weight = ema_weight(h, step);
  return c;
}

/// The same in a kernel of the sweep S, which needs no others, but for `ema_weight`.
template <typename S>
GSC_HD Coefficients<double> make_coefficients_of(Variant variant, const Hyper &h, double lr, bool maximize,
                                                 int64_t step) {
  Coefficients<double> result{};
  const auto take = [&](Variant own, auto formula) {
    if constexpr (std::is_same_v<SweepOf<decltype(formula)>, S>) {
      if (variant == own) result = coefficients_of_formula<decltype(formula)>(h, lr, maximize, step, {});
    }
  };
#define GSC_TAKE(enumerator, formula) take(Variant::enumerator, formula{});
  GSC_FOR_EACH_VARIANT(GSC_TAKE)
#undef GSC_TAKE
  return result;
}

/// A tensor's factor from its sums of squares, for a formula that needs norms. `number`: of the slot with one per tensor.
/// Of norms close to 0 it is limited, also times the learning rate, to what fp32 holds: inf times an element of 0 is NaN.
GSC_HD double make_ratio(Variant variant, double param_sum_sq, double direction_sum_sq, const Coefficients<double> &c,
                         double *number) {
  const double ratio = with_variant(variant, [&](auto formula) {
    using F = decltype(formula);
    if constexpr (kNeedsNorms<F>) return F::ratio(param_sum_sq, direction_sum_sq, c, number);
    return 1.0;
  });
  const double most = 0x1p127 / (c.lr > 1.0 ? c.lr : 1.0);
  return ratio > most && is_finite(ratio) ? most : ratio;
}

}  // namespace gsc
