// SPDX-License-Identifier: Apache-2.0
// Statistics of every tensor: parameters and launcher.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"

namespace gsc::cuda {

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

cudaError_t preload_diagnose();
cudaError_t launch_diagnose(const DiagnoseParams &p, int units, cudaStream_t stream);

}  // namespace gsc::cuda
