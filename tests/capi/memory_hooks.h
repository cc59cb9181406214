// SPDX-License-Identifier: Apache-2.0
//
// The means of the memory suite to see and to break allocations: counters of the replaced operator new and of malloc
// (memory_hooks.cpp), and a caller's allocator that counts, checks what it is asked and where, and can fail in several
// ways.
#ifndef GRADSCALER_TESTS_CAPI_MEMORY_HOOKS_H
#define GRADSCALER_TESTS_CAPI_MEMORY_HOOKS_H
#include <gradscaler/gradscaler.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace gsc_test {

/// What operator new counts while `armed`, and which call (from 1; 0: none) it refuses. `live` is always kept.
struct NewHook {
  std::atomic<bool> armed{false};
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> live{0};
  std::atomic<int64_t> fail_at{0};
};
extern NewHook g_new;

/// Calls of malloc and its relatives while `counting`.
struct MallocHook {
  std::atomic<bool> counting{false};
  std::atomic<int64_t> calls{0};
};
extern MallocHook g_malloc;

/// What an allocator does at its `fail_at`th request.
enum class Fault { kNull, kBadAlloc, kException, kNumber, kMisaligned };

/// The caller's allocator.
struct Allocator {
  std::atomic<int64_t> calls{0}, live{0}, bytes{0}, fail_at{0};
  Fault fault = Fault::kNull;
  bool throws_on_release = false;
  /// A request that breaks the contract or comes on another thread, or a block that came back with another size.
  std::atomic<bool> misused{false};
  const std::thread::id thread = std::this_thread::get_id();

  static void *allocate(void *user, int64_t bytes, int64_t alignment);
  static void release(void *user, void *memory, int64_t bytes, int64_t alignment);
  gsc_context_options options(int32_t threads) {
    gsc_context_options result = GSC_CONTEXT_OPTIONS_INIT;
    result.num_threads = threads;
    result.allocate = allocate;
    result.release = release;
    result.allocator_user = this;
    return result;
  }
};

}  // namespace gsc_test
#endif
