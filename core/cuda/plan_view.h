// SPDX-License-Identifier: Apache-2.0
// What a kernel sees of a plan, and the parameters of the larger kernels: plain structs passed by value, shared by the
// host code that fills them and the device code that reads them. Pointers are device addresses throughout.
#pragma once

#include <cstdint>

#include "core/rules/elementwise.h"
#include "core/rules/optim/variants.h"
#include "core/rules/records.h"
#include "gradscaler/gradscaler.h"

namespace gsc::cuda {

inline constexpr int kThreads = 256;  ///< of a block, in all kernels that walk chunks
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kCheckBlocks = 4;        ///< of check on a multiprocessor
inline constexpr int kMaxTiles = 64;          ///< of a chunk: 2^16 elements of 8 bytes
inline constexpr int kMaxSharedGroups = 16;   ///< parameter groups whose coefficients every block works out itself
inline constexpr int kParameterBytes = 3840;  ///< payload of a kernel that carries data in its parameters

/// One tensor as kernels read it: 32 bytes, two 16-byte loads.
struct DeviceTensor {
  void *data;
  int64_t count;
  int64_t first_chunk;
  int32_t dtype;
  int32_t reserved;
};

struct PlanView {
  const DeviceTensor *tensors;
  const int32_t *tensor_of;  ///< per chunk
  int64_t size;
  int64_t chunk_count;
  int32_t chunk_shift;
  int32_t warps_per_chunk;  ///< 1, 2, 4 or 8: so many warps of a block share a chunk
};

/// Counted by the blocks of a check and emptied by the last of them; one per plan, zeroed at first.
struct CheckCounters {
  int64_t inf;
  int64_t nan;
  int64_t before_first;  ///< kNoOffender - key of the first offender; 0: none
  uint32_t check_ticket;
  uint32_t apply_ticket;
};

struct CheckParams {
  PlanView plan;
  const float *inv_scale;  ///< NULL: 1
  int64_t first_chunk;
  int64_t last_chunk;
  ChunkPartial *partials;
  CheckCounters *counters;  ///< NULL: nothing is counted, but *found_inf is set
  ListRecord *record;
  float *found_inf;
  ClipRule rule;
  double fp64_limit;  ///< see reduction.h
  bool finish;
  bool conclude;
  bool amax_keeps_nonfinite;  ///< a chunk with inf or NaN has it as its amax
};

struct ApplyParams {
  PlanView grads;
  const DeviceTensor *params;
  const DeviceTensor *model_copy;  ///< NULL: none
  const DeviceTensor *state[kMaxStates];
  const int32_t *group_of;
  const GroupRecord *groups;
  Coefficients<double> *coefficients;  ///< written by prepare_kernel when there are more than kMaxSharedGroups
  double *trust;
  ChunkPartial *partials;
  CheckCounters *counters;
  OptimizerRecord *record;
  const float *inv_scale;
  const float *clip;
  const float *found_inf;
  double clip_value;
  ScalerRecord *update;
  const ListRecord *checked;
  Variant variant;
  int32_t group_count;
  bool maximize;
  bool zero_grads;
  bool write_grads;
  bool finish;  ///< count the step and update the scaler: the last launch of the job
};

struct LinearParams {
  const DeviceTensor *src;
  PlanView dst;
  const float *factor;  ///< Linear::kScale
  double a;
  double b;
  Linear op;
  bool same;  ///< src and dst are the same tensors
};

struct FillParams {
  PlanView plan;
  double value;
};

struct NormParams {
  PlanView plan;
  const ChunkPartial *partials;
  double *out_norm;
  double *out_tensor_norms;  ///< NULL: none
  bool amax;
};

/// What one chunk contributes to a gsc_tensor_diagnosis.
struct ChunkDiagnosis {
  int64_t inf_count, nan_count, zero_count, subnormal_count;
  int64_t first_nonfinite;  ///< from the start of the chunk, -1: none
  double amax, amin, sum_sq;
};

struct DiagnoseParams {
  PlanView plan;
  ChunkDiagnosis *out;
  int64_t *histogram;  ///< NULL: none
};

/// Data that travels in a kernel's parameters.
struct Payload {
  unsigned char bytes[kParameterBytes];
};
struct TensorBatch {
  static constexpr int kCount = kParameterBytes / static_cast<int>(sizeof(DeviceTensor));
  DeviceTensor tensors[kCount];
};
struct PointerBatch {
  static constexpr int kCount = kParameterBytes / static_cast<int>(sizeof(void *));
  const void *pointers[kCount];
};

}  // namespace gsc::cuda
