// SPDX-License-Identifier: Apache-2.0
// State from one format to another, group by group.
#include <algorithm>

#include "core/cpu/backend.h"
#include "core/rules/state_conversion.h"

namespace gsc::cpu {
namespace {

void convert_group(const StateConversion &job, int64_t first, int n) {
  if (has_remainders(job)) {
    for (int i = 0; i < n; ++i) convert_remainder(job, first + i);
    return;
  }
  float values[kStateGroup];
  int32_t largest = 0;
  int32_t smallness = 0;
  for (int i = 0; i < n; ++i) {
    values[i] = decode_state(job.src, first + i);
    const int32_t magnitude = scaled_magnitude(job.dst.dtype, values[i]);
    largest = std::max(largest, magnitude);
    smallness = std::max(smallness, smallness_of(magnitude));
  }
  for (int i = 0; i < n; ++i) encode_state(job.dst, first + i, values[i], largest, smallness);
}

}  // namespace

void CpuBackend::convert(const StateConversion &job, gsc_stream /*stream*/) {
  constexpr int64_t kTask = 4096;  // groups
  const int64_t groups = state_groups(job.count);
  const auto tasks = static_cast<int32_t>(std::min<int64_t>((groups + kTask - 1) / kTask, wanted_tasks()));
  parallel_.run(tasks, [&](int32_t task) {
    for (int64_t g = groups * task / tasks; g < groups * (task + 1) / tasks; ++g) {
      const int64_t first = g * kStateGroup;
      convert_group(job, first, static_cast<int>(std::min<int64_t>(kStateGroup, job.count - first)));
    }
  });
}

}  // namespace gsc::cpu
