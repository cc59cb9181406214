// SPDX-License-Identifier: Apache-2.0
// The records in device memory, one per tensor list, scaler and optimizer, and the functions that conclude a check and
// an update on them. Compiled for host and device, so both backends agree by construction.
#pragma once

#include <cstdint>

#include "core/rules/optim/coefficients.h"
#include "core/rules/policy.h"
#include "core/rules/reduction.h"

namespace gsc {

/// No limit on the norm.
inline constexpr double kNoClip = -1.0;

/// How to clip gradients in the current iteration.
struct ClipRule {
  double max_norm;  ///< kNoClip: not by norm
  double value;     ///< +inf: not by value
  bool by_amax;     ///< GSC_NORM_INF instead of GSC_NORM_L2
};

/// The result of the last check of a list.
struct ListRecord {
  double reduce[2];  ///< non-finite count and sum of squares of the unscaled gradients; summed over ranks
  double grad_norm;
  double grad_amax;
  int64_t inf_count;
  int64_t nan_count;
  int64_t first_tensor;
  int64_t first_element;
  float found_inf;      ///< reduce[0] as a float: 0 if all are finite. 1 if the norm is a spike
  float clip;           ///< factor that the rule asks for, 1 if none
  double norm_limit;    ///< above which the norm is a spike
  int64_t judged_at;    ///< the scaler's updates when the norm was judged
  NormAverage average;  ///< by which it was judged
  NormAverage after;    ///< the average from the next update on
  double norm_average;  ///< its geometric mean, 0 if no norm is in it
  int32_t spike;        ///< steps skipped for their norm in a row, this one included; 0 if this one is not
  float multiplier;     ///< of the gradients, if the list has a device factor
  // Counted while chunks are checked, in any order:
  int64_t seen_inf;
  int64_t seen_nan;
  int64_t seen_first;  ///< smallest offender_key (check.h), kNoOffender if none
};

/// Whether an all-reduce can have this result: a count of elements and a sum of squares. Above the limit for counts a
/// double does not hold every integer.
inline constexpr double kMostCounted = 0x1p53;
GSC_HD bool are_joined_sums(const double (&reduce)[2]) {
  const bool is_count = reduce[0] >= 0.0 && reduce[0] <= kMostCounted;
  const bool is_nan = reduce[1] != reduce[1];  // possible only with a non-finite gradient
  return is_count && !(reduce[1] < 0.0) && !(is_nan && reduce[0] == 0.0);
}

/// One entry of the history ring; gsc_history_entry has the same layout.
struct HistoryEntry {
  int64_t update;
  double grad_norm;
  int64_t nonfinite_count;
  float scale;
  int32_t overflow;
  double norm_limit;
  int32_t spike;
  int32_t reserved;
};

/// All lists of one update together.
struct UpdateSummary {
  double sum_sq;
  double amax;
  double nonfinite;
  int64_t inf_count;
  int64_t nan_count;
  int64_t first_tensor;
  int64_t first_element;
  double norm_limit;    ///< the lowest of the lists with a spike, or of all if there is none
  double norm_average;  ///< of the same list
  int32_t lists;
  int32_t spikes;     ///< lists with one
  int32_t spike_run;  ///< the most of them in a row in one list
  int32_t reserved;
};

GSC_HD UpdateSummary empty_summary() { return {0.0, 0.0, 0.0, 0, 0, -1, -1, __builtin_inf(), 0.0, 0, 0, 0, 0}; }

GSC_HD void add_to_summary(UpdateSummary &s, const ListRecord &r) {
  s.sum_sq += r.reduce[1];
  s.amax = r.grad_amax > s.amax ? r.grad_amax : s.amax;
  s.nonfinite += r.reduce[0];
  s.inf_count += r.inf_count;
  s.nan_count += r.nan_count;
  if (s.first_tensor < 0) {
    s.first_tensor = r.first_tensor;
    s.first_element = r.first_element;
  }
  const bool is_lower = r.norm_limit < s.norm_limit || s.lists == 0;
  if (r.spike != 0 ? s.spikes == 0 || is_lower : s.spikes == 0 && is_lower) {
    s.norm_limit = r.norm_limit;
    s.norm_average = r.norm_average;
  }
  s.lists += 1;
  s.spikes += r.spike != 0 ? 1 : 0;
  s.spike_run = r.spike > s.spike_run ? r.spike : s.spike_run;
}

struct ScalerRecord {
  Policy policy;
  PolicyState state;
  UpdateSummary last;
  UpdateSummary running;  ///< the sums so far of an update that takes several launches
  HistoryEntry *history;  ///< ring of history_capacity entries; entry of update u at u % capacity
  int64_t history_capacity;
  int64_t history_begin;  ///< first update that the ring may hold: the one after creation or restore
};

/// Sets new rules for a scaler. Lowers a hysteresis counter that is above the new hysteresis.
GSC_HD void replace_policy(ScalerRecord &r, const Policy &policy) {
  r.policy = policy;
  if (r.state.hysteresis_left > policy.hysteresis) r.state.hysteresis_left = policy.hysteresis;
}

/// Judges the norm of a list whose gradients are finite. The judgement before counts once the scaler has been updated; if
/// it has not, that check was discarded.
GSC_HD void judge_norm(ListRecord &r, const ScalerRecord &scaler) {
  if (r.judged_at != scaler.state.updates) {
    r.average = r.after;
    r.judged_at = scaler.state.updates;
  }
  r.after = r.average;
  r.norm_limit = norm_limit(scaler.policy.spikes, r.average);
  if (r.found_inf == 0.0F && is_spike(scaler.policy.spikes, r.grad_norm, r.after)) {
    r.spike = r.after.run;
    r.found_inf = 1.0F;
  }
  r.norm_average = r.after.count > 0 ? binary_power(r.after.mean) : 0.0;
}

/// Whether a number from device memory is valid as a learning rate, an inverse scale or a factor of gradients.
GSC_HD bool is_multiplier(float x) { return x >= 0.0F && x <= policy::kFloatMax; }

/// What gradients with a device factor are multiplied by. An invalid factor makes them inf or NaN, which skips the step.
GSC_HD void set_multiplier(ListRecord &r, float inv_scale, float factor) {
  r.multiplier = is_multiplier(factor) ? inv_scale * factor : __builtin_inff();
}

/// The factor that the rule asks for. 1e-6 is from PyTorch's clip_grad_norm_.
GSC_HD void set_clip(ListRecord &r, const ClipRule &rule) {
  r.clip = 1.0F;
  if (rule.max_norm < 0.0 || r.found_inf != 0.0F) return;
  const double factor = rule.max_norm / ((rule.by_amax ? r.grad_amax : r.grad_norm) + 1e-6);
  if (factor < 1.0) r.clip = static_cast<float>(factor);
}

/// Computes the fields that a step reads from the joined sums. Impossible sums count as an overflow. `scaler` NULL: no
/// norm is too large.
GSC_HD void conclude_check(ListRecord &r, const ClipRule &rule, const ScalerRecord *scaler) {
  if (!are_joined_sums(r.reduce)) {
    r.reduce[0] = kMostCounted;
    r.reduce[1] = __builtin_inf();
  }
  r.grad_norm = square_root(r.reduce[1]);
  r.found_inf = static_cast<float>(r.reduce[0]);
  r.spike = 0;
  r.norm_limit = __builtin_inf();
  r.norm_average = 0.0;
  if (scaler != nullptr) judge_norm(r, *scaler);
  set_clip(r, rule);
}

GSC_HD void conclude_update(ScalerRecord &r, const UpdateSummary &summary) {
  const bool overflow = summary.nonfinite != 0.0;
  const bool spike = !overflow && summary.spikes > 0;
  const int64_t number = r.state.updates;
  policy_update(r.policy, r.state, overflow ? Verdict::kOverflow : (spike ? Verdict::kSpike : Verdict::kClean));
  r.last = summary;
  if (r.history_capacity > 0) {
    r.history[number % r.history_capacity] = {number,
                                              square_root(summary.sum_sq),
                                              static_cast<int64_t>(summary.nonfinite),
                                              r.state.scale,
                                              overflow ? 1 : 0,
                                              summary.norm_limit,
                                              spike ? 1 : 0,
                                              0};
  }
}

/// Step counts of an optimizer.
struct OptimizerRecord {
  int64_t applied;
  int64_t skipped;
  int64_t unchanged = 0;  ///< elements that applied steps left as they were, if steps count them
};

/// One parameter group.
struct GroupRecord {
  Hyper hyper;
  const float *device_lr;  ///< NULL: hyper.lr
};

GSC_HD double learning_rate(const GroupRecord &group) {
  return group.device_lr != nullptr ? static_cast<double>(*group.device_lr) : group.hyper.lr;
}

}  // namespace gsc
