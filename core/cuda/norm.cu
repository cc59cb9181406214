// SPDX-License-Identifier: Apache-2.0
// Norms of each tensor and of all together, from the partial sums of a check.
#include "core/cuda/device.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/norm.h"
#include "core/rules/check.h"

namespace gsc::cuda {

/// One warp takes the norm of each tensor. The last block takes that of the list, if it is wanted.
static __global__ void __launch_bounds__(kThreads) norm_kernel(const __grid_constant__ NormParams p) {
  const ChunkPartial *partials = p.partials;
  // A NaN in b fails b <= a and is taken; a NaN in a is kept.
  const auto larger = [](double a, double b) { return a != a || b <= a ? a : b; };
  if (p.out_norm != nullptr && blockIdx.x == gridDim.x - 1) {
    __shared__ double largest[kWarps];
    double amax = 0.0;
    double sum = 0.0;
    if (p.amax) {
      for (int64_t i = threadIdx.x; i < p.plan.chunk_count; i += kThreads) amax = larger(amax, partials[i].sum.amax);
      for (int width = 16; width > 0; width /= 2) amax = larger(amax, __shfl_xor_sync(kFullMask, amax, width));
      if (lane_index() == 0) largest[warp_index()] = amax;
      __syncthreads();
      for (int w = 0; w < kWarps; ++w) amax = larger(amax, largest[w]);
    } else {
      for (int64_t i = threadIdx.x; i < p.plan.chunk_count; i += kThreads) sum += partials[i].sum.sum_sq;
      sum = block_join(sum);
    }
    if (threadIdx.x == 0) *p.out_norm = p.amax ? amax : square_root(sum);
    return;
  }
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (t >= p.plan.size) return;
  const int64_t begin = p.plan.tensors[t].first_chunk;
  const int64_t end = t + 1 < p.plan.size ? p.plan.tensors[t + 1].first_chunk : p.plan.chunk_count;
  double result = 0.0;
  if (p.amax) {
    for (int64_t i = begin + lane_index(); i < end; i += 32) result = larger(result, partials[i].sum.amax);
    for (int width = 16; width > 0; width /= 2) result = larger(result, __shfl_xor_sync(kFullMask, result, width));
  } else {
    const double sum_sq = warp_join(end - begin, [&](int64_t i) { return partials[begin + i].sum.sum_sq; });
    result = tensor_norm(sum_sq, p.inv_scale != nullptr ? *p.inv_scale : 1.0F);
  }
  if (lane_index() == 0) p.out_tensor_norms[t] = result;
}

cudaError_t preload_norm() { return preload_all(norm_kernel); }

cudaError_t launch_norm(const NormParams &p, cudaStream_t stream) {
  const int64_t blocks = p.out_tensor_norms != nullptr ? (p.plan.size + kWarps - 1) / kWarps : 0;
  const int64_t list = p.out_norm != nullptr ? 1 : 0;
  return blocks + list > 0 ? enqueue(norm_kernel, blocks + list, kThreads, stream, p) : cudaSuccess;
}

}  // namespace gsc::cuda
