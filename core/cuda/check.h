// SPDX-License-Identifier: Apache-2.0
// check and unscale: parameters and launchers. Also used by norm.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"

namespace gsc::cuda {

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
  double fp64_limit;  ///< see core/rules/check.h
  bool finish;
  bool conclude;              ///< no norm is too large
  bool amax_keeps_nonfinite;  ///< the amax of a chunk with inf or NaN is inf or NaN
};

/// Loads the kernels now: a kernel's first launch must not happen during graph capture.
cudaError_t preload_check();
/// Resident blocks per multiprocessor of the current device, for the kernels as compiled for it.
cudaError_t count_check_blocks(int &blocks);
/// `slots`: resident blocks of the whole device.
cudaError_t launch_check(const CheckParams &p, bool unscale, int64_t slots, cudaStream_t stream);
/// Clears the counts of an unfinished check.
cudaError_t launch_reset_counters(CheckCounters *counters, cudaStream_t stream);

}  // namespace gsc::cuda
