// SPDX-License-Identifier: Apache-2.0
// Packs records into a gsc_report. Compiled for host and device.
#pragma once

#include "core/rules/records.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

GSC_HD bool at_floor(const Policy &p, const PolicyState &s) {
  return p.floor_action != GSC_FLOOR_CLAMP && s.skips_at_floor >= p.floor_patience;
}

/// Whether no gradient can be unscaled, so that every step is skipped.
GSC_HD bool has_underflowed(const PolicyState &s) { return !policy::is_finite(s.inv_scale); }

/// Whether the caller is to be told that spikes do not end.
GSC_HD bool spikes_persist(const SpikeRule &rule, int32_t run) {
  return rule.action == GSC_SPIKE_ERROR && rule.patience > 0 && run >= rule.patience;
}

/// `list` NULL: the last update.
GSC_HD void pack_report(const ScalerRecord &r, const ListRecord *list, gsc_report &out) {
  out.struct_size = static_cast<uint32_t>(sizeof(gsc_report));
  out.scale = r.state.scale;
  out.growth_tracker = r.state.growth_tracker;
  out.hysteresis_tracker = r.state.hysteresis_left;
  out.consecutive_skips = r.state.consecutive_skips;
  out.updates = r.state.updates;
  out.skipped = r.state.skipped;
  const double nonfinite = list != nullptr ? list->reduce[0] : r.last.nonfinite;
  out.flags = 0;
  if (nonfinite != 0.0) out.flags |= GSC_REPORT_OVERFLOW;
  if (at_floor(r.policy, r.state)) out.flags |= GSC_REPORT_AT_FLOOR;
  if (has_underflowed(r.state)) out.flags |= GSC_REPORT_SCALE_UNDERFLOW;
  out.nonfinite_count = static_cast<int64_t>(nonfinite);
  out.spikes = r.state.spikes;
  const bool is_spike = list != nullptr ? list->spike != 0 : nonfinite == 0.0 && r.last.spikes > 0;
  if (is_spike) out.flags |= GSC_REPORT_SPIKE;
  const int32_t run = list != nullptr ? list->spike : r.last.spike_run;
  if (is_spike && spikes_persist(r.policy.spikes, run)) out.flags |= GSC_REPORT_SPIKES_PERSIST;
  if (list != nullptr) {
    out.grad_norm = list->grad_norm;
    out.grad_amax = list->grad_amax;
    out.inf_count = list->inf_count;
    out.nan_count = list->nan_count;
    out.first_tensor = list->first_tensor;
    out.first_element = list->first_element;
    out.norm_limit = list->norm_limit;
    out.norm_average = list->norm_average;
  } else {
    out.grad_norm = square_root(r.last.sum_sq);
    out.grad_amax = r.last.amax;
    out.inf_count = r.last.inf_count;
    out.nan_count = r.last.nan_count;
    out.first_tensor = r.last.first_tensor;
    out.first_element = r.last.first_element;
    out.norm_limit = r.last.norm_limit;
    out.norm_average = r.last.norm_average;
  }
}

}  // namespace gsc
