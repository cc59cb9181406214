// SPDX-License-Identifier: Apache-2.0
//
// Every numeric option at its limits, one step beyond them and far outside: the last values that are taken, and those
// that are refused with the option's name, when an object is made and later, with nothing changed.
#include <algorithm>
#include <cfloat>

#include "gradscaler/vulkan.h"
#include "tests/support/kinds.h"
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

template <typename Options>
struct Limits {
  const char *option;
  void (*set)(Options &, double);
  std::vector<double> inside, outside;
};

constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr double kTinyF = std::numeric_limits<float>::denorm_min();
constexpr double kMaxF = FLT_MAX;
constexpr double kMaxInt = INT32_MAX;
/// The smallest double that is not finite as a float.
constexpr double kNotAFloat = 0x1.ffffffp+127;

double above(double x) { return std::nextafter(x, kInf); }
double below(double x) { return std::nextafter(x, -kInf); }
float above_float(float x) { return std::nextafter(x, std::numeric_limits<float>::infinity()); }
float below_float(float x) { return std::nextafter(x, 0.0f); }

/// `create` makes the object and destroys it again; `change` gives the options to one that exists.
template <typename Options, typename Create, typename Change>
void expect_limits(const std::vector<Limits<Options>> &table, const Options &defaults, const Create &create,
                   const Change &change) {
  for (const Limits<Options> &limits : table) {
    const auto with = [&](double value) {
      Options options = defaults;
      limits.set(options, value);
      return options;
    };
    for (const double value : limits.inside) {
      EXPECT_GSC_OK(create(with(value))) << limits.option << " = " << value;
    }
    for (const double value : limits.outside) {
      EXPECT_INVALID(create(with(value)), "options.", limits.option) << value;
      EXPECT_INVALID(change(with(value)), "options.", limits.option) << value;
    }
  }
}

/// Whether an option with a range has a row.
template <typename Options>
void expect_row(const std::vector<Limits<Options>> &table, const std::string &option) {
  const bool found = std::ranges::any_of(table, [&](const auto &limits) { return limits.option == option; });
  EXPECT_TRUE(found) << option << " has no row in " << __FILE__;
}

#define GSC_SET(Options, statements) [](Options &o, [[maybe_unused]] double v) { statements; }
#define GSC_FIELD(Options, field) #field, GSC_SET(Options, o.field = v)

TEST(OptionLimits, Context) {
  using O = gsc_context_options;
  const std::vector<Limits<O>> table = {
      {GSC_FIELD(O, struct_size), {sizeof(O), 16}, {0, 1, 7, 8, 0xffffffffU}},
      {GSC_FIELD(O, flags), {0}, {1, 2, 0x80000000U}},
      {GSC_FIELD(O, device_type), {GSC_DEVICE_CPU}, {-1, GSCX_DEVICE_VULKAN + 1, 17}},
      {GSC_FIELD(O, num_threads), {0, 1, 1024}, {-1, 1025}},
      {GSC_FIELD(O, cpu_target), {GSC_CPU_BEST, GSC_CPU_BASELINE}, {-1, GSC_CPU_NEON_BF16 + 1, 99}},
  };
  expect_limits<O>(table, GSC_CONTEXT_OPTIONS_INIT, status_of_context, status_of_context);
}

gsc_scaler_options options_of(const Scaler &scaler) {
  gsc_scaler_options options = GSC_SCALER_OPTIONS_INIT;
  EXPECT_GSC_OK(gsc_scaler_get_options(scaler, &options));
  return options;
}

