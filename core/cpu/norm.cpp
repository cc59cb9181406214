// SPDX-License-Identifier: Apache-2.0
// Norms of tensors and of all of them together, from a check of each chunk.
#include <cmath>
#include <limits>

#include "core/cpu/backend.h"
#include "core/device/join.h"

namespace gsc::cpu {

void CpuBackend::norm(Plan &plan, bool amax, double *out_norm, double *out_tensor_norms, gsc_stream /*stream*/) {
  ChunkPartial *partials = plan.partials();
  for_chunks(plan, 0, plan.chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t chunk) {
    const gsc_tensor &t = plan.tensor(tensor);
    ChunkStat stat;
    kernels_->check(t.dtype, element(t, offset), n, 1.0F, kFp64Limit, &stat);
    if (stat.inf_count > 0) stat.amax = std::numeric_limits<double>::infinity();
    if (stat.nan_count > 0) stat.amax = std::numeric_limits<double>::quiet_NaN();
    partials[chunk] = {stat.sum_sq, stat.amax};
  });
  const auto norm_of = [&](int64_t begin, int64_t end) {
    if (!amax) return std::sqrt(join(end - begin, [&](int64_t i) { return partials[begin + i].sum_sq; }));
    double largest = 0.0;
    for (int64_t i = begin; i < end; ++i) {
      if (!(partials[i].amax <= largest)) largest = partials[i].amax;  // takes a NaN ...
      if (std::isnan(largest)) break;                                  // ... and keeps it
    }
    return largest;
  };
  if (out_tensor_norms != nullptr) {
    for (int64_t t = 0; t < plan.size(); ++t) {
      out_tensor_norms[t] = norm_of(plan.first_chunk(t), plan.first_chunk(t + 1));
    }
  }
  *out_norm = norm_of(0, plan.chunk_count());
}

}  // namespace gsc::cpu
