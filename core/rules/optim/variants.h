// SPDX-License-Identifier: Apache-2.0
// All formulas, for code that picks one at run time: coefficients and ratios. Kernels of one family include its file.
#pragma once

#include "core/rules/optim/all_formulas.h"
#include "core/rules/optim/formula.h"
#include "core/rules/optim/variant.h"

namespace gsc {

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

/// The coefficients of a group, or of a tensor in it, for step `step` (counted from 1).
GSC_HD Coefficients<double> make_coefficients(Variant variant, const Hyper &h, double lr, bool maximize, int64_t step,
                                              const Averaging &averaging = {}) {
  Coefficients<double> c = with_variant(variant, [&](auto formula) {
    return coefficients_of_formula<decltype(formula)>(h, lr, maximize, step, averaging);
  });
  c.ema_weight = ema_weight(h, step);
  restrain(h, c);
  return c;
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
