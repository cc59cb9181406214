// SPDX-License-Identifier: Apache-2.0
// The scale policy: one plain struct of rules, one of state, and the pure function that takes the state from one
// update to the next. Compiled for host and device. It knows nothing of lists, optimizers or memory.
#pragma once

#include <cstdint>

#include "core/rules/spikes.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

/// Rules. The enumerations and flags are those of gsc_scaler_options; scaler_options.cpp fills in the named systems.
struct Policy {
  double growth_factor;
  double backoff_factor;
  double overflow_tolerance;
  float min_scale;
  float max_scale;
  float recovery_threshold;
  int32_t growth_interval;
  int32_t recovery_interval;
  int32_t hysteresis;
  int32_t hysteresis_refill;
  int32_t growth_timing;
  int32_t floor_action;
  int32_t floor_patience;
  uint32_t flags;
  int32_t reserved;
  SpikeRule spikes;  ///< for checks: the scale does not go by it
};

/// State, in device memory.
struct PolicyState {
  float scale;
  float inv_scale;
  int32_t growth_tracker;
  int32_t hysteresis_left;
  int32_t overflows_since_rescale;
  int32_t updates_since_rescale;
  int32_t consecutive_skips;
  int32_t skips_at_floor;  ///< consecutive overflows that could not lower the scale
  int64_t updates;
  int64_t skipped;
  int64_t spikes;  ///< of these, for a norm that was too large
};

/// What the lists of an update come to.
enum class Verdict : int32_t {
  kClean,
  kOverflow,  ///< some list had a non-finite gradient
  kSpike,     ///< none had, and the norm of some list was too large
};

namespace policy {
inline constexpr float kFloatMax = 3.402823466e+38F;
GSC_HD bool is_finite(float x) { return x >= -kFloatMax && x <= kFloatMax; }
}  // namespace policy

/// PyTorch's rule: the inverse is computed in double and rounded to float.
GSC_HD float inverse_scale(float scale) { return static_cast<float>(1.0 / static_cast<double>(scale)); }

/// Sets the scale and its inverse. No overflow has found the new scale at its floor.
GSC_HD void store_scale(PolicyState &s, float scale) {
  s.scale = scale;
  s.inv_scale = inverse_scale(scale);
  s.skips_at_floor = 0;
}

/// Counters saturate: a restored state may begin at their largest value.
GSC_HD int32_t one_more(int32_t count) { return count < INT32_MAX ? count + 1 : count; }
GSC_HD int64_t one_more(int64_t count) { return count < INT64_MAX ? count + 1 : count; }

/// scale * factor, in double and rounded, as in PyTorch, or in fp32.
GSC_HD float multiply_scale(const Policy &p, float scale, double factor) {
  if ((p.flags & GSC_SCALER_FP32_PRODUCTS) != 0) return scale * static_cast<float>(factor);
  return static_cast<float>(static_cast<double>(scale) * factor);
}

GSC_HD int32_t active_interval(const Policy &p, float scale) {
  return scale < p.recovery_threshold ? p.recovery_interval : p.growth_interval;
}