TEST(OptionLimits, Scaler) {
  using O = gsc_scaler_options;
  // 65536 times 1 + 2^-24 lies in the middle between two floats and rounds to 65536; so does 1 - 2^-25.
  const double still = 1.0 + 0x1p-24, still_below = 1.0 - 0x1p-25;
  const std::vector<double> none_or_negative = {0, -1, INT32_MIN};
  const std::vector<Limits<O>> table = {
      {GSC_FIELD(O, struct_size), {sizeof(O)}, {0, 9, 4104}},
      {GSC_FIELD(O, flags), {31}, {32, 0x80000000U}},
      {GSC_FIELD(O, init_scale), {kTinyF, kMaxF}, {0, -0.0, -kTinyF, -1, kInf, -kInf, kNan}},
      {GSC_FIELD(O, min_scale), {0, kTinyF, 65536}, {-kTinyF, -1, kInf, kNan}},
      {GSC_FIELD(O, max_scale), {0, 65536, kMaxF}, {-kTinyF, -1, kInf, kNan}},
      {"min_scale", GSC_SET(O, o.max_scale = 65536; o.min_scale = v), {65536}, {above_float(65536)}},
      {GSC_FIELD(O, growth_interval), {1, kMaxInt}, none_or_negative},
      {GSC_FIELD(O, growth_factor), {above(still), DBL_MAX}, {1, above(1), still, 0.5, 0, -2, kInf, kNan}},
      {"growth_factor", GSC_SET(O, o.flags = GSC_SCALER_FP32_PRODUCTS; o.growth_factor = v), {kMaxF}, {above(kMaxF)}},
      {GSC_FIELD(O, backoff_factor),
       {kTiny, below(still_below)},
       {0, -kTiny, -0.5, still_below, below(1), 1, 1.5, kInf, kNan}},
      {GSC_FIELD(O, enabled), {0, 1}, {-1, 2}},
      {GSC_FIELD(O, hysteresis), {1, kMaxInt}, none_or_negative},
      {GSC_FIELD(O, hysteresis_refill), {GSC_REFILL_ON_GROWTH, GSC_REFILL_CONSECUTIVE}, {-1, 3}},
      {GSC_FIELD(O, growth_timing), {GSC_GROWTH_AT_INTERVAL, GSC_GROWTH_FIRST_ONE_LATER}, {-1, 3}},
      {GSC_FIELD(O, overflow_tolerance), {0, 1}, {-kTiny, -0.1, above(1), 1.1, kNan}},
      {"recovery_threshold",
       GSC_SET(O, o.recovery_interval = 1; o.recovery_threshold = v),
       {0, kTinyF, kMaxF},
       {-kTinyF, -1, kInf, kNan}},
      {GSC_FIELD(O, recovery_interval), {kMaxInt, 0, -kMaxInt}, {}},
      {"recovery_interval",
       GSC_SET(O, o.recovery_threshold = 1; o.recovery_interval = v),
       {1, kMaxInt},
       none_or_negative},
      {GSC_FIELD(O, floor_action), {GSC_FLOOR_CLAMP, GSC_FLOOR_ERROR}, {-1, 3}},
      {GSC_FIELD(O, floor_patience), {1, kMaxInt}, none_or_negative},
      {GSC_FIELD(O, history_capacity), {0, 1 << 20}, {-1, (1 << 20) + 1}},
      {GSC_FIELD(O, reserved), {0}, {-1, 1}},
      {GSC_FIELD(O, skip_norm), {0, kTiny, DBL_MAX}, {-kTiny, -1, kInf, kNan}},
      {GSC_FIELD(O, spike_factor), {0, 1, DBL_MAX}, {-1, kTiny, below(1), kInf, kNan}},
      {GSC_FIELD(O, spike_deviations), {0, kTiny, DBL_MAX}, {-kTiny, -1, kInf, kNan}},
      {GSC_FIELD(O, spike_window), {1, 1 << 20}, {0, -1, (1 << 20) + 1}},
      {GSC_FIELD(O, spike_warmup), {0, kMaxInt}, {-1, INT32_MIN}},
      {GSC_FIELD(O, spike_patience), {0, kMaxInt}, {-1, INT32_MIN}},
      {GSC_FIELD(O, spike_action), {GSC_SPIKE_STEP, GSC_SPIKE_ERROR}, {-1, 2}},
  };
#define GSC_ROW(field, range) expect_row(table, #field);
  GSC_SCALER_RANGES(GSC_ROW)
  // The first scale lies within the limits; later they may leave it outside.
  const std::vector<Limits<O>> of_the_first = {
      {GSC_FIELD(O, min_scale), {}, {above_float(65536)}},
      {GSC_FIELD(O, max_scale), {}, {below_float(65536)}},
  };
  const Context context = make_context();
  const auto create = [&](const O &options) {
    return status_of(gsc_scaler_destroy, [&](gsc_scaler **out) { return gsc_scaler_create(context, &options, out); });
  };
  const Scaler scaler = make_scaler(context, 65536.0f);
  const O before = options_of(scaler);
  const auto change = [&](const O &options) {
    const gsc_status status = gsc_scaler_set_options(scaler, &options, nullptr);
    EXPECT_TRUE(same_bytes(options_of(scaler), before));
    return status;
  };
  expect_limits<O>(table, GSC_SCALER_OPTIONS_INIT, create, change);
  expect_limits<O>(of_the_first, GSC_SCALER_OPTIONS_INIT, create, create);
}

