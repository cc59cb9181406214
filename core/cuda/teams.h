// SPDX-License-Identifier: Apache-2.0
// The shape of a launch: how many warps of a block share a chunk or a part of one, and how many blocks there are. Host
// code that needs no device, so that the model in benchmarks/gpu can call it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/plan.h"
#include "core/device/plan.h"

namespace gsc::cuda {

/// A pass over a list on a device.
struct Pass {
  int64_t slots;         ///< resident blocks of the whole device
  double bytes_per_us;   ///< that its memory bus moves when all of them are busy
  double element_bytes;  ///< moved per element
  bool in_parts;         ///< teams may take parts of chunks, which a pass with sums cannot
};

/// How a pass is cut into work for teams.
struct Cut {
  int32_t warps;  ///< 1, 2, 4 or 8 of a block make a team
  int32_t split;  ///< a chunk has 2^split parts
};

/// What a copy moves per multiprocessor and microsecond on an H200.
inline constexpr double kH200BytesPerUs = 30000.0;

/// The one that gives the shortest pass. Runs in time per tensor and per resident warp, not per chunk. `shares` is
/// scratch memory; the caller may keep it for the next call.
Cut choose_cut(const Plan &plan, const Pass &pass, Vec<int64_t> &shares);

/// Blocks for `chunks` chunks, or parts of them: as many as there is work for, at least one, at most `slots`, the
/// device's resident blocks.
inline int64_t blocks_for(int64_t chunks, int64_t warps_per_chunk, int64_t slots) {
  const int64_t teams = kWarps / warps_per_chunk;
  return std::clamp<int64_t>((chunks + teams - 1) / teams, 1, slots);
}

}  // namespace gsc::cuda
