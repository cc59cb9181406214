// SPDX-License-Identifier: Apache-2.0
// The reference loops, a crew of threads to run them, and the choice of the fastest form.
#include "reference.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "workspace.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#define BENCH_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define BENCH_CLONES
#endif

namespace bench {
namespace {

/// Threads that run the same function on parts of the work. They look for work only briefly before they sleep, so as
/// not to take processors from the library's threads in the batches between.
class Crew {
 public:
  explicit Crew(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  Crew(const Crew &) = delete;
  Crew &operator=(const Crew &) = delete;
  ~Crew() {
    task_ = nullptr;
    start();
    for (std::thread &worker : workers_) worker.join();
  }

  /// Calls task(part) for each part in [0, threads) and returns when all are done.
  void run(const std::function<void(int)> &task) {
    task_ = &task;
    running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    start();
    task(0);
    while (running_.load(std::memory_order_acquire) > 0) pause();
  }

 private:
  static constexpr int kSpins = 2000;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  void start() {
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }

  void work(int part) {
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && generation_.load(std::memory_order_acquire) == seen; ++i) pause();
      generation_.wait(seen, std::memory_order_acquire);
      ++seen;
      if (task_ == nullptr) return;
      (*task_)(part);
      running_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::atomic<uint32_t> generation_{0};
  std::atomic<int> running_{0};
  const std::function<void(int)> *task_ = nullptr;
  std::vector<std::thread> workers_;
};

Crew &crew(int threads) {
  static std::map<int, std::unique_ptr<Crew>> crews;
  std::unique_ptr<Crew> &c = crews[threads];
  if (!c) c = std::make_unique<Crew>(threads);
  return *c;
}

using Wide [[gnu::vector_size(64)]] = uint64_t;
constexpr int kAccumulators = 4;
constexpr int64_t kStepBytes = kAccumulators * static_cast<int64_t>(sizeof(Wide));
constexpr int64_t kPrefetchBytes = 2048;

struct Total {
  Wide lanes[kAccumulators]{};
};

/// Adds up whole steps of `streams` equal parts of the data side by side.
BENCH_CLONES void add_up(const char *data, int64_t bytes, int streams, bool prefetch, Total *out) {
  Wide a{};
  Wide b{};
  Wide c{};
  Wide d{};
  const int64_t part = bytes / streams;
  for (int64_t i = 0; i + kStepBytes <= part; i += kStepBytes) {
    for (int s = 0; s < streams; ++s) {
      const char *p = data + s * part + i;
      if (prefetch) {
        for (int line = 0; line < kAccumulators; ++line) __builtin_prefetch(p + kPrefetchBytes + line * 64);
      }
      Wide step[kAccumulators];
      std::memcpy(step, p, sizeof step);
      a += step[0];
      b += step[1];
      c += step[2];
      d += step[3];
    }
  }
  *out = {{a, b, c, d}};
}

struct ReadForm {
  int streams;
  bool prefetch;
};
constexpr ReadForm kReadForms[] = {{1, false}, {1, true}, {4, false}, {4, true}};

char *reference_memory() {
  static Workspace workspace(kReferenceBytes + 2 * Workspace::kSkewBytes);
  static char *memory = [] {
    constexpr int64_t kBytes = kReferenceBytes + Workspace::kSkewBytes;
    // Written once, since pages that were never written all read the same page of zeros.
    return static_cast<char *>(std::memset(workspace.raw(kBytes), 1, static_cast<std::size_t>(kBytes)));
  }();
  return memory;
}

void read_part(const char *data, int64_t bytes, ReadForm form) {
  Total total;
  add_up(data, bytes, form.streams, form.prefetch, &total);
  benchmark::DoNotOptimize(total);
}

Contender read_with(int64_t bytes, int threads, ReadForm form) {
  const char *data = reference_memory();
  if (threads == 1) {
    return contender("read", static_cast<double>(bytes), [=] { read_part(data, bytes, form); });
  }
  const int64_t part = bytes / threads / kStepBytes * kStepBytes;
  const auto task = std::make_shared<std::function<void(int)>>(
      [=](int i) { read_part(data + i * part, i + 1 < threads ? part : bytes - i * part, form); });
  return contender("read", static_cast<double>(bytes), [task, threads] { crew(threads).run(*task); });
}

Contender copy_with(int64_t bytes, int threads) {
  const int64_t half = bytes / 2;
  const char *from = reference_memory();
  char *to = reference_memory() + half + Workspace::kSkewBytes;
  const int64_t part = half / threads / kStepBytes * kStepBytes;
  const auto task = std::make_shared<std::function<void(int)>>([=](int i) {
    std::memcpy(to + i * part, from + i * part, static_cast<std::size_t>(i + 1 < threads ? part : half - i * part));
    benchmark::ClobberMemory();
  });
  if (threads == 1) return contender("memcpy", static_cast<double>(bytes), [task] { (*task)(0); });
  return contender("memcpy", static_cast<double>(bytes), [task, threads] { crew(threads).run(*task); });
}

/// The fastest for this point; found once.
Contender fastest(const Point &point, const std::function<std::vector<Contender>(int64_t bytes, int threads)> &forms,
                  std::map<std::pair<int64_t, int>, Contender> *known) {
  const int64_t bytes = std::min(point.bytes, kReferenceBytes);
  const auto found = known->find({bytes, point.threads});
  if (found != known->end()) return found->second;
  std::vector<Contender> candidates = forms(bytes, 1);
  if (point.threads > 1) {
    for (Contender &c : forms(bytes, point.threads)) candidates.push_back(std::move(c));
  }
  std::size_t best = 0;
  double least = best_seconds(candidates[0]);
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const double seconds = best_seconds(candidates[i]);
    if (seconds < least) {
      least = seconds;
      best = i;
    }
  }
  return known->emplace(std::pair{bytes, point.threads}, candidates[best]).first->second;
}

}  // namespace

Contender memcpy_reference(const Point &point) {
  static std::map<std::pair<int64_t, int>, Contender> known;
  return fastest(
      point, [](int64_t bytes, int threads) { return std::vector{copy_with(bytes, threads)}; }, &known);
}

Contender read_reference(const Point &point) {
  static std::map<std::pair<int64_t, int>, Contender> known;
  return fastest(
      point,
      [](int64_t bytes, int threads) {
        std::vector<Contender> forms;
        for (const ReadForm &form : kReadForms) forms.push_back(read_with(bytes, threads, form));
        return forms;
      },
      &known);
}

}  // namespace bench
