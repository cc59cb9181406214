// SPDX-License-Identifier: Apache-2.0
// Parallel regions on the CPU: a small pool of threads started at the first region, or the caller's parallel-for.
// A region that finds the pool busy (another thread's call on a shared context) runs on its own thread alone.
// Which thread runs which task has no influence on results. Neither has a parallel-for of the caller's that breaks its
// contract: a task that comes twice is run once, one that does not come is run by the calling thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/device/misuse.h"
#include "gradscaler/gradscaler.h"

namespace gsc::cpu {

class Pool;

/// A region whose tasks run on threads of the caller's. It outlives the region, so that a task that comes late finds
/// that out instead of memory that is gone.
class Region {
 public:
  /// False if another region has it.
  bool try_open(int32_t count, gsc_task_fn body, void *argument);
  /// Runs what has not been run, and waits for what is running.
  Misuse close();
  /// The gsc_task_fn to hand out, `region` being the argument.
  static void run_task(void *region, int32_t index);

 private:
  static constexpr int32_t kMaxTasks = 4096;  ///< of the most threads that a context can have
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
  /// threads >= 1; parallel_for NULL: the pool.
  Parallel(int32_t threads, gsc_parallel_for_fn parallel_for, void *user);
  Parallel(const Parallel &) = delete;
  Parallel &operator=(const Parallel &) = delete;
  ~Parallel();

  [[nodiscard]] int32_t threads() const { return threads_; }

  /// Runs f(index) for index in [0, count) and returns when all are done. f must not throw.
  template <typename F>
  void run(int32_t count, const F &f) {
    run_tasks(
        count, [](void *argument, int32_t index) { (*static_cast<const F *>(argument))(index); }, const_cast<F *>(&f));
  }

 private:
  void run_tasks(int32_t count, gsc_task_fn body, void *argument);
  /// The pool of this process, started on demand; NULL if there is no memory for one.
  Pool *pool();

  int32_t threads_;
  gsc_parallel_for_fn parallel_for_;
  void *user_;
  std::atomic<Pool *> pool_{nullptr};
  Region regions_[4];  ///< a call that finds them all taken runs on its own thread alone
};

}  // namespace gsc::cpu
