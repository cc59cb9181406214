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

// How often a worker polls for the next region before it sleeps: the two passes of a step follow each other closely.
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
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread &worker : workers_) worker.join();
  }

  /// After fork() the workers exist only in the parent.
  bool is_of_this_process() const { return process_ == process_id(); }

  /// False if another thread's region is running.
  bool try_run(int32_t count, gsc_task_fn body, void *argument) {
    const std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy.owns_lock()) return false;
    {
      const std::lock_guard lock(mutex_);
      body_ = body;
      argument_ = argument;
      count_ = count;
      next_.store(0, std::memory_order_relaxed);
      open_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    take_tasks(body, argument, count);
    // Workers that have not woken up by now find the region closed; those inside it are waited for.
    std::unique_lock lock(mutex_);
    open_ = false;
    done_.wait(lock, [this] { return inside_ == 0; });
    return true;
  }

 private:
  void take_tasks(gsc_task_fn body, void *argument, int32_t count) {
    for (;;) {
      const int32_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      body(argument, index);
    }
  }

  void work() {
    const FloatEnvironment environment;
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && generation_.load(std::memory_order_acquire) == seen; ++i) relax();
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
      seen = generation_.load(std::memory_order_relaxed);
      if (stop_) return;
      if (!open_) continue;
      ++inside_;
      const gsc_task_fn body = body_;
      void *argument = argument_;
      const int32_t count = count_;
      lock.unlock();
      take_tasks(body, argument, count);
      lock.lock();
      if (--inside_ == 0) done_.notify_one();
    }
  }

  int64_t process_;
  std::mutex busy_;   ///< held by the thread whose region is running
  std::mutex mutex_;  ///< guards everything below that is not atomic
  std::condition_variable wake_;
  std::condition_variable done_;
  std::atomic<uint32_t> generation_{0};
  std::atomic<int32_t> next_{0};
  gsc_task_fn body_ = nullptr;
  void *argument_ = nullptr;
  int32_t count_ = 0;
  int32_t inside_ = 0;
  bool open_ = false;
  bool stop_ = false;
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
