// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <algorithm>
#include <new>

namespace engine {
namespace {

constexpr int64_t kAlign = 64;

int64_t round_up(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Arena::Arena(int64_t limit)
    : limit_(std::max(round_up(limit), int64_t{2 * sizeof(Header)})),
      memory_(static_cast<char *>(::operator new (static_cast<size_t>(limit_), std::align_val_t{kAlign}))) {
  new (memory_) Header{limit_ - static_cast<int64_t>(sizeof(Header)), nullptr, true};
}

Arena::~Arena() { ::operator delete (memory_, std::align_val_t{kAlign}); }

Arena::Header *Arena::after(Header *block) const {
  char *next = reinterpret_cast<char *>(block + 1) + block->bytes;
  return next < memory_ + limit_ ? reinterpret_cast<Header *>(next) : nullptr;
}

void *Arena::allocate(int64_t bytes) {
  const int64_t wanted = round_up(bytes), split = wanted + static_cast<int64_t>(sizeof(Header)) + kAlign;
  const std::lock_guard lock(mutex_);
  ++requests_;
  for (Header *block = reinterpret_cast<Header *>(memory_); block != nullptr; block = after(block)) {
    if (!block->free || block->bytes < wanted) continue;
    if (block->bytes >= split) {
      Header *above = after(block);
      Header *rest = new (reinterpret_cast<char *>(block + 1) + wanted)
          Header{block->bytes - wanted - static_cast<int64_t>(sizeof(Header)), block, true};
      if (above != nullptr) above->before = rest;
      block->bytes = wanted;
    }
    block->free = false;
    used_ += block->bytes + static_cast<int64_t>(sizeof(Header));
    peak_ = std::max(peak_, used_);
    return block + 1;
  }
  return nullptr;
}

void Arena::release(void *memory) {
  const std::lock_guard lock(mutex_);
  Header *block = static_cast<Header *>(memory) - 1;
  used_ -= block->bytes + static_cast<int64_t>(sizeof(Header));
  block->free = true;
  if (block->before != nullptr && block->before->free) block = block->before;
  for (Header *next = after(block); next != nullptr && next->free; next = after(block)) {
    block->bytes += static_cast<int64_t>(sizeof(Header)) + next->bytes;
  }
  if (Header *next = after(block); next != nullptr) next->before = block;
}

int64_t Arena::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}
int64_t Arena::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}
int64_t Arena::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

HostMemory Arena::hooks() {
  return {[](void *user, int64_t bytes, int64_t) { return static_cast<Arena *>(user)->allocate(bytes); },
          [](void *user, void *memory, int64_t, int64_t) { static_cast<Arena *>(user)->release(memory); }, this};
}

HostMemory system_memory() {
  return {[](void *, int64_t bytes, int64_t) {
            return ::operator new (static_cast<size_t>(bytes), std::align_val_t{kAlign}, std::nothrow);
          },
          [](void *, void *memory, int64_t, int64_t) { ::operator delete (memory, std::align_val_t{kAlign}); },
          nullptr};
}

}  // namespace engine
