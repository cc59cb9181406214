// SPDX-License-Identifier: Apache-2.0
// The table of optimizers, made from the formulas, and the validation of hyper-parameters.
#include "core/objects/optimizer_table.h"

#include <cmath>

#include "core/base/decimal.h"
#include "core/base/error.h"

namespace gsc {
namespace {

constexpr uint32_t kCommonFlags = GSC_OPTIMIZER_MAXIMIZE | GSC_OPTIMIZER_ZERO_GRADS | GSC_OPTIMIZER_WRITE_GRADS |
                                  GSC_OPTIMIZER_COUNT_UNCHANGED | GSC_OPTIMIZER_EMA_WARMUP;

/// The flags of the formulas of a kind, and those that every kind has.
constexpr uint32_t flags_of(int32_t code) {
  uint32_t flags = kCommonFlags;
#define GSC_FLAGS(enumerator, formula) \
  if (formula::kKind.code == code) flags |= kFlag<formula> | kOwnFlags<formula>;
  GSC_FOR_EACH_VARIANT(GSC_FLAGS)
#undef GSC_FLAGS
  return flags;
}

constexpr OptimizerInfo info_of(const Kind &kind) {
  gsc_optimizer_options defaults{};
  defaults.struct_size = sizeof defaults;
  defaults.kind = kind.code;
  defaults.lr = kind.defaults.lr;
  defaults.beta1 = kind.defaults.beta1;
  defaults.beta2 = kind.defaults.beta2;
  defaults.eps = kind.defaults.eps;
  defaults.weight_decay = kind.defaults.weight_decay;
  defaults.alpha = kind.defaults.alpha;
  defaults.rho = kind.defaults.rho;
  defaults.momentum_decay = kind.defaults.momentum_decay;
  defaults.eps_root = kind.defaults.eps_root;
  defaults.beta3 = kind.defaults.beta3;
  defaults.momentum = kind.defaults.momentum;
  defaults.weight_lr_power = kind.defaults.weight_lr_power;
  defaults.trust_coefficient = kind.defaults.trust_coefficient;
  return {kind, defaults, flags_of(kind.code)};
}

/// A row for each formula, in the order of the kinds. Those of one kind are alike but for their slots.
constexpr OptimizerInfo kTable[] = {
#define GSC_ROW(enumerator, formula) info_of(formula::kKind),
    GSC_FOR_EACH_VARIANT(GSC_ROW)
#undef GSC_ROW
};

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

const OptimizerInfo &optimizer_info(int32_t kind, const Argument &name) {
  for (const OptimizerInfo &info : kTable) {
    if (info.kind.code == kind) return info;
  }
  const Kind &first = kTable[0].kind, &last = kTable[kVariantCount - 1].kind;
  refuse(name, "is %d; it must be a kind of optimizer, %d (%s) to %d (%s)", kind, first.code, first.name, last.code,
         last.name);
}

Variant variant_of(const gsc_optimizer_options &o) {
  const int32_t kind = optimizer_info(o.kind).kind.code;
  Variant found{};
#define GSC_PICK(enumerator, formula)                                    \
  if (formula::kKind.code == kind && (kFlag<formula> & ~o.flags) == 0 && \
      (!kNeedsMomentum<formula> || o.momentum != 0.0)) {                 \
    found = Variant::enumerator;                                         \
  }
  GSC_FOR_EACH_VARIANT(GSC_PICK)
#undef GSC_PICK
  return found;
}

const Kind &kind_of(Variant variant) { return kTable[static_cast<std::size_t>(variant)].kind; }

bool momentum_picks_formula(int32_t kind) {
#define GSC_PICKS(enumerator, formula) (formula::kKind.code == kind && kNeedsMomentum<formula>) ||
  return GSC_FOR_EACH_VARIANT(GSC_PICKS) false;
#undef GSC_PICKS
}

int32_t state_dtype(int32_t format, Slot holds, int32_t param_dtype) {
  if (holds != Slot::kMoment && holds != Slot::kSecondMoment) return full_dtype(holds, param_dtype);
  if (format == GSC_STATE_BITS16) return holds == Slot::kMoment ? GSC_BF16 : GSC_UFP16_E5M11;
  if (format == GSC_STATE_BITS8) return holds == Slot::kMoment ? GSC_FP8_E4M3 : GSC_UFP8_E4M4;
  return full_dtype(holds, param_dtype);
}

void validate(const gsc_optimizer_options &o) {
  const OptimizerInfo &info = optimizer_info(o.kind);
  if ((o.flags & ~info.flags) != 0) {
    refuse(kOptions.field("flags"), "has bits that %s does not take: 0x%x", info.kind.name, o.flags & ~info.flags);
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
