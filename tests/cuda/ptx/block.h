// SPDX-License-Identifier: Apache-2.0
//
// A running block, as the scheduler (machine.cpp) and the memory (memory.cpp) know it.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "machine.h"

namespace gsc::cuda::ptx {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffU;
inline constexpr int kMaxWarps = 8;
inline constexpr uintptr_t kSectorBytes = 32;

struct Warp {
  uint32_t alive = 0;
  uint32_t arrived = 0;
  int site = -1;  ///< of the barrier or shuffle that lanes wait at
  unsigned generation = 0;
  uint32_t epoch = 0;  ///< barriers passed; shuffles do not order memory
  uint32_t values[2][kLanes] = {};
};

inline constexpr int kNobody = -1;
inline constexpr int kSeveral = -2;

/// The last accesses to a byte of shared memory, with the epochs of block and warp.
struct Touch {
  int writer = kNobody;      ///< a thread, or kSeveral by atomic operations
  int write_warp = kNobody;  ///< the writers' warp, or kSeveral
  bool atomic = false;       ///< the write was atomic
  uint32_t write_block_epoch = 0;
  uint32_t write_warp_epoch = 0;
  uint32_t read_block_epoch = 0;
  uint32_t reading_warps = 0;
  std::array<uint32_t, kMaxWarps> read_warp_epoch{};
  std::array<uint32_t, kMaxWarps> reading_lanes{};
};

/// A store that has not reached memory.
struct Pending {
  uint8_t value;
  uint32_t thread;
  uint32_t epoch;  ///< of the block
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  int arrived = 0;
  int alive = 0;
  int site = -1;  ///< of the barrier that threads wait at
  unsigned generation = 0;
  uint32_t epoch = 1;  ///< barriers passed
  std::vector<char> shared;
  std::vector<Touch> touches;  ///< per byte of `shared`
  int multiprocessor = 0;
  // Weak memory: bytes stored and not yet in memory, and their addresses.
  std::unordered_map<uintptr_t, Pending> pending;
  std::vector<uintptr_t> order;
  /// How many of them lie in sectors with the hash of this address's.
  uint16_t &pending_near(uintptr_t address) {
    return pending_in_sectors[address / kSectorBytes % pending_in_sectors.size()];
  }
  std::array<uint16_t, 4096> pending_in_sectors{};
  // Weak memory: where in the history a barrier has put all threads, and where a sector has been read.
  std::size_t fenced_at = 0;
  std::unordered_map<uintptr_t, std::size_t> seen;
};

struct Options {
  uint64_t seed = 1;
  bool weak = false;
  std::set<int> dropped;  ///< sites
};
const Options &options();
/// True for a barrier or fence that the mutant drops.
bool is_dropped(int site);
std::mt19937_64 &random_numbers();
/// Counts an instruction that other threads can observe, and may switch threads.
void tick(Thread &t);

// memory.cpp, for the scheduler.

/// Starts a launch: the caches of `multiprocessors` are empty.
void reset_caches(int multiprocessors);
/// Writes pending stores of a block to memory, in random order, until `keep` are left.
void drain(Block &block, std::size_t keep);

}  // namespace gsc::cuda::ptx
