// SPDX-License-Identifier: Apache-2.0
// Host memory: everything that the library keeps comes from a Resource, the caller's allocator or operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory_resource>
#include <new>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/base/callback.h"
#include "core/base/error.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

inline constexpr std::size_t kMaxAlignment = 64;

/// Host memory is out. what() says how much was asked for.
class OutOfMemory final : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::size_t bytes) noexcept {
    std::snprintf(text_, sizeof text_, "allocation of %llu bytes of host memory failed",
                  static_cast<unsigned long long>(bytes));
  }
  const char *what() const noexcept override { return text_; }

 private:
  char text_[80];
};

/// Size of a huge page. Optimizer state at least this large uses them.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Requests huge pages for memory aligned to one, as far as whole ones fit. Steps over small pages are a fifth slower.
inline void want_huge_pages([[maybe_unused]] void *memory, [[maybe_unused]] std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
  if (bytes >= kHugePage) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a hint: it may fail
#endif
}

class Resource final : public std::pmr::memory_resource {
 public:
  Resource(gsc_allocate_fn allocate, gsc_release_fn release, void *user)
      : allocate_(allocate), release_(release), user_(user) {}
  /// The same source; what this one holds is counted apart.
  Resource(const Resource &other) : Resource(other.allocate_, other.release_, other.user_) {}
  Resource &operator=(const Resource &) = delete;
  ~Resource() override = default;
  /// Bytes that are allocated now.
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    void *memory = obtain(bytes, alignment);
    held_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    return memory;
  }
  void *obtain(std::size_t bytes, std::size_t alignment) {
    if (allocate_ == nullptr) {
      void *memory = nullptr;
      try {
        memory = ::operator new(bytes, own_alignment(bytes, alignment));
      } catch (const std::bad_alloc &) {
        throw OutOfMemory(bytes);
      }
      want_huge_pages(memory, bytes);
      return memory;
    }
    void *memory = nullptr;
    const CallbackEnd end =
        call_back([&] { memory = allocate_(user_, static_cast<int64_t>(bytes), static_cast<int64_t>(alignment)); });
    if (end == CallbackEnd::kThrew) {
      fail(GSC_ERROR_CALLBACK, kOptions.field("allocate"), "threw an exception");
    }
    if (memory == nullptr) throw OutOfMemory(bytes);
    if (reinterpret_cast<uintptr_t>(memory) % alignment != 0) {
      release(memory, bytes, alignment);
      fail(GSC_ERROR_CALLBACK, kOptions.field("allocate"), "returned %p, which is not aligned to %u bytes", memory,
           static_cast<unsigned>(alignment));
    }
    return memory;
  }
  void do_deallocate(void *memory, std::size_t bytes, std::size_t alignment) override {
    held_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    if (release_ == nullptr) {
      ::operator delete(memory, bytes, own_alignment(bytes, alignment));
    } else {
      release(memory, bytes, alignment);
    }
  }
  bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }

  void release(void *memory, std::size_t bytes, std::size_t alignment) noexcept {
    call_back([&] { release_(user_, memory, static_cast<int64_t>(bytes), static_cast<int64_t>(alignment)); });
  }

  static std::align_val_t own_alignment(std::size_t bytes, std::size_t alignment) {
    return std::align_val_t(bytes >= kHugePage ? kHugePage : alignment);
  }

  gsc_allocate_fn allocate_;
  gsc_release_fn release_;
  void *user_;
  std::atomic<int64_t> held_{0};
};

template <typename T>
using Vec = std::pmr::vector<T>;
using String = std::pmr::string;

}  // namespace gsc
