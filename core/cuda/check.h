// SPDX-License-Identifier: Apache-2.0
// check and unscale: parameters and launchers. norm runs on a check too.
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
  bool conclude;
  bool amax_keeps_nonfinite;  ///< a chunk with inf or NaN has it as its amax
};

/// Loads the kernels now: the first launch of one must not happen while a graph is being captured.
cudaError_t preload_check();
/// How many blocks of the kernels a multiprocessor of the current device holds, as they have been compiled for it.
cudaError_t count_check_blocks(int &blocks);
/// `slots`: blocks that the device holds at once.
cudaError_t launch_check(const CheckParams &p, bool unscale, int64_t slots, cudaStream_t stream);
/// Forgets what an unfinished check has counted.
cudaError_t launch_reset_counters(CheckCounters *counters, cudaStream_t stream);

}  // namespace gsc::cuda
