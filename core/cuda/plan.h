// SPDX-License-Identifier: Apache-2.0
// A plan as kernels see it: plain structs shared by the host code that fills them and the device code that reads them.
// All pointers are device addresses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/rules/records.h"

namespace gsc::cuda {

inline constexpr int kThreads = 256;  ///< per block, in all kernels that walk chunks
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kMaxTiles = 64;          ///< per chunk: 2^16 elements of 8 bytes
inline constexpr int kParameterBytes = 3840;  ///< payload of a kernel that carries data in its parameters

/// One tensor as kernels read it: 32 bytes, two 16-byte loads.
struct DeviceTensor {
  void *data;  ///< NULL: empty or absent
  int64_t count;
  int64_t first_chunk;
  int32_t dtype;
  int32_t reserved;
};

struct PlanView {
  const DeviceTensor *tensors;
  const int32_t *tensor_of;  ///< per chunk; NULL: every tensor has one chunk
  int64_t size;
  int64_t chunk_count;
  int32_t chunk_shift;
  int32_t warps_per_chunk;  ///< 1, 2, 4 or 8 warps of a block share a chunk
  int32_t split;            ///< steps and element-wise operations take parts of chunks: 2^split each
  /// What such a pass gives to teams.
  GSC_HD int64_t part_count() const { return chunk_count << split; }
};

/// Accumulated by the blocks of a check and cleared by the last one; two per list, initially zero.
struct CheckCounters {
  int64_t inf;
  int64_t nan;
  int64_t before_first;  ///< kNoOffender - key of the first offender; 0: none
  uint32_t check_ticket;
  uint32_t apply_ticket;
};

/// Data passed in a kernel's parameters.
struct TensorBatch {
  static constexpr int kCount = kParameterBytes / static_cast<int>(sizeof(DeviceTensor));
  DeviceTensor tensors[kCount];
};
struct PointerBatch {
  static constexpr int kCount = kParameterBytes / static_cast<int>(sizeof(void *));
  const void *pointers[kCount];
};

cudaError_t preload_plan();
cudaError_t launch_write_tensors(DeviceTensor *tensors, int32_t *tensor_of, const TensorBatch &batch, int64_t first,
                                 int count, int64_t end_chunk, cudaStream_t stream);
/// Writes `count` addresses to `staged`.
cudaError_t launch_stage_pointers(const void **staged, const PointerBatch &batch, int count, cudaStream_t stream);
/// Writes the addresses of tensors: `staged_count` from `staged`, then `count` of the batch.
cudaError_t launch_write_pointers(DeviceTensor *to, const void *const *staged, int64_t staged_count,
                                  const PointerBatch &batch, int count, cudaStream_t stream);

}  // namespace gsc::cuda
