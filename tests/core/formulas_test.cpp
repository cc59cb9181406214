// SPDX-License-Identifier: Apache-2.0
//
// What formulas say of themselves against what they compute: `rate` of a state slot, which decides how the slot is
// rounded in fewer bits, so that a wrong one shows only after thousands of steps.
#include <gtest/gtest.h>

#include <string_view>

#include "core/objects/optimizer_table.h"
#include "core/rules/optim/all_formulas.h"
#include "core/rules/optim/formula.h"
#include "core/rules/optim/formula_list.h"

namespace gsc {
namespace {

/// Options of which no two decays are alike.
gsc_optimizer_options options_of(const Kind &kind, uint32_t flag) {
  gsc_optimizer_options o = default_options(kind.code, Argument("kind"));
  o.flags = flag;
  const auto set = [&](Option option, double &value, double to) {
    if (kind.find(option) != nullptr) value = to;
  };
  set(Option::beta1, o.beta1, 0.75);
  set(Option::beta2, o.beta2, 0.625);
  set(Option::beta3, o.beta3, 0.875);
  set(Option::momentum, o.momentum, 0.5);
  set(Option::dampening, o.dampening, 0.25);
  set(Option::rho, o.rho, 0.8125);
  if (kind.code == GSC_RMSPROP) o.alpha = 0.6875;
  return o;
}

/// A slot after a step without a gradient from `value`, the parameter and the other slots being 0.
template <typename F>
double after_step(int slot, double value, const Coefficients<double> &c) {
  double p = 0.0, state[kMaxStates] = {};
  state[slot] = value;
  if constexpr (kUpdatesLast<F>) {
    update_of<F>(p, state, 0.0, c, 1.0);
  } else {
    F::moments(p, state, 0.0, c);
  }
  return state[slot];
}

/// A formula without slots need not have a rate.
template <typename F>
requires(F::kStates == 0) void expect_rates_of_steps() {}

template <typename F>
void expect_rates_of_steps() {
  const gsc_optimizer_options options = options_of(F::kKind, kFlag<F>);
  const Coefficients<double> c = coefficients_of_formula<F>(make_hyper(options), 0.5, false, 10, Averaging{});
  for (int slot = 0; slot < F::kStates; ++slot) {
    const SlotOfKind &s = F::kKind.slots[slot];
    if (s.holds != Slot::kMoment && s.holds != Slot::kSecondMoment) continue;  // never in fewer bits
    // A maximum has no factor. It is rounded to nearest, which a rate of 1 stands for.
    const bool is_maximum = std::string_view(s.name) == "max_exp_avg_sq";
    const double factor = (after_step<SweepOf<F>>(slot, 8.0, c) - after_step<SweepOf<F>>(slot, 4.0, c)) / (8.0 - 4.0);
    EXPECT_DOUBLE_EQ(SweepOf<F>::rate(slot, c), is_maximum ? 1.0 : 1.0 - factor) << F::kKind.name << ", " << s.name;
  }
}

TEST(Formulas, TheRateOfASlotIsThatOfItsStep) {
#define GSC_EXPECT(variant, formula) expect_rates_of_steps<formula>();
  GSC_FOR_EACH_VARIANT(GSC_EXPECT)
#undef GSC_EXPECT
}

}  // namespace
}  // namespace gsc
