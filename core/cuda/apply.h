// SPDX-License-Identifier: Apache-2.0
// The optimizer step: parameters and launchers. The kernels of each family of formulas are in a file of sweeps/, so that
// they compile in parallel, and who changes a formula waits for its family alone.
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

/// How a sweep computes.
enum class Arithmetic : int32_t {
  kFp32,
  kFp64,
  kCoded,  ///< in fp32, over state in codes, split masters, or parameters that are rounded stochastically
};
inline constexpr int kArithmetics = 3;

/// Blocks per multiprocessor, as in the kernels' launch bounds. With three, Adam over codes would spill.
constexpr int apply_blocks(Arithmetic arithmetic) { return arithmetic == Arithmetic::kFp32 ? 4 : 2; }
inline constexpr int kMomentsBlocks = 2;

/// The kernels of a formula, by Arithmetic.
using ApplyKernel = void (*)(ApplyParams);
struct Sweeps {
  ApplyKernel apply[kArithmetics];
  ApplyKernel moments[kArithmetics];  ///< the first sweep of a formula that needs norms; NULL for others
};

cudaError_t preload_apply();
cudaError_t launch_prepare(const ApplyParams &p, cudaStream_t stream);
cudaError_t launch_moments(Arithmetic arithmetic, const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_ratios(const ApplyParams &p, cudaStream_t stream);
cudaError_t launch_apply(Arithmetic arithmetic, const ApplyParams &p, int units, cudaStream_t stream);

}  // namespace gsc::cuda
