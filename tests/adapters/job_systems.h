// SPDX-License-Identifier: Apache-2.0
//
// The test of every adapter of a job system: it must run each task once, on more threads than the caller's, and give a
// training run the bits that the library's own pool gives.
#ifndef GRADSCALER_TESTS_ADAPTERS_JOB_SYSTEMS_H
#define GRADSCALER_TESTS_ADAPTERS_JOB_SYSTEMS_H
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/trainer.h"

namespace gsc_test {

/// Six steps, one of them skipped, with clipping and a 16-bit copy.
inline Snapshot train(const Context &context, int32_t kind, uint64_t seed) {
  Trainer trainer(context, {.options = optimizer_options(kind),
                            .counts = {100000, 7, 50000, 0, 12345},
                            .grad_dtypes = {GSC_FP16, GSC_FP32},
                            .copy_dtype = GSC_BF16,
                            .seed = seed});
  const Scaler scaler = make_scaler(context, scaler_options(64.0f, 2));
  Random random(seed);
  for (int step = 0; step < 6; ++step) {
    trainer.fill_grads(random, 1.0, 8.0);
    if (step == 3) trainer.grads()[4].set(12344, kNan);
    EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, trainer.grad_list(), 1.0, GSC_NORM_L2, nullptr));
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
  }
  EXPECT_EQ(skipped_steps(trainer.optimizer()), 1);
  return trainer.snapshot();
}

/// The adapter under test, and how often the library has called it.
struct Counted {
  const gsc_parallel_for_fn parallel_for;
  void *const user;
  std::atomic<int> calls{0};

  static void run(void *self, int32_t count, gsc_task_fn body, void *argument) {
    ++static_cast<Counted *>(self)->calls;
    static_cast<Counted *>(self)->parallel_for(static_cast<Counted *>(self)->user, count, body, argument);
  }
};

/// `options` have an adapter in parallel_for.
inline void expect_the_bits_of_the_own_pool(gsc_context_options options) {
  Counted counted{options.parallel_for, options.parallel_for_user};
  options.parallel_for = Counted::run;
  options.parallel_for_user = &counted;
  const Context own = make_context(4), adapted = make_context(options);
  for (const int32_t kind : {GSC_ADAMW, GSC_LAMB}) {
    EXPECT_TRUE(train(adapted, kind, 5).same_with_grads(train(own, kind, 5))) << kind;
  }
  EXPECT_TRUE(counted.calls > 0 || options.num_threads == 1);
}

inline void expect_every_task_once(gsc_parallel_for_fn parallel_for, void *user) {
  for (const int32_t count : {1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(count);
    parallel_for(
        user, count,
        [](void *argument, int32_t index) { ++(*static_cast<std::vector<std::atomic<int>> *>(argument))[index]; },
        &runs);
    for (const std::atomic<int> &n : runs) ASSERT_EQ(n, 1) << count;
  }
}

/// Two tasks that wait for each other, so that one thread alone would not get through: false after 20 seconds.
inline bool two_tasks_meet(gsc_parallel_for_fn parallel_for, void *user) {
  std::atomic<int> arrived{0};
  parallel_for(
      user, 2,
      [](void *argument, int32_t) {
        std::atomic<int> &here = *static_cast<std::atomic<int> *>(argument);
        if (++here > 1) return;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (here < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
        if (here < 2) here = -100;  // the other comes too late
      },
      &arrived);
  return arrived == 2;
}

}  // namespace gsc_test
#endif
