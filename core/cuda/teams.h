// SPDX-License-Identifier: Apache-2.0
// The shape of a launch: how many warps of a block share a chunk, and how many blocks there are. Host code that needs
// no device, so that the model in benchmarks/gpu can call it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/plan.h"
#include "core/device/plan.h"

namespace gsc::cuda {

/// A pass over a list on a device.
struct Pass {
  int64_t slots;         ///< resident blocks of the whole device
  double saturating;     ///< warps that saturate its memory bus
  double element_bytes;  ///< moved per element
};

/// What a copy moves per multiprocessor and microsecond on an H200.
inline constexpr double kH200BytesPerUs = 30000.0;

/// The warps that saturate the memory bus of a device that moves `bytes_per_us`.
inline double saturating_warps(double bytes_per_us) {
  constexpr double kWarpBytesPerUs = 3400.0;  // with a 16-byte load of 32 lanes four times in flight, for 0.6 us
  return bytes_per_us / kWarpBytesPerUs;
}

/// 1, 2, 4 or 8, whichever gives the shortest pass. Runs in time per tensor and per resident warp, not per chunk.
/// `shares` is scratch memory; the caller may keep it for the next call.
int32_t choose_warps(const Plan &plan, const Pass &pass, Vec<int64_t> &shares);

/// Blocks for `chunks` chunks: as many as there is work for, at most `slots` (the resident blocks of the device), at
/// least one.
inline int64_t blocks_for(int64_t chunks, int64_t warps_per_chunk, int64_t slots) {
  const int64_t teams = kWarps / warps_per_chunk;
  return std::clamp<int64_t>((chunks + teams - 1) / teams, 1, slots);
}

}  // namespace gsc::cuda
