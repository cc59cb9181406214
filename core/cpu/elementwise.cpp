// SPDX-License-Identifier: Apache-2.0
// Casting, scaling, accumulating, clamping and filling.
#include <algorithm>

#include "core/cpu/backend.h"

namespace gsc::cpu {
namespace {

/// Bytes of the larger of two arrays, for processors that translate addresses slowly: a kernel's four places are then
/// so close that the processor's address cache covers them.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

}  // namespace

void CpuBackend::elementwise(const ElementwiseJob &job, gsc_stream /*stream*/) {
  const Plan &from = job.src != nullptr ? *job.src : *job.dst;
  const ElementwiseRule rule = resolve(job.op, job.a, job.b, job.factor, &from == job.dst);
  if (rule.nothing) return;
  const int64_t bytes = job.dst->total_bytes() + (&from != job.dst ? from.total_bytes() : 0);
  const Plan &to = *job.dst;
  const auto run_end = [&](int64_t t, int64_t limit) { return std::min({limit, to.run_end(t), from.run_end(t)}); };
  // Runs, not chunks: nothing is summed, and the kernel's four places should be many pages long.
  parallel_.run(to.task_count(), [&](int32_t task) {
    to.for_runs(to.split(task), to.split(task + 1), run_end, [&](int64_t tensor, int64_t offset, int64_t n) {
      const Tensor &src = from.tensor(tensor);
      const Tensor &dst = to.tensor(tensor);
      const bool in_pieces = ahead_ == ReadAhead::kEightPages && rule.op != Elementwise::kFill;
      const int64_t piece = in_pieces ? kPieceBytes / std::max(dtype_bytes(src.dtype), dtype_bytes(dst.dtype)) : n;
      for (int64_t i = 0; i < n; i += piece) {
        kernels_->elementwise({element(src, offset + i), element(dst, offset + i), std::min(piece, n - i), src.dtype,
                               dst.dtype, rule.op, rule.a, rule.b, bytes > kStreamingBytes, in_places_});
      }
    });
  });
}

}  // namespace gsc::cpu
