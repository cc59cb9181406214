// SPDX-License-Identifier: Apache-2.0
// Statistics of every tensor: parameters and launcher.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"
#include "core/rules/diagnose.h"

namespace gsc::cuda {

struct DiagnoseParams {
  PlanView plan;
  ChunkDiagnosis *out;
  int64_t *histogram;  ///< NULL: none
};

cudaError_t preload_diagnose();
cudaError_t launch_diagnose(const DiagnoseParams &p, int units, cudaStream_t stream);

}  // namespace gsc::cuda
