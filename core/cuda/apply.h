// SPDX-License-Identifier: Apache-2.0
// The optimizer step: parameters and launchers. The kernels in fp32, in fp64, and in fp32 with state in codes are in
// separate files, so that they compile in parallel.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"
#include "core/rules/step.h"

namespace gsc::cuda {

inline constexpr int kMaxSharedGroups = 16;  ///< up to here every block computes the groups' coefficients itself

struct ApplyParams {
  PlanView grads;
  const DeviceTensor *params;
  const DeviceTensor *model_copy;  ///< NULL: none
  const DeviceTensor *state[kMaxStates];
  ChunkPartial *partials;
  CheckCounters *counters;
  StepParams step;
  int64_t first_chunk;  ///< chunks [first_chunk, last_chunk) of the gradients
  int64_t last_chunk;
  bool finish;                             ///< count the step and update the scaler: the last launch of the job
  const DeviceTensor *scales[kMaxStates];  ///< NULL: no tensor of the slot has any
  const DeviceTensor *remainder;           ///< NULL: none
  const DeviceTensor *numbers;             ///< the slot with numbers per tensor; NULL: none
  const DeviceTensor *ema;                 ///< the average of the weights; NULL: none
};

/// Whether each block works out the coefficients of all groups, and not prepare_kernel before.
GSC_HD bool shares_groups(const ApplyParams &p) {
  return !has_tensor_coefficients(p.step) && p.step.group_count <= kMaxSharedGroups;
}

cudaError_t preload_apply();
cudaError_t preload_apply_fp32();
cudaError_t preload_apply_fp64();
cudaError_t preload_apply_coded();
cudaError_t launch_prepare(const ApplyParams &p, cudaStream_t stream);
cudaError_t launch_apply_fp32(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_apply_fp64(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_apply_coded(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_moments_fp32(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_moments_fp64(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_moments_coded(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_ratios(const ApplyParams &p, cudaStream_t stream);

}  // namespace gsc::cuda
