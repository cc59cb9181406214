// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_SHARED_POOL_HPP
#define GRADSCALER_ADAPTERS_SHARED_POOL_HPP
//
// One thread pool for any number of contexts. Otherwise each context starts its own, and 200 contexts on 16 processors
// have 3000 threads. Calls from several threads share the workers.
//
//     gradscaler::SharedPool pool;                           // one thread per processor, including the caller
//     gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
//     pool.use_in(options);                                  // for every context
//
// WorkQueue is the same without threads: an engine has its own threads work in it. C++17, nothing to link.
//
#include <gradscaler/gradscaler.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace gradscaler {

/// Runs parallel regions on the caller's threads. Allocates nothing. Must outlive the contexts that use it, and their
/// objects.
class WorkQueue {
 public:
  WorkQueue() = default;
  WorkQueue(const WorkQueue &) = delete;
  WorkQueue &operator=(const WorkQueue &) = delete;

  /// Sets num_threads and parallel_for of a gsc_context_options or gradscaler::ContextOptions. `threads` take
  /// part, including the one that calls the library. Results are the same with fewer threads in work().
  template <typename Options>
  void use_in(Options &options, int32_t threads) noexcept {
    options.num_threads = threads;
    options.parallel_for = parallel_for;
    options.parallel_for_user = this;
  }

  /// Runs tasks until stop(). Call it on your own thread.
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (first_ == nullptr && !stop_) {
        // The two passes of a step follow each other closely: look for the next for a moment before sleeping.
        lock.unlock();
        for (int i = 0; i < kSpins && open_.load(std::memory_order_relaxed) == 0; ++i) relax();
        lock.lock();
        wake_.wait(lock, [this] { return first_ != nullptr || stop_; });
      }
      if (stop_) return;
      Region &region = *first_;
      // The next worker begins with another region, if there is one.
      unlink(region);
      append(region);
      ++region.inside;
      lock.unlock();
      region.take_tasks();
      lock.lock();
      unlink(region);
      if (--region.inside == 0) region.done.notify_one();
    }
  }

  /// Lets every work() return, once it has finished its task. Regions after that run on the thread that calls.
  void stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    open_.fetch_add(1, std::memory_order_relaxed);  // ends the spinning
    wake_.notify_all();
  }

  /// A gsc_parallel_for_fn; user is the WorkQueue.
  static void parallel_for(void *user, int32_t count, gsc_task_fn body, void *argument) noexcept {
    static_cast<WorkQueue *>(user)->run(count, body, argument);
  }

 private:
  static constexpr int kSpins = 2000;

  struct Region {
    const gsc_task_fn body;
    void *const argument;
    const int32_t count;
    std::atomic<int32_t> next{0};
    int32_t inside = 0;
    bool linked = false;
    Region *before = nullptr, *after = nullptr;
    std::condition_variable done{};

    void take_tasks() noexcept {
      for (;;) {
        const int32_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= count) return;
        body(argument, index);
      }
    }
  };

  static void relax() noexcept {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_ia32_pause();
#endif
  }

  void run(int32_t count, gsc_task_fn body, void *argument) noexcept {
    Region region{body, argument, count};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      append(region);
    }
    wake_.notify_all();
    region.take_tasks();
    std::unique_lock<std::mutex> lock(mutex_);
    unlink(region);
    region.done.wait(lock, [&region] { return region.inside == 0; });
  }

  void append(Region &region) noexcept {
    region.before = last_;
    region.after = nullptr;
    (last_ != nullptr ? last_->after : first_) = &region;
    last_ = &region;
    region.linked = true;
    open_.fetch_add(1, std::memory_order_relaxed);
  }

  void unlink(Region &region) noexcept {
    if (!region.linked) return;
    (region.before != nullptr ? region.before->after : first_) = region.after;
    (region.after != nullptr ? region.after->before : last_) = region.before;
    region.linked = false;
    open_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::mutex mutex_;  ///< guards everything below and, in regions, what is not atomic
  std::condition_variable wake_;
  Region *first_ = nullptr, *last_ = nullptr;
  bool stop_ = false;
  std::atomic<int32_t> open_{0};  ///< regions in the list
};

/// A WorkQueue with threads. Must outlive the contexts that use it, and their objects.
class SharedPool {
 public:
  /// `threads` take part, including the one that calls the library; 0: one per processor. Fewer if the system cannot
  /// start so many; in programs compiled without exceptions that ends the process.
  explicit SharedPool(int32_t threads = 0) : state_(new State) {
    if (threads <= 0) threads = static_cast<int32_t>(std::thread::hardware_concurrency());
    state_->threads = threads < 1 ? 1 : threads;
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
    try {
      start_threads();
    } catch (const std::exception &) {
    }
#else
    start_threads();
#endif
  }
  SharedPool(const SharedPool &) = delete;
  SharedPool &operator=(const SharedPool &) = delete;
  ~SharedPool() {
    if (!is_of_this_process()) {
      state_.release();  // the parent's threads cannot be joined
      return;
    }
    state_->queue.stop();
    for (std::thread &worker : state_->workers) worker.join();
  }

  int32_t threads() const noexcept { return state_->threads; }

  /// Sets num_threads and parallel_for of a gsc_context_options or gradscaler::ContextOptions.
  template <typename Options>
  void use_in(Options &options) noexcept {
    options.num_threads = state_->threads;
    options.parallel_for = parallel_for;
    options.parallel_for_user = this;
  }

  /// A gsc_parallel_for_fn; user is the SharedPool. After fork() the child's calls run on their own thread.
  static void parallel_for(void *user, int32_t count, gsc_task_fn body, void *argument) noexcept {
    SharedPool &self = *static_cast<SharedPool *>(user);
    if (self.is_of_this_process()) {
      WorkQueue::parallel_for(&self.state_->queue, count, body, argument);
    } else {
      for (int32_t i = 0; i < count; ++i) body(argument, i);
    }
  }

 private:
  struct State {
    WorkQueue queue;
    int32_t threads = 1;
    std::vector<std::thread> workers;
    int64_t process = process_id();
  };
  void start_threads() {
    for (int32_t i = 1; i < state_->threads; ++i) state_->workers.emplace_back([s = state_.get()] { s->queue.work(); });
  }
  static int64_t process_id() noexcept {
#if defined(_WIN32)
    return 0;
#else
    return getpid();
#endif
  }
  bool is_of_this_process() const noexcept { return state_->process == process_id(); }

  std::unique_ptr<State> state_;
};

}  // namespace gradscaler

#endif  // GRADSCALER_ADAPTERS_SHARED_POOL_HPP
