// SPDX-License-Identifier: Apache-2.0
// The coefficients of a step, for code that picks the formula at run time.
#pragma once

#include "core/rules/optim/variants.h"
#include "core/rules/step.h"

namespace gsc {

/// Those of group `g` in step `step`, counted from 1, or of a tensor of it in its step `step`; not for a formula that
/// averages.
GSC_HD Coefficients<double> group_coefficients(const StepParams &p, const GroupRecord &g, int64_t step) {
  return make_coefficients(p.variant, g.hyper, learning_rate(g), p.maximize, step);
}

/// The coefficients of a tensor of group `g` in its step `step`, if the formula averages. A step advances `average`.
GSC_HD Coefficients<double> average_coefficients(const StepParams &p, const GroupRecord &g, int64_t step,
                                                 Average &average) {
  Averaging a{p.phase};
  if (p.phase == Phase::kStep) a = advance_average(g.hyper, learning_rate(g), step, average);
  return make_coefficients(p.variant, g.hyper, a.lr, p.maximize, step, a);
}

}  // namespace gsc
