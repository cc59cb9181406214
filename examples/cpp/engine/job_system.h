// SPDX-License-Identifier: Apache-2.0
//
// An engine's job system: one thread per processor, each with a queue of ranges, from which idle threads steal. A
// thread that waits for its jobs takes no others, because they might use data that it is changing.
#pragma once

#include <gradscaler/api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
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

  int threads() const { return static_cast<int>(members_.size()); }
  int64_t parallel_fors() const { return parallel_fors_; }
  int64_t stolen() const { return stolen_; }

  /// Runs body(argument, i) for i in [0, count). From the main thread or from a job. Allocates nothing.
  void parallel_for(int32_t count, gsc_task_fn body, void *argument);
  /// The library's hook; user is the JobSystem.
  static void hook(void *user, int32_t count, gsc_task_fn body, void *argument);

 private:
  /// One parallel_for, on the stack of the thread that waits for it.
  struct Group {
    gsc_task_fn body;
    void *argument;
    std::atomic<int32_t> left;
  };
  struct Range {
    Group *group;
    int32_t begin, end;
  };
  /// The owner pushes and pops at the back, thieves take from the front.
  struct alignas(64) Member {
    static constexpr int kCapacity = 256;
    std::mutex mutex;
    Range ranges[kCapacity];
    unsigned front = 0, back = 0;
  };

  bool push(Member &own, const Range &range);
  /// Ranges of `group`, or of any if it is NULL.
  bool pop(Member &own, const Group *group, Range *out);
  bool steal(int thief, const Group *group, Range *out);
  void run(Member &own, Range range);
  void work(int index);

  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::thread> workers_;
  std::atomic<int> queued_{0}, sleeping_{0};
  std::atomic<int64_t> stolen_{0}, parallel_fors_{0};
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
};

}  // namespace engine
