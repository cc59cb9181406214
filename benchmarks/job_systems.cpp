// SPDX-License-Identifier: Apache-2.0
// Prints threads, memory and times of contexts with separate pools against contexts that share one, and of a trainer
// with OpenMP threads against one with a separate pool. Not part of gradscaler_bench, because each row needs a process
// without threads: gradscaler_job_systems <row>.
#include <gradscaler/adapters/openmp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <gradscaler/adapters/shared_pool.hpp>
#include <gradscaler/gradscaler.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace gradscaler;

/// A number of /proc/self/status: threads, or KiB.
long status(const char *field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field, 0) == 0) return std::stol(line.substr(std::strlen(field) + 1));
  }
  return 0;
}

struct Training {
  Training(const ContextOptions &options, size_t elements)
      : weights(elements, 1.0F),
        halfs(elements, uint16_t{0x3c00}),
        context(options),
        params(context, {tensor(weights)}),
        grads(context, {tensor(halfs, DType::fp16)}),
        adamw(context, {}, params, grads),
        scaler(context, {.init_scale = 1024.0F, .growth_interval = 1 << 30}) {}
  void step() { scaler.step_and_update(adamw); }

  std::vector<float> weights;
  std::vector<uint16_t> halfs;
  Context context;
  TensorList params, grads;
  Optimizer adamw;
  GradScaler scaler;
};

/// Median time of `rounds` calls in milliseconds.
template <typename F>
double median_ms(int rounds, const F &call) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

void many_contexts(const char *name, SharedPool *pool) {
  constexpr size_t kContexts = 200, kElements = 200000, kCallers = 4;
  ContextOptions options;
  if (pool != nullptr) pool->use_in(options);
  std::vector<std::unique_ptr<Training>> all;
  for (size_t i = 0; i < kContexts; ++i) all.push_back(std::make_unique<Training>(options, kElements));
  const long before = status("VmRSS:");
  const auto round = [&](size_t first, size_t stride) {
    for (size_t i = first; i < kContexts; i += stride) all[i]->step();
  };
  round(0, 1);
  const long threads = status("Threads:"), resident = status("VmRSS:") - before;
  const double one = median_ms(15, [&] { round(0, 1); });
  const double four = median_ms(15, [&] {
    std::vector<std::thread> callers;
    for (size_t i = 0; i < kCallers; ++i) callers.emplace_back([&, i] { round(i, kCallers); });
    for (std::thread &caller : callers) caller.join();
  });
  std::printf("%-14s %4ld threads, %5ld KiB more at the first step; 200 steps: %7.2f ms, from 4 threads %7.2f ms\n",
              name, threads, resident, one, four);
}

void openmp_trainer(const char *name, bool adapter) {
  constexpr int kWork = 400000;
  ContextOptions options;
  if (adapter) {
    options.num_threads = omp_get_max_threads();
    options.parallel_for = gsc_openmp_parallel_for;
  }
  Training training(options, 1000000);
  std::vector<float> activations(kWork, 0.5F);
  const double ms = median_ms(300, [&] {
#pragma omp parallel for
    for (int i = 0; i < kWork; ++i) {
      for (int k = 0; k < 8; ++k) activations[static_cast<size_t>(i)] *= 1.0F - activations[static_cast<size_t>(i)];
    }
    training.step();
  });
  std::printf("%-14s %4ld threads; backward and step: %.3f ms\n", name, status("Threads:"), ms);
}

}  // namespace

int main(int argc, char **argv) {
  const std::string row = argc == 2 ? argv[1] : "";
  if (row == "own") {
    many_contexts("own pools", nullptr);
  } else if (row == "shared") {
    SharedPool pool;
    many_contexts("shared pool", &pool);
  } else if (row == "openmp_own") {
    openmp_trainer("own pool", false);
  } else if (row == "openmp") {
    openmp_trainer("OpenMP adapter", true);
  } else {
    std::fprintf(stderr, "usage: gradscaler_job_systems own|shared|openmp_own|openmp\n");
    return 2;
  }
  return 0;
}
