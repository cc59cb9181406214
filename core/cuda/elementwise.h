// SPDX-License-Identifier: Apache-2.0
// Casting, scaling, accumulating, clamping and filling: parameters and launchers.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"
#include "core/rules/elementwise.h"

namespace gsc::cuda {

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

cudaError_t preload_elementwise();
cudaError_t launch_linear(const LinearParams &p, int units, cudaStream_t stream);
cudaError_t launch_fill(const FillParams &p, int units, cudaStream_t stream);

}  // namespace gsc::cuda
