// SPDX-License-Identifier: Apache-2.0
// The shape of a launch: how many warps of a block share a chunk, and how many blocks there are. Host code that needs no
// device, so that the model of benchmarks/gpu can ask it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/plan.h"
#include "core/device/plan.h"

namespace gsc::cuda {

/// 1, 2, 4 or 8, whichever makes a pass over the plan shortest on a device of `units` multiprocessors. Takes time per
/// tensor and per resident warp, not per chunk. `shares` is memory to work in, of which its caller can keep what it has
/// grown to.
int32_t choose_warps(const Plan &plan, int64_t units, Vec<int64_t> &shares);

/// Blocks for `chunks` chunks: as many as there is work for, at most the `slots` that the device holds at once, at least
/// one.
inline int64_t blocks_for(int64_t chunks, int64_t warps_per_chunk, int64_t slots) {
  const int64_t teams = kWarps / warps_per_chunk;
  return std::clamp<int64_t>((chunks + teams - 1) / teams, 1, slots);
}

}  // namespace gsc::cuda
