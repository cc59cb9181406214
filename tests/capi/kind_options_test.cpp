// SPDX-License-Identifier: Apache-2.0
//
// The table of kinds against what steps compute: an option or flag that the table gives to a kind changes its result, and
// one that it does not give is refused.
#include <type_traits>

#include "tests/support/kinds.h"
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

/// Parameters after a few steps, in which every option that the kind uses can show. If that of a new kind does not, change
/// the gradients so that it does.
std::vector<double> trained(const gsc_optimizer_options &options) {
  const Context context = make_context();
  Buffer params(GSC_FP64, 4), grads(GSC_FP64, 4);
  const List param_list = make_list(context, params), grad_list = make_list(context, grads);
  for (int i = 0; i < 4; ++i) params.set(i, 0.5 + 0.25 * i);
  const Optimizer optimizer = make_optimizer(context, options, param_list, grad_list);
  // Smaller and of changing sign, which shows a largest exp_avg_sq and what decides a sign.
  for (const double size : {0.5, 0.25, 0.02, -0.3, 0.03, -0.02, 0.01}) {
    for (int i = 0; i < 4; ++i) grads.set(i, size * (i - 1.5));
    EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  }
  return params.values();
}

/// The defaults of a kind, with what lets other options show.
gsc_optimizer_options base_of(int32_t kind) {
  gsc_optimizer_options o = optimizer_options(kind);
  if (uses(kind, gsc::Option::momentum) && o.momentum == 0.0) o.momentum = 0.9;
  if (uses(kind, gsc::Option::warmup_steps)) o.warmup_steps = 5;
  if (uses(kind, gsc::Option::weight_decay)) o.weight_decay = 0.1;
  return o;
}

/// Another number that the range of an option has.
template <typename T>
T other_than(T value) {
  if (value == T{}) return static_cast<T>(std::is_integral_v<T> ? 3 : 0.75);
  return static_cast<T>(value < 1e-4 ? value * 1e6 : value * 0.75);
}

void change(gsc_optimizer_options &o, gsc::Option option) {
  switch (option) {
#define GSC_CHANGE(field, range)   \
  case gsc::Option::field:         \
    o.field = other_than(o.field); \
    break;
    GSC_OPTIMIZER_RANGES(GSC_CHANGE)
#undef GSC_CHANGE
  }
}

struct NamedOption {
  gsc::Option option;
  const char *name;
};
constexpr NamedOption kOptions[] = {
#define GSC_EACH(field, range) {gsc::Option::field, #field},
    GSC_OPTIMIZER_RANGES(GSC_EACH)
#undef GSC_EACH
};

TEST(KindOptions, AnOptionCountsOrIsRefused) {
  const Context context = make_context();
  Buffer buffer(GSC_FP32, 2), grad_buffer(GSC_FP32, 2);
  const List params = make_list(context, buffer), grads = make_list(context, grad_buffer);
  for (const int32_t kind : optimizer_kinds()) {
    const gsc_optimizer_options base = base_of(kind);
    const std::vector<double> before = trained(base);
    for (const auto &[option, name] : kOptions) {
      if (option == gsc::Option::ema_decay) continue;  // of every kind; it changes no parameter
      if (option == gsc::Option::param_min || option == gsc::Option::param_max) continue;  // restraints_test.cpp
      SCOPED_TRACE(text(kind_of(kind).name, ", ", name));
      gsc_optimizer_options other = base;
      change(other, option);
      if (uses(kind, option)) {
        EXPECT_NE(trained(other), before) << "the option changes no parameter";
      } else {
        EXPECT_INVALID(status_of_optimizer(context, &other, params, grads), "does not use it: it must be 0");
      }
    }
  }
}

TEST(KindOptions, AFlagCounts) {
  for (const int32_t kind : optimizer_kinds()) {
    const gsc_optimizer_options base = base_of(kind);
    const std::vector<double> before = trained(base);
    for (uint32_t bits = kind_of(kind).flags; bits != 0; bits &= bits - 1) {
      gsc_optimizer_options other = base;
      other.flags = bits & ~(bits - 1);
      EXPECT_NE(trained(other), before) << kind_of(kind).name << ", flag " << other.flags;
    }
  }
}

}  // namespace
}  // namespace gsc_test
