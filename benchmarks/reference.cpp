// SPDX-License-Identifier: Apache-2.0
// The reference loops, a crew of threads to run them, and the choice of the fastest form.
#include "reference.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <tuple>

#include "workspace.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#include <immintrin.h>
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
  Crew &operator=(Crew &&) = delete;
  ~Crew() {
    task_ = nullptr;
    start();
    for (std::thread &worker : workers_) worker.join();
  }

  /// Calls task(part) for each part in [0, threads) and returns when all are done.
  void run(const std::function<void(int)> &task) {
    task_ = &task;
    running_.store(workers_.size(), std::memory_order_relaxed);
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
constexpr int64_t kStepBytes = kAccumulators * sizeof(Wide);
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

char *reference_memory(Pages pages) {
  constexpr int64_t kBytes = kReferenceBytes + Workspace::kSkewBytes;  // the two halves of a copy
  static std::map<Pages, char *> memory;
  char *&found = memory[pages];
  if (found == nullptr) {
    static std::vector<std::unique_ptr<Workspace>> workspaces;
    workspaces.push_back(std::make_unique<Workspace>(kBytes + Workspace::kSkewBytes, pages));
    // Written once, since pages that were never written all read the same page of zeros.
    found = static_cast<char *>(std::memset(workspaces.back()->raw(kBytes), 1, kBytes));
  }
  return found;
}

void read_part(const char *data, int64_t bytes, ReadForm form) {
  Total total;
  add_up(data, bytes, form.streams, form.prefetch, &total);
  benchmark::DoNotOptimize(total);
}

#if defined(__x86_64__) && defined(__GNUC__)
bool can_store_past_caches() { return __builtin_cpu_supports("avx") != 0; }

/// Writes `bytes` with `Writes` vectors for every `Reads` vectors read, in `streams` equal parts side by side: past the
/// caches, or in place what was there, which the compiler must not see.
template <int Reads, int Writes, bool InPlace>
[[gnu::target("avx")]] void read_and_write(char *to, const char *from, int64_t bytes, int streams) {
  __m256 none = _mm256_setzero_ps();
  benchmark::DoNotOptimize(none);
  const int64_t part = bytes / streams / kStepBytes * kStepBytes;
  for (int64_t i = 0; i < part; i += kStepBytes) {
    for (int s = 0; s < streams; ++s) {
      const int64_t begin = s * part + i;
      for (int64_t k = begin; k < begin + kStepBytes; k += 32 * Writes) {
        __m256 value = none;
        for (int r = 0; r < Reads; ++r) {
          value = _mm256_xor_ps(value,
                                _mm256_loadu_ps(reinterpret_cast<const float *>(from + k / Writes * Reads + 32 * r)));
        }
        for (int w = 0; w < Writes; ++w) {
          auto *out = reinterpret_cast<float *>(to + k + 32 * w);
          if (InPlace) {
            _mm256_store_ps(out, _mm256_xor_ps(_mm256_and_ps(value, none), _mm256_load_ps(out)));
          } else {
            _mm256_stream_ps(out, value);
          }
        }
      }
    }
  }
  _mm_sfence();
}

/// The reads and writes of AdamW's elements [first, first + n): three arrays in place, which keep what was there,
/// gradients of `grad_size` bytes read, and a 16-bit copy written past the caches, if there is one. Each array is
/// prefetched `ahead` bytes ahead.
[[gnu::target("avx")]] void step_through(char *const *in_place, const char *grads, char *copy, int grad_size,
                                         int64_t first, int64_t n, int ahead) {
  constexpr int kElements = 128;
  const auto fetch = [ahead](const char *from, int bytes) {
    for (int line = 0; ahead > 0 && line < bytes; line += 64) __builtin_prefetch(from + ahead + line);
  };
  __m256 none = _mm256_setzero_ps();
  benchmark::DoNotOptimize(none);
  for (int64_t i = first; i + kElements <= first + n; i += kElements) {
    const char *grad = grads + i * grad_size;
    fetch(grad, kElements * grad_size);
    __m256 value = _mm256_set1_ps(1.0F);
    for (int k = 0; k < kElements * grad_size; k += 32) {
      value = _mm256_xor_ps(value, _mm256_loadu_ps(reinterpret_cast<const float *>(grad + k)));
    }
    const __m256 unchanged = _mm256_and_ps(value, none);
    for (int array = 0; array < 3; ++array) {
      auto *out = reinterpret_cast<float *>(in_place[array]) + i;
      fetch(reinterpret_cast<const char *>(out), kElements * 4);
      for (int k = 0; k < kElements; k += 8) {
        _mm256_store_ps(out + k, _mm256_xor_ps(unchanged, _mm256_load_ps(out + k)));
      }
    }
    if (copy == nullptr) continue;
    for (int k = 0; k < kElements * 2; k += 32) _mm256_stream_ps(reinterpret_cast<float *>(copy + i * 2 + k), value);
  }
  _mm_sfence();
}
#else
void step_through(char *const *, const char *, char *, int, int64_t, int64_t, int) {}
template <int Reads, int Writes, bool InPlace>
void read_and_write(char *, const char *, int64_t, int) {}
bool can_store_past_caches() { return false; }
#endif

/// Copies past the caches, in `streams` equal parts side by side; `from` NULL: zeros.
void store_past_caches(char *to, const char *from, int64_t bytes, int streams) {
  const int64_t done = bytes / streams / kStepBytes * kStepBytes * streams;
  if (from != nullptr) {
    read_and_write<1, 1, false>(to, from, bytes, streams);
    std::memcpy(to + done, from + done, bytes - done);
  } else {
    read_and_write<0, 1, false>(to, nullptr, bytes, streams);
    std::memset(to + done, 0, bytes - done);
  }
}

/// A pass over [0, bytes) in one part a thread.
Contender in_parts(const char *name, double counted, int64_t bytes, int threads,
                   const std::function<void(int64_t offset, int64_t bytes)> &pass) {
  const int64_t part = bytes / threads / kStepBytes * kStepBytes;
  const auto task = std::make_shared<std::function<void(int)>>([=](int i) {
    pass(i * part, i + 1 < threads ? part : bytes - i * part);
    benchmark::ClobberMemory();
  });
  if (threads == 1) return contender(name, counted, [task] { (*task)(0); });
  return contender(name, counted, [task, threads] { crew(threads).run(*task); });
}

Contenders read_forms(char *data, int64_t bytes, int threads) {
  Contenders forms;
  for (const ReadForm &form : kReadForms) {
    forms.push_back(
        in_parts("read", bytes, bytes, threads, [=](int64_t offset, int64_t n) { read_part(data + offset, n, form); }));
  }
  return forms;
}

/// Writes `bytes` copied from `from`, or zeros if it is NULL: by the C library's function, and past the caches in one
/// stream and in four.
Contenders store_forms(const char *name, double counted, char *to, const char *from, int64_t bytes, int threads) {
  Contenders forms;
  for (const int streams : {0, 1, 4}) {
    if (streams > 0 && !can_store_past_caches()) continue;
    forms.push_back(in_parts(name, counted, bytes, threads, [=](int64_t offset, int64_t n) {
      const char *source = from == nullptr ? nullptr : from + offset;
      if (streams > 0) {
        store_past_caches(to + offset, source, n, streams);
      } else if (source != nullptr) {
        std::memcpy(to + offset, source, n);
      } else {
        std::memset(to + offset, 0, n);
      }
    }));
  }
  return forms;
}

Contenders copy_forms(char *from, int64_t bytes, int threads) {
  return store_forms("copy", bytes, from + bytes / 2 + Workspace::kSkewBytes, from, bytes / 2, threads);
}

Contenders fill_forms(char *to, int64_t bytes, int threads) {
  return store_forms("fill", bytes, to, nullptr, bytes, threads);
}

template <int Reads, int Writes, bool InPlace>
Contenders loop_forms(char *from, int64_t bytes, int threads) {
  const int64_t written = bytes / (Reads + Writes) * Writes / kStepBytes * kStepBytes;
  const int64_t read = written / Writes * Reads;
  char *to = Reads > 0 ? from + read + Workspace::kSkewBytes : from;
  const double counted = read + (InPlace ? 2 : 1) * written;
  Contenders forms;
  for (const int streams : {1, 4}) {
    forms.push_back(in_parts("loop", counted, written, threads, [=](int64_t offset, int64_t n) {
      read_and_write<Reads, Writes, InPlace>(to + offset, from + offset / Writes * Reads, n, streams);
    }));
  }
  return forms;
}

/// Over the arrays of a Training, which this takes from the memory as that does.
template <int GradSize, bool Copy>
Contenders step_forms(char *memory, int64_t bytes, int threads) {
  constexpr int kStored = 3 * 4 + GradSize + (Copy ? 2 : 0);
  const int64_t elements = bytes / kStored;
  const auto take = [&](int64_t array_bytes) {
    char *array = memory;
    memory += Workspace::room(array_bytes);
    return array;
  };
  char *params = take(elements * 4);
  const char *grads = take(elements * GradSize);
  char *copy = Copy ? take(elements * 2) : nullptr;
  char *first_state = take(elements * 4);
  const std::array<char *, 3> in_place{params, first_state, take(elements * 4)};
  const double counted = elements * (kStored + 3 * 4);
  Contenders forms;
  for (const int ahead : {0, 1024}) {
    forms.push_back(in_parts("loop", counted, elements, threads, [=](int64_t first, int64_t n) {
      step_through(in_place.data(), grads, copy, GradSize, first, n, ahead);
    }));
  }
  return forms;
}

using Forms = Contenders (*)(char *memory, int64_t bytes, int threads);

/// The fastest for this point; found once.
Contender fastest(const Point &point, Forms forms, Over over) {
  static std::map<std::tuple<Forms, Over, Pages, int64_t, int>, Contender> known;
  const int64_t bytes = std::min(point.bytes, kReferenceBytes);
  const auto key = std::tuple(forms, over, point.pages, bytes, point.threads);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  char *memory = over == Over::own ? reference_memory(point.pages) : Workspace::shared_start(point.pages);
  Contenders candidates = forms(memory, bytes, 1);
  if (point.threads > 1) {
    for (Contender &c : forms(memory, bytes, point.threads)) candidates.push_back(std::move(c));
  }
  std::vector<double> seconds;
  for (const Contender &c : candidates) seconds.push_back(best_seconds(c));
  const auto best = std::min_element(seconds.begin(), seconds.end()) - seconds.begin();
  return known.emplace(key, candidates[best]).first->second;
}

}  // namespace

