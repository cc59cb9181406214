// SPDX-License-Identifier: Apache-2.0
//
// An engine's allocator for one of its parts: a hard limit, and counts of what is used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>

#include "model.h"

namespace engine {

class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}
  MemoryBudget(const MemoryBudget &) = delete;
  MemoryBudget &operator=(const MemoryBudget &) = delete;

  /// The hooks that use this budget. From any thread.
  HostMemory hooks() {
    return {[](void *user, int64_t bytes, int64_t alignment) {
              return static_cast<MemoryBudget *>(user)->allocate(bytes, alignment);
            },
            [](void *user, void *memory, int64_t bytes, int64_t alignment) {
              static_cast<MemoryBudget *>(user)->release(memory, bytes, alignment);
            },
            this};
  }

  int64_t limit() const { return limit_; }
  int64_t used() const { return read(used_); }
  int64_t peak() const { return read(peak_); }
  /// Calls of allocate.
  int64_t requests() const { return read(requests_); }

 private:
  int64_t read(const int64_t &number) const {
    const std::lock_guard lock(mutex_);
    return number;
  }
  /// NULL beyond the limit.
  void *allocate(int64_t bytes, int64_t alignment) {
    const std::lock_guard lock(mutex_);
    ++requests_;
    if (bytes > limit_ - used_) return nullptr;
    void *memory = ::operator new(static_cast<size_t>(bytes), std::align_val_t(alignment), std::nothrow);
    if (memory != nullptr) peak_ = std::max(peak_, used_ += bytes);
    return memory;
  }
  void release(void *memory, int64_t bytes, int64_t alignment) {
    ::operator delete(memory, std::align_val_t(alignment));
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }

  mutable std::mutex mutex_;
  const int64_t limit_;
  int64_t used_ = 0, peak_ = 0, requests_ = 0;
};

}  // namespace engine
