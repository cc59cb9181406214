// SPDX-License-Identifier: Apache-2.0
// The optimizer table and the validation of hyper-parameters.
#include "core/objects/optimizer_table.h"

#include <cmath>

#include "core/base/error.h"

namespace gsc {
namespace {

constexpr uint32_t kCommonFlags = GSC_OPTIMIZER_MAXIMIZE | GSC_OPTIMIZER_ZERO_GRADS | GSC_OPTIMIZER_WRITE_GRADS;

constexpr gsc_optimizer_options defaults(int32_t kind, double lr, double beta1, double beta2, double eps,
                                         double weight_decay) {
  return {static_cast<uint32_t>(sizeof(gsc_optimizer_options)),
          0,
          kind,
          0,
          lr,
          beta1,
          beta2,
          eps,
          weight_decay,
          0.0,
          0.0,
          0.0,
          0.0};
}

Variant adam_variant(const gsc_optimizer_options &o, Variant plain, Variant amsgrad) {
  return (o.flags & GSC_OPTIMIZER_AMSGRAD) != 0 ? amsgrad : plain;
}

const OptimizerInfo kTable[] = {
    {GSC_SGD,
     "SGD",
     defaults(GSC_SGD, 1e-3, 0, 0, 0, 0),
     {"momentum_buffer", nullptr, nullptr},
     kCommonFlags | GSC_OPTIMIZER_NESTEROV,
     [](const gsc_optimizer_options &o) {
       if ((o.flags & GSC_OPTIMIZER_NESTEROV) != 0) return Variant::kSgdNesterov;
       return o.momentum != 0.0 ? Variant::kSgdMomentum : Variant::kSgd;
     }},
    {GSC_ADAM,
     "Adam",
     defaults(GSC_ADAM, 1e-3, 0.9, 0.999, 1e-8, 0),
     {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
     kCommonFlags | GSC_OPTIMIZER_AMSGRAD,
     [](const gsc_optimizer_options &o) { return adam_variant(o, Variant::kAdam, Variant::kAdamAmsgrad); }},
    {GSC_ADAMW,
     "AdamW",
     defaults(GSC_ADAMW, 1e-3, 0.9, 0.999, 1e-8, 1e-2),
     {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
     kCommonFlags | GSC_OPTIMIZER_AMSGRAD,
     [](const gsc_optimizer_options &o) { return adam_variant(o, Variant::kAdamW, Variant::kAdamWAmsgrad); }},
    {GSC_ADAGRAD,
     "Adagrad",
     defaults(GSC_ADAGRAD, 1e-2, 0, 0, 1e-10, 0),
     {"sum", nullptr, nullptr},
     kCommonFlags,
     [](const gsc_optimizer_options &) { return Variant::kAdagrad; }},
    {GSC_LION,
     "Lion",
     defaults(GSC_LION, 1e-4, 0.9, 0.99, 0, 0),
     {"exp_avg", nullptr, nullptr},
     kCommonFlags,
     [](const gsc_optimizer_options &) { return Variant::kLion; }},
    {GSC_LAMB,
     "LAMB",
     defaults(GSC_LAMB, 1e-3, 0.9, 0.999, 1e-6, 1e-2),
     {"exp_avg", "exp_avg_sq", nullptr},
     kCommonFlags,
     [](const gsc_optimizer_options &) { return Variant::kLamb; }},
};

constexpr Argument kOptions{"options"};

void require_at_least_zero(Literal name, double value) {
  if (!std::isfinite(value) || value < 0.0) {
    fail(GSC_ERROR_INVALID_ARGUMENT, kOptions.field(name), "is %g; it must be finite and >= 0", value);
  }
}

void require_beta(Literal name, double value) {
  if (!(value >= 0.0 && value < 1.0)) {
    fail(GSC_ERROR_INVALID_ARGUMENT, kOptions.field(name), "is %g; it must be in [0, 1)", value);
  }
}

}  // namespace

const OptimizerInfo &optimizer_info(int32_t kind, const Argument &name) {
  for (const OptimizerInfo &info : kTable) {
    if (info.kind == kind) return info;
  }
  fail(GSC_ERROR_INVALID_ARGUMENT, name, "is %d; it must be one of GSC_SGD ... GSC_LAMB", kind);
}

void validate(const gsc_optimizer_options &o) {
  const OptimizerInfo &info = optimizer_info(o.kind);
  if ((o.flags & ~info.flags) != 0) {
    fail(GSC_ERROR_INVALID_ARGUMENT, kOptions.field("flags"), "has bits that %s does not take: 0x%x", info.name,
         o.flags & ~info.flags);
  }
  if (o.state_dtype != 0) {
    fail(GSC_ERROR_INVALID_ARGUMENT, kOptions.field("state_dtype"),
         "is %d; this version supports 0 only: fp32, and fp64 for fp64 parameters", o.state_dtype);
  }
  if ((o.flags & GSC_OPTIMIZER_ZERO_GRADS) != 0 && (o.flags & GSC_OPTIMIZER_WRITE_GRADS) != 0) {
    fail(GSC_ERROR_INVALID_ARGUMENT, kOptions.field("flags"), "has both ZERO_GRADS and WRITE_GRADS");
  }
  require_at_least_zero("lr", o.lr);
  require_beta("beta1", o.beta1);
  require_beta("beta2", o.beta2);
  require_at_least_zero("eps", o.eps);
  require_at_least_zero("weight_decay", o.weight_decay);
  require_at_least_zero("momentum", o.momentum);
  if (!std::isfinite(o.dampening)) {
    fail(GSC_ERROR_INVALID_ARGUMENT, kOptions.field("dampening"), "is %g; it must be finite", o.dampening);
  }
  require_at_least_zero("lr_decay", o.lr_decay);
  require_at_least_zero("initial_accumulator_value", o.initial_accumulator_value);
  if ((o.flags & GSC_OPTIMIZER_NESTEROV) != 0 && (o.momentum <= 0.0 || o.dampening != 0.0)) {
    fail(GSC_ERROR_INVALID_ARGUMENT, kOptions.field("flags"), "has NESTEROV, which needs momentum > 0 and dampening 0");
  }
}

Hyper make_hyper(const gsc_optimizer_options &o) {
  // Without momentum PyTorch's SGD takes the gradient whole, whatever the dampening.
  const double dampening = o.momentum != 0.0 ? o.dampening : 0.0;
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.momentum, dampening, o.lr_decay};
}

}  // namespace gsc