TEST(OptionLimits, Optimizer) {
  using O = gsc_optimizer_options;
  const std::vector<double> numbers = {0, kTiny, below(kNotAFloat)},
                            no_numbers = {-kTiny, -1e-3, kNotAFloat, 3.5e38, kInf, kNan};
  const std::vector<double> decays = {0, below(1)}, no_decays = {-kTiny, -0.1, 1, 1.5, kInf, kNan};
  const double kinds = optimizer_kinds().size();
  const std::vector<Limits<O>> table = {
      {GSC_FIELD(O, struct_size), {sizeof(O)}, {0, 5, 4104}},
      {GSC_FIELD(O, state_format), {GSC_STATE_FULL, GSC_STATE_BITS8}, {-1, GSC_STATE_BITS8 + 1}},
      {GSC_FIELD(O, master_format), {GSC_MASTER_NONE}, {-1, GSC_MASTER_STOCHASTIC + 1}},
      {GSC_FIELD(O, reserved), {0}, {-1, 1}},
      {GSC_FIELD(O, lr), numbers, no_numbers},
      {GSC_FIELD(O, beta1), decays, no_decays},
      {GSC_FIELD(O, beta2), decays, no_decays},
      {GSC_FIELD(O, eps), numbers, no_numbers},
      {GSC_FIELD(O, weight_decay), numbers, no_numbers},
      {GSC_FIELD(O, momentum), numbers, no_numbers},
      {GSC_FIELD(O, dampening), {-below(kNotAFloat), below(kNotAFloat)}, {-kNotAFloat, kNotAFloat, kInf, kNan}},
      {GSC_FIELD(O, lr_decay), numbers, no_numbers},
      {GSC_FIELD(O, initial_accumulator_value), numbers, no_numbers},
      {GSC_FIELD(O, alpha), numbers, no_numbers},
      {GSC_FIELD(O, rho), decays, no_decays},
      {GSC_FIELD(O, momentum_decay), numbers, no_numbers},
      {GSC_FIELD(O, eps_root), numbers, no_numbers},
      {GSC_FIELD(O, beta3), decays, no_decays},
      {GSC_FIELD(O, warmup_steps), {0, 0x1p53}, {-1, 0x1p54}},
      {GSC_FIELD(O, beta3_warmup), {0, 0x1p53}, {-1, 0x1p54}},
      {GSC_FIELD(O, weight_step_power), numbers, no_numbers},
      {GSC_FIELD(O, weight_lr_power), numbers, no_numbers},
      {GSC_FIELD(O, trust_coefficient), numbers, no_numbers},
      {GSC_FIELD(O, ema_decay), decays, no_decays},
      {GSC_FIELD(O, param_min), {-below(kNotAFloat), -kTiny, 0}, {-kNotAFloat, -kInf, kTiny, kInf, kNan}},
      {GSC_FIELD(O, param_max), {0, kTiny, below(kNotAFloat)}, {kNotAFloat, -kInf, -kTiny, kInf, kNan}},
  };
  GSC_OPTIMIZER_RANGES(GSC_ROW)
#undef GSC_ROW
  // In the place of those above.
  const std::vector<std::pair<int32_t, Limits<O>>> narrower = {
      {GSC_RMSPROP, {GSC_FIELD(O, alpha), decays, no_decays}},
      {GSC_ADAMW_SCHEDULE_FREE, {GSC_FIELD(O, beta1), {kTiny, below(1)}, {0, 1}}},
      {GSC_SGD_SCHEDULE_FREE, {GSC_FIELD(O, momentum), {kTiny, below(1)}, {0, 1}}}};
  const std::vector<Limits<O>> of_sgd = {
      {GSC_FIELD(O, kind), {GSC_SGD, kinds - 1}, {-1, kinds, 77}},
      {"momentum", GSC_SET(O, o.flags = GSC_OPTIMIZER_NESTEROV; o.momentum = v), {kTiny}, {0}},
      {"dampening",
       GSC_SET(O, o.flags = GSC_OPTIMIZER_NESTEROV; o.momentum = 0.9; o.dampening = v),
       {0},
       {-kTiny, kTiny, 0.1}},
      {"flags", GSC_SET(O, o.flags = v), {}, {GSC_OPTIMIZER_ZERO_GRADS + GSC_OPTIMIZER_WRITE_GRADS}},
  };
  const Context context = make_context();
  Buffer param_buffer(GSC_FP32, 2), grad_buffer(GSC_FP32, 2);
  const List params = make_list(context, param_buffer), grads = make_list(context, grad_buffer);
  const auto create = [&](const O &options) { return status_of_optimizer(context, &options, params, grads); };
  for (const int32_t kind : optimizer_kinds()) {
    SCOPED_TRACE(text("kind ", kind));
    const O defaults = optimizer_options(kind);
    const Optimizer made = make_optimizer(context, defaults, params, grads);
    // A group is refused with the same words.
    const auto change = [&](const O &options) {
      int32_t group = -7;
      EXPECT_EQ(gsc_optimizer_add_group(made.get(), 0, 1, &options, &group), GSC_ERROR_INVALID_ARGUMENT);
      EXPECT_EQ(group, -7);
      const gsc_status status = gsc_optimizer_set_options(made.get(), 0, &options, nullptr);
      O now = defaults;
      EXPECT_GSC_OK(gsc_optimizer_get_options(made.get(), 0, &now));
      EXPECT_TRUE(same_bytes(now, defaults));
      return status;
    };
    std::vector<Limits<O>> own = table;
    for (Limits<O> &limits : own) {
      for (const auto &[of, other] : narrower) {
        if (of == kind && std::string(other.option) == limits.option) limits = other;
      }
      const std::optional<gsc::Option> option = option_named(limits.option);
      const bool has_range = !is_schedule_free(kind);
      const bool is_range = option == gsc::Option::param_min || option == gsc::Option::param_max;
      if (!option || *option == gsc::Option::ema_decay || uses(kind, *option) || (is_range && has_range)) continue;
      limits.inside = {0};
      limits.outside = {1, -1};
    }
    expect_limits<O>(own, defaults, create, change);
    if (kind == GSC_SGD) expect_limits<O>(of_sgd, defaults, create, change);
  }

  for (const int32_t kind : optimizer_kinds()) {
    uint32_t known = GSC_OPTIMIZER_MAXIMIZE | GSC_OPTIMIZER_ZERO_GRADS | GSC_OPTIMIZER_WRITE_GRADS |
                     GSC_OPTIMIZER_COUNT_UNCHANGED | GSC_OPTIMIZER_EMA_WARMUP;
    known |= kind_of(kind).flags;
    for (int bit = 0; bit < 32; ++bit) {
      O options = optimizer_options(kind);
      options.flags = uint32_t{1} << bit;
      if (uses(kind, gsc::Option::momentum)) options.momentum = 0.9;
      const bool fits = (known & options.flags) != 0;
      EXPECT_EQ(create(options), fits ? GSC_OK : GSC_ERROR_INVALID_ARGUMENT) << "kind " << kind << " bit " << bit;
    }
  }
}

}  // namespace
}  // namespace gsc_test
