// SPDX-License-Identifier: Apache-2.0
// Norms of each tensor and of all together, from a check of each chunk.
#include <cmath>
#include <limits>

#include "core/cpu/backend.h"
#include "core/device/join.h"
#include "core/rules/check.h"

namespace gsc::cpu {

void CpuBackend::norm(const NormJob &job, gsc_stream /*stream*/) {
  Plan &plan = *job.plan;
  ChunkPartial *partials = plan.partials();
  for_chunks(plan, 0, plan.chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
    const Tensor &t = plan.tensor(tensor);
    ChunkStat stat;
    kernels_->check(t.dtype, element(t, offset), n, 1.0F, kFp64Limit, ahead_, &stat);
    if (stat.inf_count > 0) stat.amax = std::numeric_limits<double>::infinity();
    if (stat.nan_count > 0) stat.amax = std::numeric_limits<double>::quiet_NaN();
    partials[chunk].sum = {stat.sum_sq, stat.amax};
  });
  const auto norm_of = [&](int64_t begin, int64_t end) {
    if (!job.amax) return std::sqrt(join(end - begin, [&](int64_t i) { return partials[begin + i].sum.sum_sq; }));
    double largest = 0.0;
    for (int64_t i = begin; i < end; ++i) {
      if (!(partials[i].sum.amax <= largest)) largest = partials[i].sum.amax;  // true for NaN ...
      if (std::isnan(largest)) break;                                          // ... which is kept
    }
    return largest;
  };
  if (job.out_tensor_norms != nullptr) {
    for (int64_t t = 0; t < plan.size(); ++t) {
      job.out_tensor_norms[t] = norm_of(plan.first_chunk(t), plan.first_chunk(t + 1));
    }
  }
  *job.out_norm = norm_of(0, plan.chunk_count());
}

}  // namespace gsc::cpu
