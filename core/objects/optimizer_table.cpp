// SPDX-License-Identifier: Apache-2.0
// The kinds of optimizer, from the table that gradscaler.h has of them, and the validation of hyper-parameters.
#include "core/objects/optimizer_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <type_traits>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/objects/require_range.h"
#include "core/rules/optim/kinds.h"
#include "core/rules/state_codes.h"

namespace gsc {
namespace {

/// f(traits) of each formula.
template <typename F>
void for_each_formula(const F &f) {
  for (int32_t i = 0; i < kVariantCount; ++i) f(static_cast<Variant>(i), traits(static_cast<Variant>(i)));
}

/// Parameters other than fp64 are computed in fp32, where more than this is inf.
void require_fp32(const Argument &name, double value) {
  if (!std::isfinite(static_cast<float>(value))) refuse_value(name, value, "finite as a float");
}

template <typename T>
void require_number(const Range &range, const Argument &name, T value) {
  require_in(range, name, value);
  if constexpr (std::is_same_v<T, double>) require_fp32(name, value);
}

template <typename T>
void require_option(const Kind &kind, Option option, const Argument &name, T value, const Range &common) {
  const OptionOfKind *used = kind.find(option);
  if (used == nullptr && std::ranges::find(kCommonOptions, option) == std::end(kCommonOptions)) {
    // Ignored, it would be a result that its caller did not ask for.
    if (value == T{0}) return;
    refuse(name, "is %s, but %s does not use it: it must be 0", Decimal(static_cast<double>(value)).c_str(), kind.name);
  }
  require_number(used != nullptr && used->range != nullptr ? *used->range : common, name, value);
}

void validate_param_range(const Kind &kind, const gsc_optimizer_options &o) {
  if (o.param_min == 0.0 && o.param_max == 0.0) return;
  if (averages(variant_of(o))) {
    const bool has_min = o.param_min != 0.0;
    refuse(kOptions.field(has_min ? Literal("param_min") : Literal("param_max")),
           "is %s, but %s takes no range of parameters, which their average would leave: it must be 0",
           Decimal(has_min ? o.param_min : o.param_max).c_str(), kind.name);
  }
  if (o.param_min > o.param_max) {
    refuse(kOptions.field("param_min"), "is %s, which is above param_max, %s", Decimal(o.param_min).c_str(),
           Decimal(o.param_max).c_str());
  }
}

/// Steps in which a mean that decays by `beta` loses half.
double half_life(double beta) { return std::log(0.5) / std::log(beta); }

}  // namespace

void require_at_least_zero(const Argument &name, double value) {
  require_number(Range::at_least(0.0, "finite and >= 0"), name, value);
}

const Kind &require_kind(int32_t kind, const Argument &name) {
  for (const Kind *known : kKinds) {
    if (known->code == kind) return *known;
  }
  const Kind &first = **std::begin(kKinds), &last = **std::rbegin(kKinds);
  refuse(name, "is %d; it must be a kind of optimizer, %d (%s) to %d (%s)", kind, first.code, first.name, last.code,
         last.name);
}

gsc_optimizer_options default_options(int32_t kind, const Argument &name) {
  gsc_optimizer_options o{};
  o.struct_size = sizeof o;
  o.kind = kind;
  const Kind &known = require_kind(kind, name);
  for (int i = 0; i < known.option_count; ++i) {
    switch (known.options[i].option) {
#define GSC_SET(field, range)                                         \
  case Option::field:                                                 \
    o.field = static_cast<decltype(o.field)>(known.options[i].value); \
    break;
      GSC_OPTIMIZER_RANGES(GSC_SET)
#undef GSC_SET
    }
  }
  return o;
}

Variant variant_of(const gsc_optimizer_options &o) {
  const int32_t kind = require_kind(o.kind).code;
  Variant found{};
  for_each_formula([&](Variant variant, const Traits &t) {
    if (t.kind.code == kind && (t.flag & ~o.flags) == 0 && (!t.needs_momentum || o.momentum != 0.0)) found = variant;
  });
  return found;
}

bool momentum_picks_formula(int32_t kind) {
  bool picks = false;
  for_each_formula([&](Variant, const Traits &t) { picks |= t.kind.code == kind && t.needs_momentum; });
  return picks;
}

int32_t state_dtype(const gsc_optimizer_options &options, int32_t slot, Slot holds, int32_t param_dtype) {
  const int32_t format = options.state_format;
  const bool has_codes = holds == Slot::kMoment || holds == Slot::kSecondMoment;
  if (!has_codes || format == GSC_STATE_FULL) return full_dtype(holds, param_dtype);
  const bool in_8_bits = format == GSC_STATE_BITS8;
  // A maximum keeps each error that is above the value, so that those of 8 bits would add up.
  if (holds == Slot::kSecondMoment) {
    const bool has_maximum = (options.flags & GSC_OPTIMIZER_AMSGRAD) != 0;
    return in_8_bits && !has_maximum ? GSC_UINT8_LOG : GSC_UFP16_E6M10;
  }
  const bool is_slow_mean = is_slow(rate_of(variant_of(options), make_hyper(options), slot));
  return in_8_bits && !is_slow_mean ? GSC_FP8_E4M3 : GSC_BF16;
}

void validate(const gsc_optimizer_options &o) {
  const Kind &kind = require_kind(o.kind);
  if (const uint32_t others = o.flags & ~(kind.flags | kCommonFlags); others != 0) {
    refuse(kOptions.field("flags"), "has bits that %s does not take: 0x%x", kind.name, others);
  }
#define GSC_REQUIRE(field_, range) require_in(range, kOptions.field(#field_), o.field_);
  GSC_OPTIMIZER_WORDS(GSC_REQUIRE)
#undef GSC_REQUIRE
  if (o.reserved != 0) refuse_value(kOptions.field("reserved"), o.reserved, "0");
  if ((o.flags & GSC_OPTIMIZER_ZERO_GRADS) != 0 && (o.flags & GSC_OPTIMIZER_WRITE_GRADS) != 0) {
    refuse(kOptions.field("flags"), "has both ZERO_GRADS and WRITE_GRADS");
  }
#define GSC_REQUIRE(field_, range) require_option(kind, Option::field_, kOptions.field(#field_), o.field_, range);
  GSC_OPTIMIZER_RANGES(GSC_REQUIRE)
#undef GSC_REQUIRE
  if ((o.flags & GSC_OPTIMIZER_NESTEROV) != 0 && (o.momentum <= 0.0 || o.dampening != 0.0)) {
    refuse(kOptions.field("flags"), "has NESTEROV, which needs momentum > 0 and dampening 0");
  }
  validate_param_range(kind, o);
}

Hyper make_hyper(const gsc_optimizer_options &o) {
  // Without momentum PyTorch's SGD takes the gradient whole, whatever the dampening.
  const double dampening = o.kind == GSC_SGD && o.momentum == 0.0 ? 0.0 : o.dampening;
  const auto has = [&](uint32_t flag) { return (o.flags & flag) != 0; };
  return {.lr = o.lr,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .momentum = o.momentum,
          .dampening = dampening,
          .lr_decay = o.lr_decay,
          .alpha = o.alpha,
          .rho = o.rho,
          .mu_decay = std::pow(0.96, o.momentum_decay),
          .eps_root = o.eps_root,
          .beta3 = o.beta3,
          .half_life1 = half_life(o.beta1),
          .half_life3 = half_life(o.beta3),
          .warmup_steps = o.warmup_steps,
          .beta3_warmup = o.beta3_warmup,
          .weight_step_power = o.weight_step_power,
          .weight_lr_power = o.weight_lr_power,
          .trust_coefficient = o.trust_coefficient,
          .ema_decay = o.ema_decay,
          .param_min = o.param_min,
          .param_max = o.param_max,
          .decoupled = has(GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY),
          .nesterov = has(GSC_OPTIMIZER_NESTEROV),
          .corrects_bias = has(GSC_OPTIMIZER_BIAS_CORRECTION),
          .warms_up_ema = has(GSC_OPTIMIZER_EMA_WARMUP),
          .cautious = has(GSC_OPTIMIZER_CAUTIOUS),
          .decays_cautiously = has(GSC_OPTIMIZER_CAUTIOUS_DECAY)};
}

}  // namespace gsc
