// SPDX-License-Identifier: Apache-2.0
// Counts every allocation of the process, the library's included, by standing before the C library's functions. Without
// glibc, and under sanitizers, which stand there already, nothing is counted.
#include <atomic>
#include <cstddef>

#include "arena.h"

namespace engine {
static std::atomic<int64_t> g_mallocs{0};
int64_t malloc_count() { return g_mallocs.load(std::memory_order_relaxed); }
}  // namespace engine

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VISIBLE __attribute__((visibility("default")))
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

VISIBLE void *malloc(size_t bytes) noexcept {
  engine::g_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
VISIBLE void *calloc(size_t count, size_t bytes) noexcept {
  engine::g_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
VISIBLE void *realloc(void *memory, size_t bytes) noexcept {
  engine::g_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, bytes);
}
VISIBLE void *aligned_alloc(size_t alignment, size_t bytes) noexcept {
  engine::g_mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
VISIBLE int posix_memalign(void **out, size_t alignment, size_t bytes) noexcept {
  engine::g_mallocs.fetch_add(1, std::memory_order_relaxed);
  void *memory = __libc_memalign(alignment, bytes);
  if (memory == nullptr) return 12;  // ENOMEM
  *out = memory;
  return 0;
}
}
#endif
