// SPDX-License-Identifier: Apache-2.0
//
// The oneTBB adapter, alone and among other tasks of the program's.
#include <tbb/global_control.h>
#include <tbb/task_group.h>

#include <functional>
#include <gradscaler/adapters/tbb.hpp>
#include <gradscaler/gradscaler.hpp>

#include "tests/adapters/job_systems.h"

namespace gsc_test {
namespace {

gsc_context_options tbb_options(tbb::task_arena *arena = nullptr) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  gradscaler::use_tbb(options, arena);
  return options;
}

class Tbb : public ::testing::Test {
  // Threads also on a machine with one processor.
  tbb::global_control control_{tbb::global_control::max_allowed_parallelism, 4};
};

TEST_F(Tbb, EveryTaskOnceAndOnSeveralThreads) {
  tbb::task_arena arena(4);
  expect_every_task_once(gradscaler::tbb_parallel_for, nullptr);
  expect_every_task_once(gradscaler::tbb_parallel_for, &arena);
  EXPECT_TRUE(two_tasks_meet(gradscaler::tbb_parallel_for, &arena));
}

TEST_F(Tbb, SameBits) {
  expect_the_bits_of_the_own_pool(tbb_options());
  tbb::task_arena arena(3);
  EXPECT_EQ(tbb_options(&arena).num_threads, 3);
  expect_the_bits_of_the_own_pool(tbb_options(&arena));
}

TEST_F(Tbb, OptionsOfTheCppLayer) {
  gradscaler::ContextOptions options;
  gradscaler::use_tbb(options);
  EXPECT_EQ(gradscaler::Context(options).get_cpu().num_threads, options.num_threads);
}

/// As on the page for hosts. capi_threads compares the bits of sliced steps.
TEST_F(Tbb, AStepAsTasks) {
  std::vector<float> weights(200000, 1.0F), gradients(weights.size(), 4.0F);
  const gradscaler::Context context({.num_threads = 1});
  const gradscaler::TensorList params(context, gradscaler::tensor(weights));
  const gradscaler::TensorList grads(context, gradscaler::tensor(gradients));
  gradscaler::Optimizer optimizer(context, {.kind = gradscaler::OptimizerKind::sgd, .lr = 0.5}, params, grads);
  gradscaler::GradScaler scaler(context, {.init_scale = 8.0F});
  for (int step = 0; step < 2; ++step) {
    tbb::task_group group;
    std::function<void()> slice = [&] {
      if (scaler.step_slice(optimizer, 1 << 18) > 0) group.run(slice);
    };
    for (int i = 0; i < 4; ++i) group.run(slice);
    group.wait();  // or a continuation of yours
    scaler.update();
  }
  EXPECT_EQ(weights, std::vector<float>(weights.size(), 0.5F));
}

/// As on the page for hosts: a profiler's scopes around the tasks.
TEST_F(Tbb, ScopesAroundTasks) {
  struct Jobs {
    std::atomic<int> scopes{0};
    void parallel_for(int32_t count, const std::function<void(int32_t)> &task) { tbb::parallel_for(0, count, task); }
  } jobs;
  static Jobs *profiled;
  profiled = &jobs;
  struct Scope {
    explicit Scope(const char *) { ++profiled->scopes; }
    ~Scope() { ++profiled->scopes; }
  };
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = 4;
  options.parallel_for_user = &jobs;
  options.parallel_for = [](void *jobs, int32_t count, gsc_task_fn body, void *argument) {
    static_cast<Jobs *>(jobs)->parallel_for(count, [=](int32_t index) {
      const Scope scope("gradscaler");  // of Tracy, NVTX or your own
      body(argument, index);
    });
  };
  const Context context = make_context(options);
  train(context, GSC_ADAMW, 1);
  EXPECT_GT(jobs.scopes, 0);
  EXPECT_EQ(jobs.scopes % 2, 0);
}

/// A thread that waits inside a call must not begin another of the program's tasks: it could use the objects of that
/// call. Here it waits for a task that another thread has taken, while a third offers tasks to idle threads.
TEST_F(Tbb, NoOtherTaskInsideACall) {
  tbb::task_arena arena(4);
  std::atomic<bool> inside{false}, done{false};
  std::atomic<int> nested{0};
  std::thread::id caller;
  std::thread other([&] {
    arena.execute([&] {
      tbb::task_group group;
      while (!done) {
        group.run([&] { nested += inside && std::this_thread::get_id() == caller; });
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      group.wait();
    });
  });
  const auto task = [](void *argument, int32_t) {
    const bool mine = *static_cast<std::thread::id *>(argument) == std::this_thread::get_id();
    std::this_thread::sleep_for(std::chrono::milliseconds(mine ? 1 : 10));
  };
  arena.execute([&] {
    caller = std::this_thread::get_id();
    for (int call = 0; call < 20; ++call) {
      inside = true;
      gradscaler::tbb_parallel_for(nullptr, 4, task, &caller);
      inside = false;
    }
  });
  done = true;
  other.join();
  EXPECT_EQ(nested, 0);
}

TEST_F(Tbb, CancelledTaskFinishesItsCall) {
  const Context context = make_context(tbb_options());
  const Snapshot expected = train(context, GSC_ADAMW, 3);
  bool same = false;
  tbb::task_group group;
  group.run_and_wait([&] {
    group.cancel();
    same = train(context, GSC_ADAMW, 3) == expected;  // expects GSC_OK of every call
  });
  EXPECT_TRUE(same);
}

}  // namespace
}  // namespace gsc_test
