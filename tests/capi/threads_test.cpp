// SPDX-License-Identifier: Apache-2.0
//
// Threads and lifetimes: distinct scalers in parallel on one shared context, objects destroyed in any order and from
// other threads, messages that belong to a thread, and a process that forks after the pool has started. ThreadSanitizer
// runs this suite too.
#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <filesystem>
#include <iterator>

#include "tests/support/trainer.h"

#if defined(__SANITIZE_THREAD__)
#define GSC_TEST_TSAN 1
#endif

namespace gsc_test {
namespace {

TrainerSpec spec_of(int worker) {
  return {.options = optimizer_options(worker % 2 == 0 ? GSC_ADAMW : GSC_LAMB),
          .counts = {70000, 7, 5000},  // enough for two tasks
          .grad_dtypes = {GSC_FP16, GSC_FP32},
          .seed = uint64_t(worker)};
}

Snapshot train(const Context &context, int worker) {
  Trainer trainer(context, spec_of(worker));
  const Scaler scaler = make_scaler(context, scaler_options(64.0f, 2));
  Random random(worker);
  for (int step = 0; step < 10; ++step) {
    trainer.fill_grads(random, 1.0, 8.0);
    if (step % 4 == 3) trainer.grads()[0].set(29999, kNan);
    EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, trainer.grad_list(), 1.0, GSC_NORM_L2, nullptr));
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    // The stateless operations keep their plan in the context, which everybody shares.
    double norm = 0.0;
    EXPECT_GSC_OK(gsc_ops_norm(context, tensors_of(trainer.params()).data(), 3, GSC_NORM_L2, &norm, nullptr, nullptr));
    EXPECT_GT(norm, 0.0);
  }
  return trainer.snapshot();
}

/// A finalizer's thread destroys a scaler in mid-iteration while another scaler waits for its list.
TEST(Threads, AnAbandonedListIsFree) {
  const Context context = make_context();
  Buffer grads(GSC_FP32, 64);
  const List list = make_list(context, grads);
  const Scaler scaler = make_scaler(context, 4.0f);
  for (int i = 0; i < 50; ++i) {
    Scaler abandoned = make_scaler(context, 4.0f);
    ASSERT_GSC_OK(gsc_scaler_check_range(abandoned, list, 0, 1, nullptr));
    std::thread finalizer([&] { abandoned.reset(); });
    gsc_status status = GSC_OK;
    while ((status = gsc_scaler_check(scaler, list, nullptr)) == GSC_ERROR_BAD_STATE) {
      std::this_thread::yield();
    }
    EXPECT_GSC_OK(status);
    finalizer.join();
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  }
}

TEST(Threads, DistinctScalersOnOneContext) {
  constexpr int kWorkers = 4;
  std::vector<Snapshot> expected, got(kWorkers);
  {
    const Context alone = make_context(1);
    for (int worker = 0; worker < kWorkers; ++worker) expected.push_back(train(alone, worker));
  }
  for (const int32_t pool : {1, 3}) {
    const Context shared = make_context(pool);
    on_threads(kWorkers, [&](int worker) { got[worker] = train(shared, worker); });
    for (int worker = 0; worker < kWorkers; ++worker) EXPECT_TRUE(got[worker] == expected[worker]) << worker;
  }
}

TEST(Threads, ContextsAreCreatedAndDestroyedInParallel) {
  on_threads(4, [](int worker) {
    for (int i = 0; i < 5; ++i) train(make_context(2), worker);
  });
}

TEST(Threads, MessagesBelongToTheirThread) {
  EXPECT_NE(gsc_context_create(nullptr, nullptr), GSC_OK);
  const std::string mine = gsc_error_get_message();
  std::string fresh = "unset", other;
  std::thread([&] {
    fresh = gsc_error_get_message();
    EXPECT_NE(gsc_tensor_list_get_count(nullptr, nullptr), GSC_OK);
    other = gsc_error_get_message();
  }).join();
  EXPECT_EQ(fresh, "");
  EXPECT_NE(other, "");
  EXPECT_NE(other, mine);
  EXPECT_EQ(gsc_error_get_message(), mine);
}

