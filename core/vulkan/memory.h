// SPDX-License-Identifier: Apache-2.0
// Device memory of a context: a few buffers with addresses, cut into parts. What no part needs any more is released by
// Recorder (commands.h), which knows when the work that used it has ended.
#pragma once

#include <atomic>
#include <memory_resource>

#include "core/base/memory.h"
#include "core/vulkan/device.h"

namespace gsc::vulkan {

/// A buffer, its memory and its address. The memory is mapped if the host uses it.
struct Block {
  VkBuffer buffer = nullptr;
  VkDeviceMemory memory = nullptr;
  uint64_t address = 0;
  int64_t bytes = 0;
  void *mapped = nullptr;
  void *allocation = nullptr;  ///< the caller's, which made it
  int64_t held = 0;            ///< bytes of memory
  int64_t parts = 0;           ///< that are taken
};

/// A part of a block.
struct Place {
  VkBuffer buffer;
  uint64_t offset;
};

/// Used by one thread at a time, except for held().
class Memory {
 public:
  Memory(std::pmr::memory_resource *host, Device &device) : device_(device), blocks_(host), gaps_(host) {}
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  ~Memory();

  /// Not cleared, aligned to 256 bytes, `bytes` rounded up to that. Throws OUT_OF_MEMORY.
  uint64_t take(int64_t bytes);
  /// True: there are blocks that are not needed.
  bool give_back(uint64_t address, int64_t bytes) noexcept;
  /// Blocks without parts. Not needed are those above the usual size, and all others but one, which the next object takes.
  enum class Which { kAll, kNotNeeded };
  /// No work that uses them may be running. True: some have been released.
  bool release(Which which) noexcept;
  /// Where an address is; buffer NULL: not in this memory.
  Place place_of(const void *address);
  /// A block by itself that the host sees, which free_block frees.
  Block make_mapped(int64_t bytes);
  void free_block(Block &block) noexcept;
  /// Bytes of all blocks.
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  struct Gap {
    uint64_t address;
    int64_t bytes;
  };
  Block make_block(int64_t bytes, bool for_host);
  void ask_caller(Block &block, const VkBufferCreateInfo &info, bool for_host, const char *what);
  void make_own(Block &block, const VkBufferCreateInfo &info, bool for_host, const char *what);

  Block *block_of(uint64_t address);
  void hold(Block &block, int64_t bytes);

  Device &device_;
  Vec<Block> blocks_;
  Vec<Gap> gaps_;      ///< by address; has room for all that there can be
  int64_t parts_ = 0;  ///< that are taken
  std::atomic<int64_t> held_{0};
};

}  // namespace gsc::vulkan
