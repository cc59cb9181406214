// SPDX-License-Identifier: Apache-2.0
// Launchers of the check, unscale and norm kernels.
#include "core/cuda/kernel_check.cuh"
#include "core/cuda/kernel_norm.cuh"
#include "core/cuda/launch.cuh"

namespace gsc::cuda {

cudaError_t preload_check() {
  return preload_all(check_kernel<false>, check_kernel<true>, reset_counters_kernel, norm_kernel);
}

cudaError_t launch_check(const CheckParams &p, bool unscale, int units, cudaStream_t stream) {
  const int64_t blocks = blocks_for(p.last_chunk - p.first_chunk, p.plan.warps_per_chunk, units, kCheckBlocks);
  return enqueue(unscale ? check_kernel<true> : check_kernel<false>, blocks, kThreads, stream, p);
}

cudaError_t launch_reset_counters(CheckCounters *counters, cudaStream_t stream) {
  return enqueue(reset_counters_kernel, 1, 1, stream, counters);
}

cudaError_t launch_norm(const NormParams &p, cudaStream_t stream) {
  const int64_t blocks = p.out_tensor_norms != nullptr ? (p.plan.size + kWarps - 1) / kWarps : 0;
  return enqueue(norm_kernel, blocks + 1, kThreads, stream, p);
}

}  // namespace gsc::cuda
