// SPDX-License-Identifier: Apache-2.0
//
// The OpenMP adapter, from outside and from inside of parallel regions of the program's.
#include <gradscaler/adapters/openmp.h>

#include "tests/adapters/job_systems.h"

namespace gsc_test {
namespace {

constexpr int kThreads = 4;

gsc_context_options openmp_options() {
  omp_set_dynamic(0);
  omp_set_num_threads(kThreads);
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gsc_openmp_use(&options);
  EXPECT_EQ(options.num_threads, kThreads);
  return options;
}

TEST(OpenMp, EveryTaskOnceAndOnSeveralThreads) {
  openmp_options();
  expect_every_task_once(gsc_openmp_parallel_for, nullptr);
  EXPECT_TRUE(two_tasks_meet(gsc_openmp_parallel_for, nullptr));
}

TEST(OpenMp, SameBits) { expect_the_bits_of_the_own_pool(openmp_options()); }

/// The other threads of the region wait at the end of the single construct, and help from there.
TEST(OpenMp, ThreadsOfTheRegionHelp) {
  const gsc_context_options options = openmp_options();
  bool met = false;
#pragma omp parallel
#pragma omp single
  {
    expect_every_task_once(gsc_openmp_parallel_for, nullptr);
    met = two_tasks_meet(gsc_openmp_parallel_for, nullptr);
    expect_the_bits_of_the_own_pool(options);
  }
  EXPECT_TRUE(met);
}

/// Every thread of a region trains with its own objects on one context.
TEST(OpenMp, EveryThreadOfARegionCalls) {
  const Context context = make_context(openmp_options()), alone = make_context(1);
  std::vector<Snapshot> got(kThreads);
#pragma omp parallel for
  for (int i = 0; i < kThreads; ++i) got[i] = train(context, GSC_ADAMW, i);
  for (int i = 0; i < kThreads; ++i) EXPECT_TRUE(got[i] == train(alone, GSC_ADAMW, i)) << i;
}

}  // namespace
}  // namespace gsc_test
