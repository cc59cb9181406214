// SPDX-License-Identifier: Apache-2.0
//
// An engine's job system: threads that take the jobs of all callers from one queue. A thread that waits for its jobs
// takes no others, because they might use data that it is changing.
#pragma once

#include <gradscaler/api.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace engine {

class JobSystem {
 public:
  /// `threads` with the calling one, which is the engine's main thread.
  explicit JobSystem(int threads);
  ~JobSystem();
  JobSystem(const JobSystem &) = delete;
  JobSystem &operator=(const JobSystem &) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  /// While no thread runs jobs.
  int64_t parallel_fors() const { return parallel_fors_; }

  /// Runs body(argument, i) for i in [0, count), from any thread or job. Allocates nothing.
  void parallel_for(int32_t count, gsc_task_fn body, void *argument);
  /// The library's hook; user is the JobSystem.
  static void hook(void *user, int32_t count, gsc_task_fn body, void *argument);

 private:
  /// One parallel_for, on the stack of the thread that waits for it.
  struct Group {
    gsc_task_fn body;
    void *argument;
    int32_t count;
    Group *below;
    int32_t begun = 0, ended = 0;
  };

  void run_next(Group &group, std::unique_lock<std::mutex> &lock);
  void work();

  std::mutex mutex_;  ///< guards everything below, and the groups
  std::condition_variable wake_, ended_;
  Group *groups_ = nullptr;
  int64_t parallel_fors_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace engine