Contender copy_reference(const Point &point, Over memory) { return fastest(point, copy_forms, memory); }
Contender loop_reference(const Point &point, int64_t src_size, int64_t dst_size, bool in_place) {
  const auto forms = [&]() -> Forms {
    if (!can_store_past_caches() || (src_size == dst_size && !in_place)) return copy_forms;
    if (src_size == 0) return loop_forms<0, 1, true>;
    if (src_size > dst_size) return in_place ? loop_forms<2, 1, true> : loop_forms<2, 1, false>;
    if (src_size < dst_size) return in_place ? loop_forms<1, 2, true> : loop_forms<1, 2, false>;
    return loop_forms<1, 1, true>;
  };
  Contender found = fastest(point, forms(), Over::arrays);
  found.name = "loop";
  return found;
}
Contender step_reference(const Point &point, int64_t grad_size, bool copy) {
  return fastest(point,
                 grad_size == 4 ? (copy ? step_forms<4, true> : step_forms<4, false>)
                                : (copy ? step_forms<2, true> : step_forms<2, false>),
                 Over::arrays);
}
Contender fill_reference(const Point &point) { return fastest(point, fill_forms, Over::arrays); }
Contender read_reference(const Point &point) { return fastest(point, read_forms, Over::arrays); }

}  // namespace bench
