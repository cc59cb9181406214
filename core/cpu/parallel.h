// SPDX-License-Identifier: Apache-2.0
// Parallel regions on the CPU: a small pool of threads started at the first region, or the caller's parallel-for.
// A region that finds the pool busy (another thread's call on a shared context) runs on its own thread alone.
// Which thread runs which task has no influence on results.
#pragma once

#include <atomic>
#include <cstdint>

#include "gradscaler/gradscaler.h"

namespace gsc::cpu {

class Pool;

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
};

}  // namespace gsc::cpu
