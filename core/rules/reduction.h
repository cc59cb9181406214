// SPDX-License-Identifier: Apache-2.0
// The order of sums over gradients, in which every backend, instruction set and thread count gives the same bits.
//
// A tile is 8 KiB of contiguous elements in 16 rows of 512 bytes: one row is one 16-byte load of a 32-lane warp. Every
// column of a tile is summed separately, top to bottom. The columns of one 16-byte group are then added left to right
// in double, and the 32 group sums by halving (t += t + 16, + 8, ... + 1). Tile sums are added in order within a chunk.
// Chunk sums are added over kFinishLanes interleaved lanes, which are again joined by halving.
#pragma once

#include <cstdint>

#include "core/rules/hd.h"

namespace gsc {

inline constexpr int kGroups = 32;      ///< 16-byte groups in a row
inline constexpr int kRows = 16;        ///< rows in a tile
inline constexpr int kGroupBytes = 16;  ///< bytes of a group
inline constexpr int kRowBytes = kGroups * kGroupBytes;
inline constexpr int kTileBytes = kRows * kRowBytes;
inline constexpr int kFinishLanes = 256;  ///< lanes that join the chunks of a list

/// fp32 column sums are exact enough while the largest magnitude of the tile lies in this range: 16 squares cannot
/// overflow, and squares that underflow are too small to count. Other tiles are summed in double from the start.
inline constexpr float kSafeMin = 0x1p-50F;
inline constexpr float kSafeMax = 0x1p+60F;

/// Whether the column sums in Value of a tile with this largest magnitude can be used.
template <typename Value>
GSC_HD bool squares_fit(Value amax) {
  return amax == Value(0) || (amax >= static_cast<Value>(kSafeMin) && amax <= static_cast<Value>(kSafeMax));
}

/// The results of a pass over a chunk. Offsets count from the start of the chunk.
struct ChunkStat {
  double sum_sq;      ///< of the gradients as stored; NaN if a NaN was found, else inf if an inf was
  double amax;        ///< largest finite magnitude as stored
  int64_t inf_count;  ///< inf as stored, or when multiplied by the inverse scale
  int64_t nan_count;
  int64_t first;  ///< first element counted above, -1 if none
};

/// The part of them that the list's totals need.
struct ChunkSum {
  double sum_sq;
  double amax;
};

/// A chunk's sums of squares, from the first sweep of an optimizer that needs norms of whole tensors.
struct ChunkNorms {
  double param;
  double direction;
};

/// A chunk's entry in a plan's partial results: those of a check or, after its conclusion, of a step.
union ChunkPartial {
  ChunkSum sum;
  ChunkNorms norms;
};

}  // namespace gsc
