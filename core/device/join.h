// SPDX-License-Identifier: Apache-2.0
// Joining what chunks have left behind on the host: their sums, in the order that reduction.h prescribes, and what a
// diagnosis found in each. Both backends end with it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "core/device/plan.h"
#include "core/rules/diagnose.h"
#include "core/rules/reduction.h"

namespace gsc {

/// sum_of(0) + ... + sum_of(count - 1), none negative, over kFinishLanes interleaved lanes, joined by halving. Lanes past
/// the next power of two would add 0.
template <typename F>
double join(int64_t count, const F &sum_of) {
  if (count <= 1) return count == 1 ? sum_of(0) : 0.0;
  const auto used = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(count, kFinishLanes))));
  double lanes[kFinishLanes];
  for (int64_t i = 0; i < used; ++i) lanes[i] = i < count ? sum_of(i) : 0.0;
  for (int64_t row = used; row < count; row += used) {
    for (int64_t i = 0; i < std::min(used, count - row); ++i) lanes[i] += sum_of(row + i);
  }
  for (int64_t width = used / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

/// The diagnosis of tensor `t` from those of all chunks.
inline gsc_tensor_diagnosis join_diagnoses(const Plan &plan, int64_t t, std::span<const ChunkDiagnosis> chunks) {
  gsc_tensor_diagnosis d{};
  d.count = plan.tensor(t).count;
  d.first_nonfinite = -1;
  const int64_t count = plan.first_chunk(t + 1) - plan.first_chunk(t);
  const ChunkDiagnosis *own = chunks.data() + plan.first_chunk(t);
  for (int64_t i = 0; i < count; ++i) {
    const ChunkDiagnosis &c = own[i];
    d.inf_count += c.inf_count;
    d.nan_count += c.nan_count;
    d.zero_count += c.zero_count;
    d.subnormal_count += c.subnormal_count;
    if (d.first_nonfinite < 0 && c.first_nonfinite >= 0) {
      d.first_nonfinite = i * plan.chunk_elements() + c.first_nonfinite;
    }
    d.amax = std::max(d.amax, c.amax);
    if (c.amin > 0.0 && (d.amin == 0.0 || c.amin < d.amin)) d.amin = c.amin;
  }
  d.l2_norm = std::sqrt(join(count, [&](int64_t i) { return own[i].sum_sq; }));
  return d;
}

}  // namespace gsc
