// SPDX-License-Identifier: Apache-2.0
// Host memory: everything that the library keeps comes from a Resource, the caller's allocator or operator new.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <string>
#include <vector>

#include "gradscaler/gradscaler.h"

namespace gsc {

inline constexpr std::size_t kMaxAlignment = 64;

class Resource final : public std::pmr::memory_resource {
 public:
  Resource(gsc_allocate_fn allocate, gsc_release_fn release, void *user)
      : allocate_(allocate), release_(release), user_(user) {}

 private:
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (allocate_ == nullptr) return ::operator new(bytes, std::align_val_t(alignment));
    void *memory = allocate_(user_, static_cast<int64_t>(bytes), static_cast<int64_t>(alignment));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  void do_deallocate(void *memory, std::size_t bytes, std::size_t alignment) override {
    if (release_ == nullptr) {
      ::operator delete(memory, bytes, std::align_val_t(alignment));
    } else {
      release_(user_, memory, static_cast<int64_t>(bytes), static_cast<int64_t>(alignment));
    }
  }
  [[nodiscard]] bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }

  gsc_allocate_fn allocate_;
  gsc_release_fn release_;
  void *user_;
};

template <typename T>
using Vec = std::pmr::vector<T>;
using String = std::pmr::string;

}  // namespace gsc
