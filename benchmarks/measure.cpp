// SPDX-License-Identifier: Apache-2.0
// The rounds, what is made of them, and the registration of sweeps with Google Benchmark.
#include "measure.h"

#include <gradscaler/gradscaler.h>

#include <algorithm>
#include <exception>

namespace bench {
namespace {

Settings the_settings;

double median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

int64_t calls_per_batch(const Contender &c) {
  int64_t calls = 1;
  for (;;) {
    const double seconds = c.timed(calls);
    if (seconds >= the_settings.batch_seconds / 2) {
      return std::max<int64_t>(1, calls * the_settings.batch_seconds / seconds);
    }
    calls *= 2;
  }
}

/// Calls before a short batch that are not measured: they bring the data back into the caches and wake the threads.
double batch(const Contender &c, int64_t calls) {
  if (calls > 1) c.timed(std::min<int64_t>(calls, 4));
  return c.timed(calls) / calls;
}

double fastest(const std::vector<double> &seconds) { return *std::min_element(seconds.begin(), seconds.end()); }

void describe(benchmark::State &state, const std::string &prefix, const Contender &c,
              const std::vector<double> &seconds) {
  state.counters[prefix + "us"] = fastest(seconds) * 1e6;
  state.counters[prefix + "median_us"] = median(seconds) * 1e6;
  if (c.bytes > 0.0) state.counters[prefix + "GBps"] = c.bytes / fastest(seconds) * 1e-9;
}

/// How much faster the subject is: by bandwidth if both move bytes, else by time.
double ratio(const Contender &subject, const std::vector<double> &subject_seconds, const Contender &reference,
             const std::vector<double> &reference_seconds) {
  const double times = fastest(reference_seconds) / fastest(subject_seconds);
  return subject.bytes > 0.0 && reference.bytes > 0.0 ? times * subject.bytes / reference.bytes : times;
}

void add_one(const std::string &name, const PointBody &body, const Point &point) {
  const auto guarded = [body, point](benchmark::State &state) {
    try {
      body(state, point);
    } catch (const std::exception &error) {
      state.SkipWithError(error.what());
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), guarded)->Iterations(1)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void add_points(const std::string &name, const std::vector<int> &sizes, Pages pages, const PointBody &body) {
  for (const int threads : the_settings.threads) {
    for (const int log2 : sizes) {
      add_one(name + "/threads:" + std::to_string(threads) + "/log2_bytes:" + std::to_string(log2), body,
              {threads, int64_t{1} << log2, pages});
    }
  }
}

}  // namespace

const Settings &settings() { return the_settings; }

void set_quick() {
  the_settings.quick = true;
  the_settings.batch_seconds = 3e-4;
  the_settings.case_seconds = 0.1;
  the_settings.max_rounds = the_settings.long_rounds = 5;
  the_settings.log2_bytes = {14, 20, 26};
}

bool set_cpu_target(std::string_view name) {
  constexpr std::pair<std::string_view, int32_t> kTargets[] = {{"best", GSC_CPU_BEST},
                                                               {"baseline", GSC_CPU_BASELINE},
                                                               {"avx2", GSC_CPU_AVX2},
                                                               {"avx512", GSC_CPU_AVX512},
                                                               {"neon_bf16", GSC_CPU_NEON_BF16}};
  for (const auto &[known, target] : kTargets) {
    if (name != known) continue;
    the_settings.cpu_target = target;
    return true;
  }
  return false;
}

double best_seconds(const Contender &c) {
  const int64_t calls = calls_per_batch(c);
  double best = batch(c, calls);
  for (int i = 0; i < 2; ++i) best = std::min(best, batch(c, calls));
  return best;
}

void measure(benchmark::State &state, const Contenders &contenders) {
  std::vector<int64_t> calls;
  calls.reserve(contenders.size());
  for (const Contender &c : contenders) calls.push_back(calls_per_batch(c));
  const int rounds = calls[0] == 1 ? the_settings.long_rounds : the_settings.max_rounds;
  std::vector<std::vector<double>> seconds(contenders.size());
  for (auto _ : state) {
    double spent = 0.0;
    for (int round = 0; round < rounds; ++round) {
      if (round >= the_settings.min_rounds && spent > the_settings.case_seconds) break;
      // There and back, so that none always follows the one that leaves the least in the caches.
      for (size_t k = 0; k < contenders.size(); ++k) {
        const size_t i = round % 2 == 0 ? k : contenders.size() - 1 - k;
        seconds[i].push_back(batch(contenders[i], calls[i]));
      }
      spent += seconds[0].back() * calls[0];
    }
    state.SetIterationTime(fastest(seconds[0]));
  }
  describe(state, "", contenders[0], seconds[0]);
  for (size_t i = 1; i < contenders.size(); ++i) {
    const Contender &c = contenders[i];
    describe(state, c.name + "_", c, seconds[i]);
    state.counters["vs_" + c.name] = ratio(contenders[0], seconds[0], c, seconds[i]);
  }
}

void add_threads(const std::string &name, const PointBody &body) {
  for (const int threads : the_settings.threads) {
    add_one(name + "/threads:" + std::to_string(threads), body, {threads, 0});
  }
}

void add_sweep(const std::string &name, const PointBody &body) {
  add_points(name, the_settings.log2_bytes, Pages::usual, body);
}

void add_two_sizes(const std::string &name, const PointBody &body) {
  add_points(name, {20, the_settings.log2_bytes.back()}, Pages::usual, body);
}

void add_huge(const std::string &name, const PointBody &body) {
  add_points("huge/" + name, {the_settings.log2_bytes.back()}, Pages::huge, body);
}

}  // namespace bench
