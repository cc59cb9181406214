// SPDX-License-Identifier: Apache-2.0
// The shape of a launch: how many warps of a block share a chunk, and how many blocks there are. Host code that needs
// no device, so that the model in benchmarks/gpu can call it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/plan.h"
#include "core/device/plan.h"

namespace gsc::cuda {

/// 1, 2, 4 or 8, whichever gives the shortest pass over the plan on a device of `units` multiprocessors. Runs in time
/// per tensor and per resident warp, not per chunk. `shares` is scratch memory; the caller may keep it for the next call.
int32_t choose_warps(const Plan &plan, int64_t units, Vec<int64_t> &shares);

/// Blocks for `chunks` chunks: as many as there is work for, at most `slots` (the resident blocks of the device), at
/// least one.
inline int64_t blocks_for(int64_t chunks, int64_t warps_per_chunk, int64_t slots) {
  const int64_t teams = kWarps / warps_per_chunk;
  return std::clamp<int64_t>((chunks + teams - 1) / teams, 1, slots);
}

}  // namespace gsc::cuda
