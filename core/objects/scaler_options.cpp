// SPDX-License-Identifier: Apache-2.0
// Scaler options and presets. Each preset names the system whose rule it is; docs/concepts.md lists them.
#include "core/objects/scaler_options.h"

#include <cfloat>
#include <cmath>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/objects/require_range.h"
#include "core/rules/option_ranges.h"

namespace gsc {
namespace {

/// A range for each option that has one.
struct ScalerRanges {
#define GSC_MEMBER(field, range) Range field = range;
  GSC_SCALER_RANGES(GSC_MEMBER)
#undef GSC_MEMBER
};
constexpr ScalerRanges kScalerRanges;

}  // namespace

gsc_scaler_options default_scaler_options() {
  gsc_scaler_options o = GSC_SCALER_OPTIONS_INIT;
  return o;
}

gsc_scaler_options preset_scaler_options(int32_t preset) {
  gsc_scaler_options o = default_scaler_options();
  switch (preset) {
    case GSC_PRESET_TORCH:  // torch/amp/grad_scaler.py, _amp_update_scale_
      return o;
    case GSC_PRESET_APEX:  // apex/amp/scaler.py LossScaler
      o.max_scale = 0x1p24F;
      return o;
    case GSC_PRESET_APEX_HYSTERESIS:  // apex csrc/update_scale_hysteresis.cu
      o.hysteresis = 2;
      o.hysteresis_refill = GSC_REFILL_ON_CLEAN_STEP;
      return o;
    case GSC_PRESET_MEGATRON:  // megatron/core/optimizer/grad_scaler.py DynamicGradScaler
      o.init_scale = 0x1p32F;
      o.min_scale = 1.0F;
      o.growth_interval = 1000;
      o.hysteresis = 2;
      o.flags = GSC_SCALER_NO_FINITE_GUARD | GSC_SCALER_FP32_PRODUCTS;
      return o;
    case GSC_PRESET_DEEPSPEED:  // deepspeed/runtime/fp16/loss_scaler.py DynamicLossScaler
      o.min_scale = 1.0F;
      o.growth_interval = 1000;
      o.hysteresis = 2;
      o.growth_timing = GSC_GROWTH_FIRST_ONE_LATER;
      o.floor_action = GSC_FLOOR_ERROR;  // raise_error_at_min_scale
      o.flags = GSC_SCALER_NO_FINITE_GUARD;
      return o;
    case GSC_PRESET_TENSORFLOW:  // tensorflow/python/keras/mixed_precision/loss_scale_optimizer.py
      o.init_scale = 0x1p15F;
      o.min_scale = 1.0F;
      return o;
    case GSC_PRESET_KERAS:  // keras/src/optimizers/loss_scale_optimizer.py
      o.init_scale = 0x1p15F;
      o.flags = GSC_SCALER_NO_FINITE_GUARD | GSC_SCALER_FP32_PRODUCTS;
      return o;
    case GSC_PRESET_FLAX:  // flax/training/dynamic_scale.py
      o.growth_timing = GSC_GROWTH_ONE_LATER;
      o.min_scale = FLT_MIN;
      o.max_scale = FLT_MAX;
      o.flags = GSC_SCALER_FP32_PRODUCTS;
      return o;
    case GSC_PRESET_JMP:  // jmp/_src/loss_scale.py DynamicLossScale, under jit
      o.init_scale = 0x1p15F;
      o.min_scale = 1.0F;
      o.flags = GSC_SCALER_FP32_PRODUCTS;
      return o;
    case GSC_PRESET_PADDLE:  // python/paddle/amp/grad_scaler.py, with the floor and guard of the update_loss_scaling op
      o.hysteresis_refill = GSC_REFILL_CONSECUTIVE;
      o.min_scale = 1.0F;
      o.flags = GSC_SCALER_FP32_PRODUCTS;
      return o;
    case GSC_PRESET_MINDSPORE:  // mindspore/python/mindspore/amp.py DynamicLossScaler
      o.min_scale = 1.0F;
      return o;
    case GSC_PRESET_FAIRSEQ:  // fairseq/optim/dynamic_loss_scaler.py
      o.init_scale = 0x1p15F;
      o.min_scale = 1e-4F;
      o.floor_action = GSC_FLOOR_ERROR;
      o.flags = GSC_SCALER_NO_FINITE_GUARD | GSC_SCALER_FLOOR_EXCLUSIVE;
      return o;
    case GSC_PRESET_ONEFLOW:  // oneflow/python/oneflow/amp/grad_scaler.py
      o.min_scale = 1.0F;
      o.max_scale = FLT_MAX;
      return o;
    case GSC_PRESET_COLOSSALAI:  // colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py
      o.growth_interval = 1000;
      o.hysteresis = 2;
      o.flags = GSC_SCALER_NO_FINITE_GUARD | GSC_SCALER_FP32_PRODUCTS;
      return o;
    case GSC_PRESET_CHECK:  // deepspeed bf16 with check_grad_overflow, megatron with a constant scale of 1
      o.init_scale = 1.0F;
      o.flags = GSC_SCALER_STATIC_SCALE;
      return o;
    case GSC_PRESET_STATIC_SCALE:  // tiny-cuda-nn common.h default_loss_scale
      o.init_scale = 128.0F;
      o.flags = GSC_SCALER_STATIC_SCALE;
      return o;
    default:
      refuse_value("preset", preset, "one of GSC_PRESET_*");
  }
}

void validate_growth_factor(double value, const Argument &name) {
  require_in(kScalerRanges.growth_factor, name, value);
}

void validate_backoff_factor(double value, const Argument &name) {
  require_in(kScalerRanges.backoff_factor, name, value);
}

void validate_growth_interval(int32_t value, const Argument &name) {
  require_in(kScalerRanges.growth_interval, name, value);
}

void validate_factors(const gsc_scaler_options &o, const Argument &of) {
  validate_growth_interval(o.growth_interval, of.field("growth_interval"));
  validate_growth_factor(o.growth_factor, of.field("growth_factor"));
  validate_backoff_factor(o.backoff_factor, of.field("backoff_factor"));
  if ((o.flags & GSC_SCALER_FP32_PRODUCTS) != 0 && o.growth_factor > static_cast<double>(FLT_MAX)) {
    refuse_value(of.field("growth_factor"), o.growth_factor, "a finite float with GSC_SCALER_FP32_PRODUCTS");
  }
  const Policy policy = make_policy(o);
  require_moving_factor(policy, o.init_scale, o.growth_factor, of.field("growth_factor"));
  require_moving_factor(policy, o.init_scale, o.backoff_factor, of.field("backoff_factor"));
}

void validate(const gsc_scaler_options &o) {
  if ((o.flags & ~GSC_SCALER_FLAGS) != 0) refuse(kOptions.field("flags"), "has unknown bits: 0x%x", o.flags);
#define GSC_REQUIRE(field_, range) require_in(range, kOptions.field(#field_), o.field_);
  GSC_SCALER_RANGES(GSC_REQUIRE)
  GSC_SCALER_WORDS(GSC_REQUIRE)
#undef GSC_REQUIRE
  if (o.max_scale > 0.0F && o.min_scale > o.max_scale) {
    refuse(kOptions.field("min_scale"), "is %s, above options.max_scale, which is %s", Decimal(o.min_scale).c_str(),
           Decimal(o.max_scale).c_str());
  }
  validate_factors(o, kOptions);
  if (o.recovery_threshold > 0.0F && o.recovery_interval < 1) {
    refuse_value(kOptions.field("recovery_interval"), o.recovery_interval, ">= 1 with a recovery_threshold");
  }
  if (o.reserved != 0) refuse_value(kOptions.field("reserved"), o.reserved, "0");
}

void validate_first_scale(const gsc_scaler_options &o) {
  if (o.init_scale < o.min_scale) {
    refuse(kOptions.field("init_scale"), "is %s, below options.min_scale, which is %s", Decimal(o.init_scale).c_str(),
           Decimal(o.min_scale).c_str());
  }
  if (o.max_scale > 0.0F && o.init_scale > o.max_scale) {
    refuse(kOptions.field("init_scale"), "is %s, above options.max_scale, which is %s", Decimal(o.init_scale).c_str(),
           Decimal(o.max_scale).c_str());
  }
}

void require_moving_factor(const Policy &policy, float scale, double factor, const Argument &name) {
  if (multiply_scale(policy, scale, factor) != scale) return;
  refuse(name, "is 1%s; a scale of %s times that rounds to %s again and would never change",
         Decimal::with_sign(factor - 1.0).c_str(), Decimal(scale).c_str(), Decimal(scale).c_str());
}

Policy make_policy(const gsc_scaler_options &o) {
  Policy p{};
  p.growth_factor = o.growth_factor;
  p.backoff_factor = o.backoff_factor;
  p.overflow_tolerance = o.overflow_tolerance;
  p.min_scale = o.min_scale;
  p.max_scale = o.max_scale;
  p.recovery_threshold = o.recovery_threshold;
  p.growth_interval = o.growth_interval;
  p.recovery_interval = o.recovery_interval;
  p.hysteresis = o.hysteresis;
  p.hysteresis_refill = o.hysteresis_refill;
  p.growth_timing = o.growth_timing;
  p.floor_action = o.floor_action;
  p.floor_patience = o.floor_patience;
  p.flags = o.flags;
  p.spikes.norm = o.skip_norm;
  p.spikes.factor = o.spike_factor;
  p.spikes.deviations = o.spike_deviations;
  p.spikes.window = o.spike_window;
  p.spikes.warmup = o.spike_warmup;
  p.spikes.patience = o.spike_patience;
  p.spikes.action = o.spike_action;
  return p;
}

}  // namespace gsc
