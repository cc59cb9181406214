// SPDX-License-Identifier: Apache-2.0
//
// One pool under many contexts: how many threads there are, several calls at once, threads of the caller's, fork.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <gradscaler/adapters/shared_pool.hpp>
#include <gradscaler/gradscaler.hpp>

#include "tests/adapters/job_systems.h"

namespace gsc_test {
namespace {

gsc_context_options pool_options(gradscaler::SharedPool &pool) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  pool.use_in(options);
  return options;
}

/// 0 where there is no /proc.
int thread_count() {
  std::error_code none;
  return std::distance(std::filesystem::directory_iterator("/proc/self/task", none), {});
}

TEST(SharedPool, EveryTaskOnceAndOnSeveralThreads) {
  gradscaler::SharedPool pool(4);
  expect_every_task_once(gradscaler::SharedPool::parallel_for, &pool);
  EXPECT_TRUE(two_tasks_meet(gradscaler::SharedPool::parallel_for, &pool));
}

TEST(SharedPool, SameBits) {
  for (const int32_t threads : {1, 2, 5}) {
    gradscaler::SharedPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    expect_the_bits_of_the_own_pool(pool_options(pool));
  }
}

TEST(SharedPool, OptionsOfTheCppLayer) {
  gradscaler::SharedPool pool;
  gradscaler::ContextOptions options;
  pool.use_in(options);
  EXPECT_EQ(gradscaler::Context(options).get_cpu().num_threads, pool.threads());
}

TEST(SharedPool, ManyContextsShareItsThreads) {
  const Snapshot expected = train(make_context(1), GSC_ADAMW, 1);
  const int before = thread_count();
  gradscaler::SharedPool pool(3);
  std::vector<Context> contexts;
  for (int i = 0; i < 12; ++i) contexts.push_back(make_context(pool_options(pool)));
  for (const Context &context : contexts) EXPECT_TRUE(train(context, GSC_ADAMW, 1) == expected);
  // A sanitizer may have started a thread meanwhile.
  if (before > 0) {
    EXPECT_LE(thread_count(), before + 3);
  }
}

TEST(SharedPool, CallsAtOnce) {
  constexpr size_t kCallers = 4;
  gradscaler::SharedPool pool(3);
  const Context alone = make_context(1);
  std::vector<Snapshot> got(kCallers);
  on_threads(kCallers, [&](int i) { got[i] = train(make_context(pool_options(pool)), GSC_ADAMW, i); });
  for (size_t i = 0; i < kCallers; ++i) EXPECT_TRUE(got[i] == train(alone, GSC_ADAMW, i)) << i;
}

/// Threads of an engine's work in the queue; when they leave, calls go on without them.
TEST(WorkQueue, ThreadsOfTheCaller) {
  gradscaler::WorkQueue queue;
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  queue.use_in(options, 3);
  const Context context = make_context(options);
  const Snapshot expected = train(make_context(1), GSC_LAMB, 2);
  EXPECT_TRUE(train(context, GSC_LAMB, 2) == expected) << "before there are any";
  std::vector<std::thread> workers;
  for (int i = 0; i < 2; ++i) workers.emplace_back([&queue] { queue.work(); });
  EXPECT_TRUE(two_tasks_meet(gradscaler::WorkQueue::parallel_for, &queue));
  EXPECT_TRUE(train(context, GSC_LAMB, 2) == expected);
  queue.stop();
  for (std::thread &worker : workers) worker.join();
  EXPECT_TRUE(train(context, GSC_LAMB, 2) == expected) << "after they have left";
}

TEST(SharedPool, ForkedChildWorksAlone) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support threads after a fork with threads";
#endif
  auto pool = std::make_unique<gradscaler::SharedPool>(3);
  Context context = make_context(pool_options(*pool));
  const Snapshot expected = train(context, GSC_ADAMW, 4);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang ends the child
    const bool same = train(context, GSC_ADAMW, 4) == expected;
    context.reset();
    pool.reset();
    _exit(same && !::testing::Test::HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(train(context, GSC_ADAMW, 4) == expected);
}

}  // namespace
}  // namespace gsc_test
