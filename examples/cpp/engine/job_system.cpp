// SPDX-License-Identifier: Apache-2.0
#include "job_system.h"

namespace engine {

JobSystem::JobSystem(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

JobSystem::~JobSystem() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread &worker : workers_) worker.join();
}

void JobSystem::run_next(Group &group, std::unique_lock<std::mutex> &lock) {
  const int32_t job = group.begun++;
  lock.unlock();
  group.body(group.argument, job);
  lock.lock();
  if (++group.ended == group.count) ended_.notify_all();
}

void JobSystem::parallel_for(int32_t count, gsc_task_fn body, void *argument) {
  std::unique_lock lock(mutex_);
  ++parallel_fors_;
  Group group{body, argument, count, groups_};
  groups_ = &group;
  wake_.notify_all();
  while (group.begun < count) run_next(group, lock);
  ended_.wait(lock, [&group] { return group.ended == group.count; });
  Group **link = &groups_;
  while (*link != &group) link = &(*link)->below;
  *link = group.below;
}

void JobSystem::hook(void *user, int32_t count, gsc_task_fn body, void *argument) {
  static_cast<JobSystem *>(user)->parallel_for(count, body, argument);
}

void JobSystem::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    Group *group = groups_;
    while (group != nullptr && group->begun == group->count) group = group->below;
    if (group != nullptr) {
      run_next(*group, lock);
    } else {
      wake_.wait(lock);
    }
  }
}

}  // namespace engine
