// SPDX-License-Identifier: Apache-2.0
//
// An engine's arena: one block of fixed size, and nothing beyond it. First fit among blocks in order of address, which
// is enough for the some dozen objects that a library has. Blocks start at multiples of 64 bytes.
#pragma once

#include <cstdint>
#include <mutex>

#include "policy.h"

namespace engine {

class Arena {
 public:
  explicit Arena(int64_t limit);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  /// NULL if there is no room. From any thread.
  void *allocate(int64_t bytes);
  void release(void *memory);

  /// The hooks that use this arena.
  HostMemory hooks();

  int64_t limit() const { return limit_; }
  int64_t used() const;
  int64_t peak() const;
  /// Calls of allocate.
  int64_t requests() const;

 private:
  /// In front of every block, used or free; 64 bytes, so that what follows is aligned.
  struct alignas(64) Header {
    int64_t bytes;   ///< of what follows
    Header *before;  ///< the neighbour below
    bool free;
  };
  Header *after(Header *block) const;

  mutable std::mutex mutex_;
  int64_t limit_, used_ = 0, peak_ = 0, requests_ = 0;
  char *memory_;
};

/// The C++ runtime's memory as hooks, for comparison.
HostMemory system_memory();

}  // namespace engine
