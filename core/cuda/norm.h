// SPDX-License-Identifier: Apache-2.0
// Norms from the partial sums of a check: parameters and launcher.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"

namespace gsc::cuda {

struct NormParams {
  PlanView plan;
  const ChunkPartial *partials;
  double *out_norm;
  double *out_tensor_norms;  ///< NULL: none
  bool amax;
};

cudaError_t preload_norm();
cudaError_t launch_norm(const NormParams &p, cudaStream_t stream);

}  // namespace gsc::cuda
