// SPDX-License-Identifier: Apache-2.0
// Casting, scaling, accumulating, clamping and filling.
#include "core/cpu/backend.h"

namespace gsc::cpu {

void CpuBackend::elementwise(const ElementwiseJob &job, gsc_stream /*stream*/) {
  const Plan &from = job.src != nullptr ? *job.src : *job.dst;
  const ElementwiseRule rule = resolve(job.op, job.a, job.b, job.factor, &from == job.dst);
  if (rule.nothing) return;
  const int64_t bytes = job.dst->total_bytes() + (&from != job.dst ? from.total_bytes() : 0);
  for_chunks(*job.dst, 0, job.dst->chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t /*chunk*/) {
    const Tensor &src = from.tensor(tensor);
    const Tensor &dst = job.dst->tensor(tensor);
    kernels_->elementwise({element(src, offset), element(dst, offset), n, src.dtype, dst.dtype, rule.op, rule.a, rule.b,
                           bytes > kStreamingBytes});
  });
}

}  // namespace gsc::cpu
