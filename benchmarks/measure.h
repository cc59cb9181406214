// SPDX-License-Identifier: Apache-2.0
// Compares calls that take turns. Times alone do not carry over: machines differ, and on a shared one the same call can
// be half as fast a moment later. So a benchmark is one subject and its references, measured in short batches in turn.
// The ratio of their fastest batches counts, since disturbances only make a batch slower. Google Benchmark registers,
// filters and writes the JSON.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

/// How much to measure.
struct Settings {
  double batch_seconds = 1e-3;  ///< a batch is made of as many calls as fill this, at least one
  double case_seconds = 0.4;    ///< rounds end early once the subject has taken this long
  int max_rounds = 9;
  int long_rounds = 20;  ///< instead, where a batch is one call, which a neighbour on the memory bus spoils most easily
  int min_rounds = 3;
  std::vector<int> threads{1, 2};
  std::vector<int> log2_bytes{10, 12, 14, 16, 18, 20, 22, 24, 26, 28};
  bool quick = false;
  int32_t cpu_target = 0;  ///< GSC_CPU_*: instruction sets of the contexts
};
const Settings &settings();
void set_quick();
/// By name: best, baseline, avx2, avx512 or neon_bf16. False if there is none of it.
bool set_cpu_target(std::string_view name);

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One call that takes part.
struct Contender {
  std::string name;
  double bytes;                          ///< moved to and from memory by a call; 0: only its time is of interest
  std::function<double(int64_t)> timed;  ///< makes that many calls and returns the seconds they took
};
using Contenders = std::vector<Contender>;

template <typename F>
Contender contender(std::string name, double bytes, F call) {
  return {std::move(name), bytes, [call](int64_t calls) mutable {
            const auto start = Clock::now();
            for (int64_t i = 0; i < calls; ++i) call();
            return seconds_since(start);
          }};
}

/// As contender, with something before each call that is not measured.
template <typename P, typename F>
Contender prepared_contender(std::string name, double bytes, P prepare, F call) {
  return {std::move(name), bytes, [prepare, call](int64_t calls) mutable {
            double seconds = 0.0;
            for (int64_t i = 0; i < calls; ++i) {
              prepare();
              const auto start = Clock::now();
              call();
              seconds += seconds_since(start);
            }
            return seconds;
          }};
}

/// Seconds a call takes when the machine is kind: the least of a few batches.
double best_seconds(const Contender &c);

/**
 * Measures all in turn; contenders[0] is the subject. Counters: `us`, the subject's time of a call in its fastest batch;
 * `median_us`, in the middle one; `GBps`, its bandwidth in the fastest; for each reference the same as `<name>_us` and so
 * on, and `vs_<name>`: the subject's bandwidth divided by the reference's, or the reference's time by the subject's if
 * one of them moves no bytes.
 */
void measure(benchmark::State &state, const Contenders &contenders);

/// Pages of the arrays: what the system gives by itself, or huge ones, which madvise asks for.
enum class Pages { usual, huge };

/// A point of a sweep.
struct Point {
  int threads;
  int64_t bytes;  ///< of all arrays that a call touches, each counted once
  Pages pages = Pages::usual;
};

using PointBody = std::function<void(benchmark::State &, const Point &)>;
/// The body that calls function(state, point, arguments...).
template <typename F, typename... Arguments>
PointBody bound(F function, Arguments... arguments) {
  return [=](benchmark::State &state, const Point &point) { function(state, point, arguments...); };
}
/// Registers `name`/threads:<t> for every number of threads of the settings; the body's Point has bytes 0.
void add_threads(const std::string &name, const PointBody &body);
/// Registers `name`/threads:<t>/log2_bytes:<b> for every number of threads and every size of the settings.
void add_sweep(const std::string &name, const PointBody &body);
/// As add_sweep, at two sizes: where all arrays fit in a second-level cache, and the largest.
void add_two_sizes(const std::string &name, const PointBody &body);
/// Registers huge/`name` for every number of threads at the largest size, with all arrays and references in huge pages.
void add_huge(const std::string &name, const PointBody &body);

/// Each file of benchmarks has one of these.
void add_elementwise();
void add_optimizers();
void add_models();

}  // namespace bench
