// SPDX-License-Identifier: Apache-2.0
#include "job_system.h"

namespace engine {
namespace {

constexpr int kSpins = 200;  ///< looks for work before a thread sleeps

thread_local int t_member = -1;  ///< -1: not a thread of the engine's

}  // namespace

JobSystem::JobSystem(int threads) {
  for (int i = 0; i < threads; ++i) members_.push_back(std::make_unique<Member>());
  t_member = 0;
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

JobSystem::~JobSystem() {
  {
    const std::lock_guard lock(sleep_mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread &worker : workers_) worker.join();
}

bool JobSystem::push(Member &own, const Range &range) {
  {
    const std::lock_guard lock(own.mutex);
    if (own.back - own.front == Member::kCapacity) return false;
    own.ranges[own.back++ % Member::kCapacity] = range;
    queued_.fetch_add(1);
  }
  if (sleeping_.load() > 0) {
    const std::lock_guard lock(sleep_mutex_);
    wake_.notify_one();
  }
  return true;
}

bool JobSystem::pop(Member &own, const Group *group, Range *out) {
  const std::lock_guard lock(own.mutex);
  if (own.back == own.front) return false;
  const Range &last = own.ranges[(own.back - 1) % Member::kCapacity];
  if (group != nullptr && last.group != group) return false;
  *out = last;
  --own.back;
  queued_.fetch_sub(1);
  return true;
}

bool JobSystem::steal(int thief, const Group *group, Range *out) {
  for (int i = 1; i < threads(); ++i) {
    Member &victim = *members_[static_cast<size_t>((thief + i) % threads())];
    const std::lock_guard lock(victim.mutex);
    if (victim.back == victim.front) continue;
    const Range &first = victim.ranges[victim.front % Member::kCapacity];
    if (group != nullptr && first.group != group) continue;
    *out = first;
    ++victim.front;
    queued_.fetch_sub(1);
    stolen_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

/// Offers the upper half to thieves until one job is left, and runs that.
void JobSystem::run(Member &own, Range range) {
  while (range.end - range.begin > 1) {
    const int32_t middle = range.begin + (range.end - range.begin) / 2;
    if (!push(own, {range.group, middle, range.end})) break;
    range.end = middle;
  }
  for (int32_t i = range.begin; i < range.end; ++i) range.group->body(range.group->argument, i);
  // The group is gone when the thread that waits sees 0: nothing of it is touched afterwards.
  range.group->left.fetch_sub(range.end - range.begin);
}

void JobSystem::parallel_for(int32_t count, gsc_task_fn body, void *argument) {
  parallel_fors_.fetch_add(1, std::memory_order_relaxed);
  if (t_member < 0) {
    for (int32_t i = 0; i < count; ++i) body(argument, i);
    return;
  }
  Member &own = *members_[static_cast<size_t>(t_member)];
  Group group{body, argument, count};
  run(own, {&group, 0, count});
  Range range;
  while (group.left.load() > 0) {
    if (pop(own, &group, &range) || steal(t_member, &group, &range)) {
      run(own, range);
    } else {
      std::this_thread::yield();
    }
  }
}

void JobSystem::hook(void *user, int32_t count, gsc_task_fn body, void *argument) {
  static_cast<JobSystem *>(user)->parallel_for(count, body, argument);
}

void JobSystem::work(int index) {
  t_member = index;
  Member &own = *members_[static_cast<size_t>(index)];
  for (int idle = 0;;) {
    Range range;
    if (pop(own, nullptr, &range) || steal(index, nullptr, &range)) {
      run(own, range);
      idle = 0;
    } else if (++idle < kSpins) {
      std::this_thread::yield();
    } else {
      std::unique_lock lock(sleep_mutex_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, [this] { return queued_.load() > 0 || stop_; });
      sleeping_.fetch_sub(1);
      if (stop_) return;
      idle = 0;
    }
  }
}

}  // namespace engine
