// SPDX-License-Identifier: Apache-2.0
//
// operator new and malloc as the memory suite replaces them. malloc and its relatives are wrapped by the linker
// (--wrap), operator new by the language's own rule; both reach the library because it is linked statically.
#include "memory_hooks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

namespace gsc_test {
NewHook g_new;
MallocHook g_malloc;
}  // namespace gsc_test

using gsc_test::g_malloc;
using gsc_test::g_new;

extern "C" {
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);

static void count() {
  if (g_malloc.counting) ++g_malloc.calls;
}
void *__wrap_malloc(size_t size) { return count(), __real_malloc(size); }
void *__wrap_calloc(size_t number, size_t size) { return count(), __real_calloc(number, size); }
void *__wrap_realloc(void *memory, size_t size) { return count(), __real_realloc(memory, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) { return count(), __real_aligned_alloc(alignment, size); }
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
  return count(), __real_posix_memalign(memory, alignment, size);
}
}

namespace {

void *counted_new(size_t size, size_t alignment) {
  if (g_new.armed && ++g_new.calls == g_new.fail_at) return nullptr;
  const size_t rounded = (std::max<size_t>(size, 1) + alignment - 1) / alignment * alignment;
  void *memory = __real_aligned_alloc(alignment, rounded);
  if (memory != nullptr) ++g_new.live;
  return memory;
}
void *counted_new_or_throw(size_t size, size_t alignment) {
  void *memory = counted_new(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void counted_delete(void *memory) {
  if (memory == nullptr) return;
  --g_new.live;
  std::free(memory);
}
constexpr size_t kDefault = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

// Array and sized forms forward to these.
void *operator new(size_t size) { return counted_new_or_throw(size, kDefault); }
void *operator new(size_t size, std::align_val_t a) { return counted_new_or_throw(size, size_t(a)); }
void *operator new(size_t size, const std::nothrow_t &) noexcept { return counted_new(size, kDefault); }
void *operator new(size_t size, std::align_val_t a, const std::nothrow_t &) noexcept {
  return counted_new(size, size_t(a));
}
void operator delete(void *memory) noexcept { counted_delete(memory); }
void operator delete(void *memory, size_t) noexcept { counted_delete(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { counted_delete(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { counted_delete(memory); }

namespace gsc_test {

void *Allocator::allocate(void *user, int64_t bytes, int64_t alignment) {
  Allocator &self = *static_cast<Allocator *>(user);
  const bool fails = ++self.calls == self.fail_at.load();
  if (fails && self.fault == Fault::kNull) return nullptr;
  if (fails && self.fault == Fault::kBadAlloc) throw std::bad_alloc();
  if (fails && self.fault == Fault::kException) throw std::runtime_error("not today");
  if (fails && self.fault == Fault::kNumber) throw 7;
  if (bytes <= 0 || alignment <= 0 || alignment > 64 || (alignment & (alignment - 1)) != 0) self.misused = true;
  if (std::this_thread::get_id() != self.thread) self.misused = true;
  ++self.live;
  self.bytes += bytes;
  // The size in front of the block tells whether it comes back with the size it was asked for.
  auto *memory = static_cast<unsigned char *>(__real_aligned_alloc(64, (bytes + 191) / 64 * 64));
  std::memcpy(memory, &bytes, sizeof bytes);
  return memory + 64 + (fails ? alignment / 2 : 0);
}
void Allocator::release(void *user, void *memory, int64_t bytes, int64_t) {
  Allocator &self = *static_cast<Allocator *>(user);
  int64_t asked = 0;
  auto *start = static_cast<unsigned char *>(memory) - reinterpret_cast<uintptr_t>(memory) % 64 - 64;
  std::memcpy(&asked, start, sizeof asked);
  if (asked != bytes || std::this_thread::get_id() != self.thread) self.misused = true;
  --self.live;
  self.bytes -= bytes;
  std::free(start);
  if (self.throws_on_release) throw std::runtime_error("after the release");
}

}  // namespace gsc_test
