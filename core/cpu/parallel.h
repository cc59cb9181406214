// SPDX-License-Identifier: Apache-2.0
// Parallel regions on the CPU: a small pool of threads started by the first region, or the caller's parallel-for. If
// the pool is busy (another thread's call on a shared context), a region runs on its own thread alone. Results do not
// depend on which thread runs which task, nor on a caller's parallel-for that breaks its contract: a repeated task runs
// once, a missing one is run by the calling thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/device/misuse.h"
#include "gradscaler/gradscaler.h"

namespace gsc::cpu {

class Pool;

/// A region whose tasks run on the caller's threads. It outlives the region, so that a late task finds the region
/// closed instead of freed memory.
class Region {
 public:
  /// False if it is taken by another region.
  bool try_open(int32_t count, gsc_task_fn body, void *argument);
  /// Runs the remaining tasks, and waits for running ones.
  Misuse close();
  /// The gsc_task_fn for the caller; its argument is `region`.
  static void run_task(void *region, int32_t index);

 private:
  static constexpr int32_t kMaxTasks = 4096;  ///< for the maximum number of threads of a context
  void run(int32_t index);
  bool claim(int32_t index);

  std::atomic<bool> taken_{false};
  std::atomic<bool> open_{false};
  std::atomic<int32_t> inside_{0};
  std::atomic<int32_t> repeated_{0};
  std::atomic<uint64_t> claimed_[kMaxTasks / 64] = {};
  int32_t count_ = 0;
  gsc_task_fn body_ = nullptr;
  void *argument_ = nullptr;
};

class Parallel {
 public:
  /// threads >= 1; parallel_for NULL: use the pool.
  Parallel(int32_t threads, gsc_parallel_for_fn parallel_for, void *user);
  Parallel(const Parallel &) = delete;
  Parallel &operator=(const Parallel &) = delete;
  ~Parallel();

  int32_t threads() const { return threads_; }

  /// Runs f(index) for index in [0, count) and returns when all are done. f must not throw.
  template <typename F>
  void run(int32_t count, const F &f) {
    run_tasks(
        count, [](void *argument, int32_t index) { (*static_cast<const F *>(argument))(index); }, const_cast<F *>(&f));
  }

 private:
  void run_tasks(int32_t count, gsc_task_fn body, void *argument);
  /// The context's pool, started on demand; NULL if allocation failed.
  Pool *pool();

  int32_t threads_;
  gsc_parallel_for_fn parallel_for_;
  void *user_;
  std::atomic<Pool *> pool_{nullptr};
  Region regions_[4];  ///< a call that finds none free runs on its own thread alone
};

}  // namespace gsc::cpu
