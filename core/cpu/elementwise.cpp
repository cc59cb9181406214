// SPDX-License-Identifier: Apache-2.0
// Casting, scaling, accumulating, clamping and filling.
#include <algorithm>
#include <cstring>

#include "core/cpu/backend.h"

namespace gsc::cpu {

void CpuBackend::linear(const LinearJob &job, gsc_stream /*stream*/) {
  Linear op = job.op;
  const double a = op == Linear::kScale ? static_cast<double>(*job.factor) : job.a;
  if (op == Linear::kScale && job.src == job.dst && a == 1.0) return;
  if (op == Linear::kAxpby && job.b == 0.0) op = Linear::kScale;  // dst is only written, NaN in it does not spread
  for_chunks(*job.dst, 0, job.dst->chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t /*chunk*/) {
    const gsc_tensor &src = job.src->tensor(tensor);
    const gsc_tensor &dst = job.dst->tensor(tensor);
    kernels_->linear({element(src, offset), element(dst, offset), n, src.dtype, dst.dtype, op, a, job.b});
  });
}

void CpuBackend::fill(const Plan &plan, double value, gsc_stream /*stream*/) {
  for_chunks(plan, 0, plan.chunk_count(), [&](int64_t tensor, int64_t offset, int64_t n, int64_t /*chunk*/) {
    const gsc_tensor &t = plan.tensor(tensor);
    char *data = element(t, offset);
    if (value == 0.0) {
      std::memset(data, 0, static_cast<std::size_t>(n * dtype_size(t.dtype)));
    } else if (t.dtype == GSC_FP64) {
      std::fill_n(reinterpret_cast<double *>(data), n, value);
    } else {
      std::fill_n(reinterpret_cast<float *>(data), n, static_cast<float>(value));
    }
  });
}

}  // namespace gsc::cpu
