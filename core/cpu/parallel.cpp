// SPDX-License-Identifier: Apache-2.0
// The thread pool behind Parallel.
#include "core/cpu/parallel.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/callback.h"
#include "core/base/float_environment.h"

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#endif

namespace gsc::cpu {
namespace {

int64_t process_id() {
#if defined(_WIN32)
  return 0;
#else
  return getpid();
#endif
}

// How often a worker polls for the next region before it sleeps, and a caller for the last workers: the two passes of a
// step follow each other closely, as slices may, and sleeping costs as much as a short slice.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// While it lives, this thread blocks all signals except faults. Signals are for the caller's threads: a handler may be
/// long, or need a stack or thread-locals of the application.
class NoSignals {
#if defined(_WIN32)
 public:
  NoSignals() {}  // NOLINT(modernize-use-equals-default): avoids an unused-variable warning
#else
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
#endif
 public:
  NoSignals(const NoSignals &) = delete;
  NoSignals &operator=(const NoSignals &) = delete;
};

}  // namespace

class Pool {
 public:
  explicit Pool(int32_t workers) : process_(process_id()) {
    const NoSignals blocked;  // inherited by a new thread
    try {
      workers_.reserve(workers);
      for (int32_t i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::exception &) {
      // Fewer threads, even none, are fine: the calling thread takes part in every region.
    }
  }

  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  ~Pool() {
    stop_.store(true);
    generation_.fetch_add(1);
    wake(wake_);
    for (std::thread &worker : workers_) worker.join();
  }

  /// After fork() the workers exist only in the parent.
  bool is_of_this_process() const { return process_ == process_id(); }

  /// False if another thread's region is running.
  bool try_run(int32_t count, gsc_task_fn body, void *argument) {
    const std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy.owns_lock()) return false;
    body_ = body;
    argument_ = argument;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    open_.store(true);
    generation_.fetch_add(1);
    if (sleepers_.load() > 0) wake(wake_);
    take_tasks(body, argument, count);
    // Workers that have not woken up by now find the region closed; those inside it are waited for.
    open_.store(false);
    for (int i = 0; i < kSpins && inside_.load() != 0; ++i) relax();
    if (inside_.load() == 0) return true;
    std::unique_lock lock(mutex_);
    waits_.store(true);
    done_.wait(lock, [this] { return inside_.load() == 0; });
    waits_.store(false);
    return true;
  }

 private:
  /// Whoever waits has found its condition false while it held the mutex.
  void wake(std::condition_variable &waiting) {
    { const std::lock_guard lock(mutex_); }
    waiting.notify_all();
  }

  void take_tasks(gsc_task_fn body, void *argument, int32_t count) {
    for (;;) {
      const int32_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      body(argument, index);
    }
  }

  void work() {
    const FloatEnvironment environment;
    for (uint32_t seen = 0;;) {
      const auto is_idle = [&] { return generation_.load() == seen; };
      for (int i = 0; i < kSpins && is_idle(); ++i) relax();
      if (is_idle()) {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [&] { return !is_idle(); });
        sleepers_.fetch_sub(1);
      }
      seen = generation_.load();
      if (stop_.load()) return;
      // As with Region: try_run closes, then looks inside; a worker enters, then checks.
      inside_.fetch_add(1);
      if (open_.load()) take_tasks(body_, argument_, count_);
      if (inside_.fetch_sub(1) == 1 && waits_.load()) wake(done_);
    }
  }

  int64_t process_;
  std::mutex busy_;   ///< held by the thread whose region is running
  std::mutex mutex_;  ///< for those that sleep
  std::condition_variable wake_;
  std::condition_variable done_;
  std::atomic<uint32_t> generation_{0};
  std::atomic<int32_t> sleepers_{0};
  std::atomic<int32_t> inside_{0};
  std::atomic<bool> open_{false};
  std::atomic<bool> waits_{false};  ///< for the last worker
  std::atomic<bool> stop_{false};
  // Of the region. Workers inside it may read them while it is open.
  std::atomic<int32_t> next_{0};
  gsc_task_fn body_ = nullptr;
  void *argument_ = nullptr;
  int32_t count_ = 0;
  std::vector<std::thread> workers_;
};

bool Region::try_open(int32_t count, gsc_task_fn body, void *argument) {
  if (count > kMaxTasks || taken_.exchange(true)) return false;
  for (auto &word : claimed_) word.store(0, std::memory_order_relaxed);
  repeated_.store(0, std::memory_order_relaxed);
  count_ = count;
  body_ = body;
  argument_ = argument;
  open_.store(true);
  return true;
}

bool Region::claim(int32_t index) {
  const uint64_t bit = uint64_t{1} << (index % 64);
  return (claimed_[index / 64].fetch_or(bit) & bit) == 0;
}

void Region::run_task(void *region, int32_t index) { static_cast<Region *>(region)->run(index); }

void Region::run(int32_t index) {
  // close() closes, then looks inside; run() enters, then checks: at least one sees the other.
  inside_.fetch_add(1);
  if (open_.load() && index >= 0 && index < count_ && claim(index)) {
    const FloatEnvironment environment;
    body_(argument_, index);
  } else {
    repeated_.fetch_add(1);
  }
  inside_.fetch_sub(1);
}

Misuse Region::close() {
  Misuse found;
  for (int32_t i = 0; i < count_; ++i) {
    if (!claim(i)) continue;
    ++found.missing;
    body_(argument_, i);
  }
  open_.store(false);
  while (inside_.load() != 0) std::this_thread::yield();
  found.repeated = repeated_.load();
  taken_.store(false);
  return found;
}

Parallel::Parallel(int32_t threads, gsc_parallel_for_fn parallel_for, void *user)
    : threads_(threads), parallel_for_(parallel_for), user_(user) {}

Parallel::~Parallel() {
  Pool *pool = pool_.load(std::memory_order_acquire);
  // A pool from before fork() cannot be joined; the child leaks its memory.
  if (pool != nullptr && pool->is_of_this_process()) delete pool;
}

Pool *Parallel::pool() {
  Pool *pool = pool_.load(std::memory_order_acquire);
  if (pool != nullptr && pool->is_of_this_process()) return pool;
  Pool *fresh = new (std::nothrow) Pool(threads_ - 1);
  if (fresh == nullptr) return nullptr;
  if (pool_.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;  // another thread was first
  return pool;
}

void Parallel::run_tasks(int32_t count, gsc_task_fn body, void *argument) {
  if (count > 1 && parallel_for_ != nullptr) {
    for (Region &region : regions_) {
      if (!region.try_open(count, body, argument)) continue;
      const CallbackEnd end = call_back([&] { parallel_for_(user_, count, &Region::run_task, &region); });
      Misuse found = region.close();
      found.threw = end != CallbackEnd::kReturned;
      add_misuse(found);
      return;
    }
  }
  if (count > 1 && parallel_for_ == nullptr && threads_ > 1) {
    Pool *workers = pool();
    if (workers != nullptr && workers->try_run(count, body, argument)) return;
  }
  for (int32_t i = 0; i < count; ++i) body(argument, i);
}

}  // namespace gsc::cpu
