// SPDX-License-Identifier: Apache-2.0
// The members of a formula, and the functions by which a kernel calls them. A formula is a struct in a file of this
// folder: `kKind`, `kStates`, `coefficients`, `rate` and `update`, and the options below.
#pragma once

#include <type_traits>

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc {

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

/// `Own` of a formula, or of a struct that several of its file share, is an enumeration of the coefficients that no other
/// file has: `c.own[kName]`. Its last enumerator is kOwnCount.
template <typename F>
constexpr bool has_room_for_own() {
  if constexpr (requires { typename F::Own; }) return F::kOwnCount <= kMaxOwn;
  return true;
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
/// The step of an element in a sweep that takes gradients, and in one that does not. What all formulas do with the new
/// parameter is done here.
template <typename F, typename T>
GSC_HD void update_of(T &p, T *state, T g, const Coefficients<T> &c, T ratio) {
  if constexpr (kNeedsNorms<F>) {
    F::update(p, state, g, c, ratio);
  } else {
    F::update(p, state, g, c);
  }
  p = within_param_range(p, c);
}
template <typename F, typename T>
GSC_HD void apply_of(T &p, const T *state, T ratio, const Coefficients<T> &c) {
  F::apply(p, state, ratio, c);
  p = within_param_range(p, c);
}

/// A formula with `kInBatches = true` serves large models: the CPU has a faster step over codes for it, which adds 50 KB to
/// the library.
template <typename F>
inline constexpr bool kInBatches = [] {
  if constexpr (requires { F::kInBatches; }) return F::kInBatches;
  return false;
}();

/// A formula with `kAverages = true` averages the iterates of each tensor. Its coefficients are those of a tensor, not of
/// a group, and its last slot is an Average.
template <typename F>
inline constexpr bool kAverages = requires {
  F::kAverages;
};
template <typename F>
GSC_HD Coefficients<double> coefficients_of_formula(const Hyper &h, double lr, bool maximize, int64_t step,
                                                    const Averaging &averaging) {
  if constexpr (kAverages<F>)
    return F::coefficients(h, lr, maximize, step, averaging);
  else
    return F::coefficients(h, lr, maximize, step);
}

}  // namespace gsc
