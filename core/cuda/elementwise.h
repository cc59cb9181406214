// SPDX-License-Identifier: Apache-2.0
// Casting, scaling, accumulating, clamping and filling: parameters and launchers.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"
#include "core/rules/elementwise.h"

namespace gsc::cuda {

struct ElementwiseParams {
  const DeviceTensor *src;  ///< not read by kFill
  PlanView dst;
  const float *factor;  ///< Elementwise::kScale
  double a;
  double b;
  Elementwise op;
  bool same;  ///< src and dst are the same tensors
};

cudaError_t preload_elementwise();
cudaError_t launch_elementwise(const ElementwiseParams &p, int units, cudaStream_t stream);

}  // namespace gsc::cuda