struct Loop {
  Buffer weights{GSC_FP32, 50000}, gradients{GSC_FP16, 50000};
  Context context = make_context(2);
  List params = make_list(context, weights), grads = make_list(context, gradients);
  Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_ADAMW), params, grads);
  Scaler scaler = make_scaler(context, 4.0f);
};

/// Every order of destroying the objects of a training loop; what is left must keep working.
TEST(Lifetime, AnyOrderOfDestruction) {
  int order[] = {0, 1, 2, 3, 4};
  const float inverse = 0.25f;
  do {
    Loop loop;
    const Optimizer &optimizer = loop.optimizer;
    const Scaler &scaler = loop.scaler;
    ASSERT_GSC_OK(gsc_scaler_step(scaler, optimizer, nullptr));
    for (const int which : order) {
      if (which == 0) loop.context.reset();
      if (which == 1) loop.params.reset();
      if (which == 2) loop.grads.reset();
      if (which == 3) loop.optimizer.reset();
      if (which == 4) loop.scaler.reset();
      if (optimizer != nullptr) {
        ASSERT_GSC_OK(gsc_optimizer_step_scaled(optimizer, &inverse, nullptr, nullptr));
      }
      if (scaler != nullptr) {
        scale_of(scaler);
      }
      if (scaler != nullptr && optimizer != nullptr) {
        ASSERT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
        ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
      }
    }
  } while (std::next_permutation(std::begin(order), std::end(order)));
}

/// A thread that destroys the object.
template <typename T>
std::thread destroyed(T object) {
  return std::thread([o = std::move(object)]() mutable { o.reset(); });
}

TEST(Lifetime, FromOtherThreads) {
  Loop loop;
  ASSERT_GSC_OK(gsc_scaler_step_and_update(loop.scaler, loop.optimizer, nullptr));
  std::thread threads[] = {destroyed(std::move(loop.context)), destroyed(std::move(loop.params)),
                           destroyed(std::move(loop.grads)), destroyed(std::move(loop.optimizer)),
                           destroyed(std::move(loop.scaler))};
  for (std::thread &thread : threads) thread.join();
}

/// A collector may destroy a scaler while its list is used with another. Each has a separate context.
TEST(Lifetime, AScalerGoesWhileItsListGoesOn) {
  const Context own = make_context(), contexts[] = {make_context(), make_context()};
  Buffer grads(GSC_FP32, 100);
  const List list = make_list(own, grads);
  std::vector<std::thread> collectors;
  for (int i = 0; i < 20; ++i) {
    Scaler scaler = make_scaler(contexts[i % 2], 4.0f);
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    ASSERT_GSC_OK(gsc_scaler_discard(scaler, list));
    collectors.push_back(destroyed(std::move(scaler)));
  }
  for (std::thread &collector : collectors) collector.join();
}

/// A list may go while a scaler still remembers its check, and a new list may take its address.
TEST(Lifetime, ListsComeAndGoUnderOneScaler) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, 4.0f);
  Buffer grads(GSC_FP16, 100);
  for (int i = 0; i < 200; ++i) {
    const List list = make_list(context, grads);
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr)) << i;
    if (i % 3 != 0) {
      ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr)) << i;
    }
  }
  const List last = make_list(context, grads);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, last, nullptr));
  ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
}

#if !defined(_WIN32)
/// A child of fork has none of the pool's threads; its calls must still return.
TEST(Fork, ChildDoesNotHang) {
#if defined(GSC_TEST_TSAN)
  GTEST_SKIP() << "ThreadSanitizer does not support threads after a fork with threads";
#endif
  Context context = make_context(3), unused = make_context(3);
  const Snapshot expected = train(context, 1);
  EXPECT_TRUE(train(unused, 1) == expected);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // A hang ends the child by SIGALRM.
    bool same = train(context, 1) == expected;
#if defined(__linux__)
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    same = same && std::distance(begin(tasks), end(tasks)) >= 3;  // its own threads
#endif
    {
      const Context own = make_context(2);
      same = same && train(own, 1) == expected;
    }
    // Their threads are the parent's, and cannot be waited for.
    context.reset();
    unused.reset();
    _exit(same && !testing::Test::HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(train(context, 1) == expected) << "the parent goes on";
}
#endif

}  // namespace
}  // namespace gsc_test
