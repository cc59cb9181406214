// SPDX-License-Identifier: Apache-2.0
// Norms that are finite and still too large: a fixed limit, and one that follows the norms of the steps before. Compiled
// for host and device. docs/concepts.md#spikes explains the rule and names where its parts are from.
#pragma once

#include <cstdint>

#include "core/rules/elementary.h"
#include "core/rules/hd.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

/// When a norm is too large. The fields are those of gsc_scaler_options.
struct SpikeRule {
  double norm;        ///< skip_norm; 0: no fixed limit
  double factor;      ///< spike_factor; 0: none that follows
  double deviations;  ///< spike_deviations
  int32_t window;     ///< spike_window
  int32_t warmup;     ///< spike_warmup
  int32_t patience;   ///< spike_patience; 0: no end
  int32_t action;     ///< GSC_SPIKE_STEP or GSC_SPIKE_ERROR
};

/// What the norms of a list have been. Zeros: none yet.
struct NormAverage {
  double mean;      ///< of their binary logarithms, without those in `run`
  double variance;  ///< of the same
  double run_mean;  ///< of the logarithms in `run`
  int64_t count;    ///< norms in the mean
  int32_t run;      ///< newest norms that are all too large to count, or with a minus sign all too small
  int32_t reserved;
};

/// Norms after which one that lies far off no longer enters the average. It is not skipped yet.
inline constexpr int64_t kNormsToCompare = 8;

/// How far from the mean a logarithm may be.
GSC_HD double norm_spread(const SpikeRule &rule, const NormAverage &average) {
  const double noise = rule.deviations * square_root(average.variance);
  const double least = binary_logarithm(rule.factor);
  return noise > least ? noise : least;
}

/// The norm above which a step is skipped; inf if there is none.
GSC_HD double norm_limit(const SpikeRule &rule, const NormAverage &average) {
  double limit = __builtin_inf();
  if (average.count < rule.warmup) return limit;
  if (rule.norm > 0.0) limit = rule.norm;
  if (rule.factor > 0.0 && average.count >= rule.window / 2) {
    const double relative = binary_power(average.mean + norm_spread(rule, average));
    if (relative < limit) limit = relative;
  }
  return limit;
}

/// Adds a logarithm. The first norms lose their weight fast: training begins with large ones.
GSC_HD void add_to_average(const SpikeRule &rule, NormAverage &average, double logarithm) {
  const double first = 2.0 / (static_cast<double>(average.count) + 2.0);
  const double least = 1.0 / static_cast<double>(rule.window);
  const double weight = first > least ? first : least;
  const double distance = logarithm - average.mean;
  average.mean += weight * distance;
  average.variance = (1.0 - weight) * (average.variance + weight * distance * distance);
  average.count += average.count < INT64_MAX ? 1 : 0;
  average.run = 0;
}

/// Whether a step with this norm is skipped; `average` becomes what it is after it. A norm of 0 says nothing.
GSC_HD bool is_spike(const SpikeRule &rule, double norm, NormAverage &average) {
  if (norm == 0.0) return false;
  const bool skips = norm > norm_limit(rule, average);
  const double logarithm = norm < __builtin_inf() ? binary_logarithm(norm) : 1024.0;
  const double distance = logarithm - average.mean;
  bool is_far = skips;
  if (rule.factor > 0.0 && average.count >= kNormsToCompare) {
    const double spread = norm_spread(rule, average);
    is_far = skips || distance > spread || -distance > spread;
  }
  if (!is_far) {
    add_to_average(rule, average, logarithm);
    return false;
  }
  const int32_t side = skips || distance > 0.0 ? 1 : -1;
  const int32_t length = average.run * side > 0 ? average.run * side : 0;
  average.run_mean = length == 0 ? logarithm : average.run_mean + (logarithm - average.run_mean) / (length + 1);
  if (rule.patience > 0 && length >= rule.patience && (!skips || rule.action == GSC_SPIKE_STEP)) {
    // The gradients have changed for good: the average goes to where they are.
    average.mean = average.run_mean;
    average.count = average.count < rule.window / 2 ? average.count : rule.window / 2;
    average.run = 0;
    return false;
  }
  average.run = side * (length < INT32_MAX ? length + 1 : length);
  return skips;
}

}  // namespace gsc
