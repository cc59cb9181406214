// SPDX-License-Identifier: Apache-2.0
// Scaler options: defaults, the presets of other systems, validation, and the policy they stand for.
#pragma once

#include "core/base/error.h"
#include "core/rules/policy.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

gsc_scaler_options default_scaler_options();
/// Throws for an unknown preset.
gsc_scaler_options preset_scaler_options(int32_t preset);
/// Throws naming the first option out of range.
void validate(const gsc_scaler_options &options);
/// The part of it that a checkpoint brings: growth_factor, backoff_factor and growth_interval, as fields of `of`.
void validate_factors(const gsc_scaler_options &options, const Argument &of);
void validate_growth_factor(double value, const Argument &name);
void validate_backoff_factor(double value, const Argument &name);
void validate_growth_interval(int32_t value, const Argument &name);
/// What is asked of options only at creation: later the scale has moved, and limits may.
void validate_first_scale(const gsc_scaler_options &options);
/// Refuses a factor so near to 1 that it leaves `scale` where it is.
void require_moving_factor(const Policy &policy, float scale, double factor, const Argument &name);
Policy make_policy(const gsc_scaler_options &options);

}  // namespace gsc
