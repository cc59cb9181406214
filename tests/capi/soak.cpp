// SPDX-License-Identifier: Apache-2.0
//
// Long use: objects made and destroyed, and random calls with random faults in the gradients, those of
// tests/support/random_calls.h, on several threads that also share a context. Memory, threads and file descriptors must
// not grow. Usage: soak <worlds> <calls> <threads>, each number over all threads together.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/support/random_calls.h"

namespace gsc_test {
namespace {

#define CHECK(condition)                                                                                         \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      std::fprintf(stderr, "%s:%d: %s is false; %s\n", __FILE__, __LINE__, #condition, gsc_error_get_message()); \
      std::exit(1);                                                                                              \
    }                                                                                                            \
  } while (0)

struct Usage {
  long resident_kib = 0, handles = 0, threads = 0;
};

long entries(const char *path) {
  std::error_code none;  // where there is no /proc
  return std::distance(std::filesystem::directory_iterator(path, none), {});
}

Usage usage() {
  Usage result;
  long total = 0, resident = 0;
  if (std::FILE *file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    CHECK(std::fscanf(file, "%ld %ld", &total, &resident) == 2);
    std::fclose(file);
  }
  result.resident_kib = resident * (sysconf(_SC_PAGESIZE) / 1024);
  result.handles = entries("/proc/self/fd");
  result.threads = entries("/proc/self/task");
  return result;
}

/// `worlds` worlds of a few calls, every 16th beside a pool that comes and goes; then one of `calls` calls.
void work(const Context &shared, int64_t worlds, int64_t calls, uint64_t seed) {
  Buffer numbers(GSC_FP32, 100000);  // for two tasks
  const gsc_tensor tensor = numbers.tensor();
  double norm = 0.0;
  for (int64_t i = 0; i < worlds; ++i) {
    RandomCalls<Random> world{Random(seed + i)};
    for (int call = 0; call < 4; ++call) world.call();
    const Context pool = i % 16 == 0 ? make_context(2) : nullptr;
    gsc_context *context = pool != nullptr ? pool.get() : shared.get();
    CHECK(gsc_ops_norm(context, &tensor, 1, GSC_NORM_L2, &norm, nullptr, nullptr) == GSC_OK);
  }
  RandomCalls<Random> world{Random(~seed)};
  for (int64_t i = 0; i < calls; ++i) world.call();
}

int soak(int64_t worlds, int64_t calls, int threads) {
  GTEST_FLAG_SET(break_on_failure, true);
  const Context context = make_context(0);
  Usage before;
  // The first tenth settles what an allocator keeps for every thread.
  for (const bool measured : {false, true}) {
    if (measured) before = usage();
    const int64_t share = threads * (measured ? 1 : 10);
    on_threads(threads, [&](int i) { work(context, worlds / share, calls / share, uint64_t{1} << (32 + i)); });
  }
  const Usage after = usage();
  std::printf(
      "%lld worlds, %lld calls, %d threads: resident %ld KiB before, %ld after; handles %ld, %ld; threads %ld, %ld\n",
      static_cast<long long>(worlds), static_cast<long long>(calls), threads, before.resident_kib, after.resident_kib,
      before.handles, after.handles, before.threads, after.threads);
  CHECK(after.resident_kib - before.resident_kib < 8192);
  CHECK(after.handles <= before.handles && after.threads <= before.threads);
  return 0;
}

}  // namespace
}  // namespace gsc_test

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  return gsc_test::soak(std::atoll(argv[1]), std::atoll(argv[2]), std::atoi(argv[3]));
}