/// An overflow. Hysteresis: every overflow lowers the counter, and at 0 the scale is lowered. Tolerance (fairseq): the
/// scale is lowered only if the rate of overflows since the last rescale has reached it.
GSC_HD void on_overflow(const Policy &p, PolicyState &s) {
  s.growth_tracker = 0;
  s.skipped = one_more(s.skipped);
  s.consecutive_skips = one_more(s.consecutive_skips);
  s.overflows_since_rescale = one_more(s.overflows_since_rescale);
  if (s.hysteresis_left > 0) s.hysteresis_left -= 1;
  const bool tolerated = p.overflow_tolerance > 0.0 &&
                         static_cast<double>(s.overflows_since_rescale) / static_cast<double>(s.updates_since_rescale) <
                             p.overflow_tolerance;
  if (s.hysteresis_left > 0 || tolerated) return;

  const bool is_static = (p.flags & GSC_SCALER_STATIC_SCALE) != 0;
  float lowered = is_static ? s.scale : multiply_scale(p, s.scale, p.backoff_factor);
  bool at_floor = lowered == s.scale;  // also inf, or a few subnormals
  if (p.min_scale > 0.0F) {
    const bool exclusive = (p.flags & GSC_SCALER_FLOOR_EXCLUSIVE) != 0;
    at_floor = at_floor || (exclusive ? lowered : s.scale) <= p.min_scale;
    if (at_floor) {
      lowered = s.scale;  // below the floor after set_scale or set_options: an overflow does not raise it
    } else if (lowered < p.min_scale) {
      lowered = p.min_scale;
    }
  } else {
    at_floor = at_floor || lowered == 0.0F;  // collapsed to 0
  }
  const int32_t skips_at_floor = at_floor ? one_more(s.skips_at_floor) : 0;
  store_scale(s, lowered);
  s.skips_at_floor = skips_at_floor;
  s.overflows_since_rescale = 0;
  s.updates_since_rescale = 0;
  if (p.hysteresis_refill == GSC_REFILL_CONSECUTIVE) s.hysteresis_left = p.hysteresis;
}

/// A clean step.
GSC_HD void on_clean_step(const Policy &p, PolicyState &s) {
  s.consecutive_skips = 0;
  s.skips_at_floor = 0;
  if (p.hysteresis_refill != GSC_REFILL_ON_GROWTH) s.hysteresis_left = p.hysteresis;

  // AT_INTERVAL tests the tracker with this step counted, the others without it.
  const int32_t interval = active_interval(p, s.scale);
  const int32_t tested = p.growth_timing == GSC_GROWTH_AT_INTERVAL ? one_more(s.growth_tracker) : s.growth_tracker;
  const bool is_static = (p.flags & GSC_SCALER_STATIC_SCALE) != 0;
  const bool is_due = (p.flags & GSC_SCALER_GROW_ON_EQUAL) != 0 ? tested == interval : tested >= interval;
  if (is_static || !is_due) {
    s.growth_tracker = one_more(s.growth_tracker);
    return;
  }
  s.growth_tracker = p.growth_timing == GSC_GROWTH_FIRST_ONE_LATER ? 1 : 0;
  s.hysteresis_left = p.hysteresis;
  float grown = multiply_scale(p, s.scale, p.growth_factor);
  if (p.max_scale > 0.0F && grown > p.max_scale) grown = p.max_scale;
  if (!policy::is_finite(grown) && (p.flags & GSC_SCALER_NO_FINITE_GUARD) == 0) return;
  store_scale(s, grown);
  s.updates_since_rescale = 0;  // fairseq resets the count of updates, not that of overflows
}

/// A step that was skipped for its norm: the scale and its trackers stay.
GSC_HD void on_spike(PolicyState &s) {
  s.skipped = one_more(s.skipped);
  s.consecutive_skips = one_more(s.consecutive_skips);
  s.spikes = one_more(s.spikes);
}

/// One update, by the lists checked since the last one.
GSC_HD void policy_update(const Policy &p, PolicyState &s, Verdict verdict) {
  s.updates = one_more(s.updates);
  s.updates_since_rescale = one_more(s.updates_since_rescale);
  switch (verdict) {
    case Verdict::kClean:
      return on_clean_step(p, s);
    case Verdict::kOverflow:
      return on_overflow(p, s);
    case Verdict::kSpike:
      return on_spike(s);
  }
}

/// The same on two of the caller's device scalars, under a policy that needs no more state.
GSC_HD void update_scale(const Policy &p, float &scale, int32_t &growth_tracker, bool overflow) {
  PolicyState state{};
  state.scale = scale;
  state.growth_tracker = growth_tracker;
  policy_update(p, state, overflow ? Verdict::kOverflow : Verdict::kClean);
  scale = state.scale;
  growth_tracker = state.growth_tracker;
}

}  // namespace gsc
