// SPDX-License-Identifier: Apache-2.0
// A plan's tables in device memory, written from kernel parameters.
#include "core/cuda/device.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/plan.h"

namespace gsc::cuda {

/// Writes `count` tensors from index `first` on, whose chunks end before `end_chunk`, and the tensor of each chunk
/// unless `tensor_of` is NULL.
static __global__ void __launch_bounds__(kThreads)
    write_tensors_kernel(DeviceTensor *tensors, int32_t *tensor_of, const __grid_constant__ TensorBatch batch,
                         int64_t first, int count, int64_t end_chunk) {
  for (int i = warp_index(); i < count; i += kWarps) {
    const int64_t end = i + 1 < count ? batch.tensors[i + 1].first_chunk : end_chunk;
    if (lane_index() == 0) tensors[first + i] = batch.tensors[i];
    if (tensor_of == nullptr) continue;
    for (int64_t chunk = batch.tensors[i].first_chunk + lane_index(); chunk < end; chunk += 32) {
      tensor_of[chunk] = static_cast<int32_t>(first + i);
    }
  }
}

static __global__ void stage_pointers_kernel(const void **staged, const __grid_constant__ PointerBatch batch,
                                             int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) staged[i] = batch.pointers[i];
}

static __global__ void write_pointers_kernel(DeviceTensor *to, const void *const *staged, int64_t staged_count,
                                             const __grid_constant__ PointerBatch batch, int count) {
  for (int64_t i = threadIdx.x; i < staged_count; i += kThreads) to[i].data = const_cast<void *>(staged[i]);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    to[staged_count + i].data = const_cast<void *>(batch.pointers[i]);
  }
}

cudaError_t preload_plan() { return preload_all(write_tensors_kernel, stage_pointers_kernel, write_pointers_kernel); }

cudaError_t launch_write_tensors(DeviceTensor *tensors, int32_t *tensor_of, const TensorBatch &batch, int64_t first,
                                 int count, int64_t end_chunk, cudaStream_t stream) {
  return enqueue(write_tensors_kernel, 1, kThreads, stream, tensors, tensor_of, batch, first, count, end_chunk);
}

cudaError_t launch_stage_pointers(const void **staged, const PointerBatch &batch, int count, cudaStream_t stream) {
  return enqueue(stage_pointers_kernel, 1, kThreads, stream, staged, batch, count);
}

cudaError_t launch_write_pointers(DeviceTensor *to, const void *const *staged, int64_t staged_count,
                                  const PointerBatch &batch, int count, cudaStream_t stream) {
  return enqueue(write_pointers_kernel, 1, kThreads, stream, to, staged, staged_count, batch, count);
}

}  // namespace gsc::cuda
