// SPDX-License-Identifier: Apache-2.0
// Joining what chunks have left behind on the host: their sums, in the order that reduction.h prescribes, and what a
// diagnosis found in each. Both backends end with it.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/device/plan.h"
#include "core/rules/reduction.h"

namespace gsc {

/// sum_of(0) + ... + sum_of(count - 1) over kFinishLanes interleaved lanes, joined by halving.
template <typename F>
double join(int64_t count, const F &sum_of) {
  double lanes[kFinishLanes] = {};
  int64_t row = 0;
  for (; row + kFinishLanes <= count; row += kFinishLanes) {
    for (int i = 0; i < kFinishLanes; ++i) lanes[i] += sum_of(row + i);
  }
  for (int i = 0; row + i < count; ++i) lanes[i] += sum_of(row + i);
  for (int width = kFinishLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

/// The diagnosis of tensor `t` from those of its chunks; `found(chunk)` has the fields of a gsc_tensor_diagnosis, with
/// sum_sq for the norm and first_nonfinite counted from the start of the chunk.
template <typename F>
gsc_tensor_diagnosis join_diagnoses(const Plan &plan, int64_t t, const F &found) {
  gsc_tensor_diagnosis d{};
  d.count = plan.tensor(t).count;
  d.first_nonfinite = -1;
  const int64_t begin = plan.first_chunk(t);
  const int64_t end = plan.first_chunk(t + 1);
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const auto &c = found(chunk);
    d.inf_count += c.inf_count;
    d.nan_count += c.nan_count;
    d.zero_count += c.zero_count;
    d.subnormal_count += c.subnormal_count;
    if (d.first_nonfinite < 0 && c.first_nonfinite >= 0) {
      d.first_nonfinite = (chunk - begin) * plan.chunk_elements() + c.first_nonfinite;
    }
    d.amax = std::max(d.amax, c.amax);
    if (c.amin > 0.0 && (d.amin == 0.0 || c.amin < d.amin)) d.amin = c.amin;
  }
  d.l2_norm = std::sqrt(join(end - begin, [&](int64_t i) { return found(begin + i).sum_sq; }));
  return d;
}

}  // namespace gsc
