// SPDX-License-Identifier: Apache-2.0
// State from one format to another: a warp takes a group, a lane an element of it.
#include "core/cuda/conversion.h"
#include "core/cuda/device.cuh"
#include "core/cuda/launch.cuh"

namespace gsc::cuda {

static_assert(kStateGroup == 32);

static __global__ void __launch_bounds__(kThreads) conversion_kernel(const __grid_constant__ StateConversion job) {
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kWarps;
  const int64_t groups = state_groups(job.count);
  for (int64_t g = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index(); g < groups; g += warps) {
    const int64_t i = g * kStateGroup + lane_index();
    const bool exists = i < job.count;
    if (has_remainders(job)) {
      if (exists) convert_remainder(job, i);
      continue;
    }
    const float value = exists ? decode_state(job.src, i) : 0.0F;
    int32_t largest = scaled_magnitude(job.dst.dtype, value);
    int32_t smallness = smallness_of(largest);
    for (int lanes = 1; lanes < kStateGroup; lanes *= 2) {
      largest = greatest(largest, __shfl_xor_sync(kFullMask, largest, lanes));
      smallness = greatest(smallness, __shfl_xor_sync(kFullMask, smallness, lanes));
    }
    if (exists) encode_state(job.dst, i, value, largest, smallness);
  }
}

cudaError_t preload_conversion() { return preload_all(conversion_kernel); }

cudaError_t launch_conversion(const StateConversion &job, int32_t units, cudaStream_t stream) {
  const int64_t wanted = (state_groups(job.count) + kWarps - 1) / kWarps;
  const int64_t most = int64_t{units} * 8;
  return enqueue(conversion_kernel, wanted < most ? wanted : most, kThreads, stream, job);
}

}  // namespace gsc::cuda
