// SPDX-License-Identifier: Apache-2.0
// Norms from the partial sums of a check: parameters and launcher.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"

namespace gsc::cuda {

struct NormParams {
  PlanView plan;
  const ChunkPartial *partials;
  const float *inv_scale;    ///< of the norms of tensors; NULL: 1
  double *out_norm;          ///< NULL: not wanted
  double *out_tensor_norms;  ///< NULL: none
  bool amax;
};

cudaError_t preload_norm();
cudaError_t launch_norm(const NormParams &p, cudaStream_t stream);

}  // namespace gsc::cuda
