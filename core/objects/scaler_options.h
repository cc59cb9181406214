// SPDX-License-Identifier: Apache-2.0
// Scaler options: defaults, the presets of other systems, validation, and conversion to a policy.
#pragma once

#include "core/base/error.h"
#include "core/rules/policy.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

gsc_scaler_options default_scaler_options();
/// Throws for an unknown preset.
gsc_scaler_options preset_scaler_options(int32_t preset);
/// Throws and names the first option that is out of range.
void validate(const gsc_scaler_options &options);
/// The options in a checkpoint: growth_factor, backoff_factor and growth_interval, as fields of `of`.
void validate_factors(const gsc_scaler_options &options, const Argument &of);
void validate_growth_factor(double value, const Argument &name);
void validate_backoff_factor(double value, const Argument &name);
void validate_growth_interval(int32_t value, const Argument &name);
/// Checks that apply at creation only: later the scale has changed, and limits may change.
void validate_first_scale(const gsc_scaler_options &options);
/// Refuses a factor so near to 1 that `scale` times it rounds to `scale`.
void require_moving_factor(const Policy &policy, float scale, double factor, const Argument &name);
Policy make_policy(const gsc_scaler_options &options);

}  // namespace gsc
