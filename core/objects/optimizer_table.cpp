// SPDX-License-Identifier: Apache-2.0
// What the formulas say of their kinds of optimizer, and the validation of hyper-parameters.
#include "core/objects/optimizer_table.h"

#include <cmath>

#include "core/base/decimal.h"
#include "core/base/error.h"

namespace gsc {
namespace {

constexpr uint32_t kCommonFlags = GSC_OPTIMIZER_MAXIMIZE | GSC_OPTIMIZER_ZERO_GRADS | GSC_OPTIMIZER_WRITE_GRADS |
                                  GSC_OPTIMIZER_COUNT_UNCHANGED | GSC_OPTIMIZER_EMA_WARMUP;

/// f(traits) of each formula.
template <typename F>
void for_each_formula(const F &f) {
  for (int32_t i = 0; i < kVariantCount; ++i) f(static_cast<Variant>(i), traits(static_cast<Variant>(i)));
}

/// The flags of the formulas of a kind, and those that every kind has.
uint32_t flags_of(int32_t kind) {
  uint32_t flags = kCommonFlags;
  for_each_formula([&](Variant, const Traits &t) {
    if (t.kind.code == kind) flags |= t.flag | t.own_flags;
  });
  return flags;
}

/// Parameters other than fp64 are computed in fp32, where more than this is inf.
void require_fp32(const Argument &name, double value) {
  if (std::isfinite(static_cast<float>(value))) return;
  refuse_value(name, value, "finite as a float");
}

void require_beta(Literal name, double value) {
  if (!(value >= 0.0 && value < 1.0)) {
    refuse_value(kOptions.field(name), value, "in [0, 1)");
  }
}

void require_open(Literal name, double value) {
  if (!(value > 0.0 && value < 1.0)) {
    refuse_value(kOptions.field(name), value, "in (0, 1) for a Schedule-Free optimizer");
  }
}

void require_steps(Literal name, int64_t value) {
  if (value < 0 || value > kMostSteps) {
    refuse_value(kOptions.field(name), value, "in 0..2^53");
  }
}

/// Steps in which a mean that decays by `beta` loses half.
double half_life(double beta) { return std::log(0.5) / std::log(beta); }

}  // namespace

void require_at_least_zero(const Argument &name, double value) {
  if (!std::isfinite(value) || value < 0.0) {
    refuse_value(name, value, "finite and >= 0");
  }
  require_fp32(name, value);
}

const Kind &require_kind(int32_t kind, const Argument &name) {
  const Kind *found = nullptr, *first = nullptr, *last = nullptr;
  for_each_formula([&](Variant, const Traits &t) {
    if (t.kind.code == kind) found = &t.kind;
    if (first == nullptr || t.kind.code < first->code) first = &t.kind;
    if (last == nullptr || t.kind.code > last->code) last = &t.kind;
  });
  if (found != nullptr) return *found;
  refuse(name, "is %d; it must be a kind of optimizer, %d (%s) to %d (%s)", kind, first->code, first->name, last->code,
         last->name);
}

gsc_optimizer_options default_options(int32_t kind, const Argument &name) {
  const auto &defaults = require_kind(kind, name).defaults;
  gsc_optimizer_options o{};
  o.struct_size = sizeof o;
  o.kind = kind;
  o.lr = defaults.lr;
  o.beta1 = defaults.beta1;
  o.beta2 = defaults.beta2;
  o.eps = defaults.eps;
  o.weight_decay = defaults.weight_decay;
  o.alpha = defaults.alpha;
  o.rho = defaults.rho;
  o.momentum_decay = defaults.momentum_decay;
  o.eps_root = defaults.eps_root;
  o.beta3 = defaults.beta3;
  o.momentum = defaults.momentum;
  o.weight_lr_power = defaults.weight_lr_power;
  o.trust_coefficient = defaults.trust_coefficient;
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

int32_t state_dtype(int32_t format, Slot holds, int32_t param_dtype) {
  if (holds != Slot::kMoment && holds != Slot::kSecondMoment) return full_dtype(holds, param_dtype);
  if (format == GSC_STATE_BITS16) return holds == Slot::kMoment ? GSC_BF16 : GSC_UFP16_E5M11;
  if (format == GSC_STATE_BITS8) return holds == Slot::kMoment ? GSC_FP8_E4M3 : GSC_UFP8_E4M4;
  return full_dtype(holds, param_dtype);
}

void validate(const gsc_optimizer_options &o) {
  const Kind &kind = require_kind(o.kind);
  if (const uint32_t others = o.flags & ~flags_of(o.kind); others != 0) {
    refuse(kOptions.field("flags"), "has bits that %s does not take: 0x%x", kind.name, others);
  }
  if (o.state_format < GSC_STATE_FULL || o.state_format > GSC_STATE_BITS8) {
    refuse_value(kOptions.field("state_format"), o.state_format, "GSC_STATE_FULL, GSC_STATE_BITS16 or GSC_STATE_BITS8");
  }
  if (o.master_format < GSC_MASTER_NONE || o.master_format > GSC_MASTER_STOCHASTIC) {
    refuse_value(kOptions.field("master_format"), o.master_format,
                 "GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8 or GSC_MASTER_STOCHASTIC");
  }
  if (o.reserved != 0) refuse_value(kOptions.field("reserved"), o.reserved, "0");
  if ((o.flags & GSC_OPTIMIZER_ZERO_GRADS) != 0 && (o.flags & GSC_OPTIMIZER_WRITE_GRADS) != 0) {
    refuse(kOptions.field("flags"), "has both ZERO_GRADS and WRITE_GRADS");
  }
  require_at_least_zero(kOptions.field("lr"), o.lr);
  require_beta("beta1", o.beta1);
  require_beta("beta2", o.beta2);
  require_at_least_zero(kOptions.field("eps"), o.eps);
  require_at_least_zero(kOptions.field("weight_decay"), o.weight_decay);
  require_at_least_zero(kOptions.field("momentum"), o.momentum);
  if (!std::isfinite(o.dampening)) {
    refuse_value(kOptions.field("dampening"), o.dampening, "finite");
  }
  require_fp32(kOptions.field("dampening"), o.dampening);
  require_at_least_zero(kOptions.field("lr_decay"), o.lr_decay);
  require_at_least_zero(kOptions.field("initial_accumulator_value"), o.initial_accumulator_value);
  if (o.kind == GSC_RMSPROP) {
    require_beta("alpha", o.alpha);
  } else {
    require_at_least_zero(kOptions.field("alpha"), o.alpha);
  }
  require_beta("rho", o.rho);
  require_at_least_zero(kOptions.field("momentum_decay"), o.momentum_decay);
  require_at_least_zero(kOptions.field("eps_root"), o.eps_root);
  require_beta("beta3", o.beta3);
  require_steps("warmup_steps", o.warmup_steps);
  require_steps("beta3_warmup", o.beta3_warmup);
  require_at_least_zero(kOptions.field("weight_step_power"), o.weight_step_power);
  require_at_least_zero(kOptions.field("weight_lr_power"), o.weight_lr_power);
  require_at_least_zero(kOptions.field("trust_coefficient"), o.trust_coefficient);
  require_beta("ema_decay", o.ema_decay);
  // The averaged weights are found by a division by it.
  if (o.kind == GSC_ADAMW_SCHEDULE_FREE) require_open("beta1", o.beta1);
  if (o.kind == GSC_SGD_SCHEDULE_FREE) require_open("momentum", o.momentum);
  if ((o.flags & GSC_OPTIMIZER_NESTEROV) != 0 && (o.momentum <= 0.0 || o.dampening != 0.0)) {
    refuse(kOptions.field("flags"), "has NESTEROV, which needs momentum > 0 and dampening 0");
  }
}

Hyper make_hyper(const gsc_optimizer_options &o) {
  // Without momentum PyTorch's SGD takes the gradient whole, whatever the dampening.
  const double dampening = o.kind == GSC_SGD && o.momentum == 0.0 ? 0.0 : o.dampening;
  const bool decoupled = (o.flags & GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY) != 0;
  return {o.lr,
          o.beta1,
          o.beta2,
          o.eps,
          o.weight_decay,
          o.momentum,
          dampening,
          o.lr_decay,
          o.alpha,
          o.rho,
          std::pow(0.96, o.momentum_decay),
          o.eps_root,
          o.beta3,
          half_life(o.beta1),
          half_life(o.beta3),
          o.warmup_steps,
          o.beta3_warmup,
          o.weight_step_power,
          o.weight_lr_power,
          o.trust_coefficient,
          o.ema_decay,
          decoupled,
          (o.flags & GSC_OPTIMIZER_NESTEROV) != 0,
          (o.flags & GSC_OPTIMIZER_BIAS_CORRECTION) != 0,
          (o.flags & GSC_OPTIMIZER_EMA_WARMUP) != 0};
}

}  // namespace gsc
