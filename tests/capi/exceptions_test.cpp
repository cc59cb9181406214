// SPDX-License-Identifier: Apache-2.0
//
// C++ exceptions that leave a callback of the caller's: no call passes one on or ends the process. std::bad_alloc of an
// allocator or a reducer is OUT_OF_MEMORY, anything else CALLBACK; the call leaves the same state as after any other
// failure.
#include <new>
#include <stdexcept>
#include <thread>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

struct Thrown {
  void (*raise)();
  gsc_status status;
};
const Thrown kThrown[] = {{[] { throw std::bad_alloc(); }, GSC_ERROR_OUT_OF_MEMORY},
                          {[] { throw std::runtime_error("not today"); }, GSC_ERROR_CALLBACK},
                          {[] { throw 7; }, GSC_ERROR_CALLBACK}};

/// Throws at one request, and counts what is live.
struct ThrowingAllocator {
  void (*raise)() = nullptr;
  std::atomic<int64_t> throw_at{0}, calls{0}, live{0};
  bool throws_on_release = false;

  static void *allocate(void *user, int64_t bytes, int64_t alignment) {
    auto *self = static_cast<ThrowingAllocator *>(user);
    if (++self->calls == self->throw_at) self->raise();
    ++self->live;
    return ::operator new(static_cast<size_t>(bytes), std::align_val_t(static_cast<size_t>(alignment)));
  }
  static void release(void *user, void *memory, int64_t, int64_t alignment) {
    auto *self = static_cast<ThrowingAllocator *>(user);
    --self->live;
    ::operator delete(memory, std::align_val_t(static_cast<size_t>(alignment)));
    if (self->throws_on_release) throw std::runtime_error("after the release");
  }
  gsc_context_options options() {
    gsc_context_options result = GSC_CONTEXT_OPTIONS_INIT;
    result.num_threads = 2;
    result.allocate = &allocate;
    result.release = &release;
    result.allocator_user = this;
    return result;
  }
};

struct Session {
  Buffer params{GSC_FP32, 1000}, grads{GSC_FP16, 1000};
  gsc_context *context = nullptr;
  gsc_tensor_list *p = nullptr, *g = nullptr;
  gsc_optimizer *optimizer = nullptr;
  gsc_scaler *scaler = nullptr;

  Session() {
    params.fill(1.0);
    grads.fill(4.0);
  }
  ~Session() {
    gsc_scaler_destroy(scaler);
    gsc_optimizer_destroy(optimizer);
    gsc_tensor_list_destroy(p);
    gsc_tensor_list_destroy(g);
    gsc_context_destroy(context);
  }
  /// f(call) for each call that allocates.
  template <typename F>
  void run(const gsc_context_options &options, const F &f) {
    const gsc_tensor param = params.tensor(), grad = grads.tensor();
    f([&] { return gsc_context_create(&options, &context); });
    f([&] { return gsc_tensor_list_create(context, &param, 1, nullptr, &p); });
    f([&] { return gsc_tensor_list_create(context, &grad, 1, nullptr, &g); });
    f([&] { return gsc_optimizer_create(context, nullptr, p, g, nullptr, nullptr, 0, &optimizer); });
    f([&] { return gsc_scaler_create(context, nullptr, &scaler); });
    f([&] { return gsc_scaler_step_and_update(scaler, optimizer, nullptr); });
  }
};

TEST(Exceptions, OfAnAllocator) {
  for (const Thrown &thrown : kThrown) {
    bool is_thrown = true;
    for (int64_t site = 1; is_thrown; ++site) {
      SCOPED_TRACE(site);
      ThrowingAllocator allocator{.raise = thrown.raise, .throw_at = site};
      {
        Session session;
        const gsc_context_options options = allocator.options();
        is_thrown = false;
        session.run(options, [&](const auto &call) {
          const gsc_status status = call();
          if (status == GSC_OK) return;
          is_thrown = true;
          EXPECT_EQ(status, thrown.status) << gsc_error_get_message();
          EXPECT_GSC_OK(call()) << "nothing has changed";
        });
        EXPECT_LT(session.params.get(999), 1.0);
      }
      ASSERT_EQ(allocator.live, 0);
      ASSERT_LT(site, 200);
    }
  }
}

TEST(Exceptions, OfARelease) {
  ThrowingAllocator allocator;
  allocator.throws_on_release = true;
  {
    Session session;
    const gsc_context_options options = allocator.options();
    session.run(options, [](const auto &call) { EXPECT_GSC_OK(call()); });
  }
  EXPECT_EQ(allocator.live, 0);
}

struct ThrowingReducer {
  void (*raise)();
  static int32_t run(void *user, double *values, int64_t, gsc_stream) {
    values[0] = 5.0;  // as if a part had arrived
    static_cast<ThrowingReducer *>(user)->raise();
    return 0;
  }
  gsc_reducer get() { return {sizeof(gsc_reducer), 0, &run, this}; }
};

TEST(Exceptions, OfAReducerLeaveTheListReady) {
  for (const Thrown &thrown : kThrown) {
    const Context context = make_context();
    Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {5, 40}});
    Random random(1);
    trainer.fill_grads(random, 1.0, 4.0);
    const Scaler scaler = make_scaler(context, 4.0f);
    ThrowingReducer reducer{thrown.raise};
    const gsc_reducer registered = reducer.get();
    ASSERT_GSC_OK(gsc_scaler_set_reducer(scaler, &registered));
    const Snapshot before = trainer.snapshot();
    EXPECT_GSC_ERROR(gsc_scaler_check(scaler, trainer.grad_list(), nullptr), thrown.status, "all_reduce");
    EXPECT_GSC_ERROR(gsc_scaler_step(scaler, trainer, nullptr), thrown.status, "all_reduce");
    EXPECT_BAD_STATE(gsc_scaler_update(scaler, nullptr), "no list");
    EXPECT_TRUE(trainer.snapshot().same_with_grads(before));
    ASSERT_GSC_OK(gsc_scaler_set_reducer(scaler, nullptr)) << "the list is in no iteration";
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    EXPECT_EQ(applied_steps(trainer.optimizer()), 1);
    EXPECT_EQ(scale_of(scaler), 4.0f);
  }
}

TEST(Exceptions, OfAReducerInUnscaleSkipTheStep) {
  for (const Thrown &thrown : kThrown) {
    const Context context = make_context();
    Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {5, 40}});
    for (Buffer &buffer : trainer.grads()) buffer.fill(4.0);
    const Scaler scaler = make_scaler(context, 4.0f);
    ThrowingReducer reducer{thrown.raise};
    const gsc_reducer registered = reducer.get();
    ASSERT_GSC_OK(gsc_scaler_set_reducer(scaler, &registered));
    EXPECT_GSC_ERROR(gsc_scaler_unscale(scaler, trainer.grad_list(), nullptr), thrown.status, "all_reduce",
                     "will be skipped");
    EXPECT_EQ(trainer.grads()[1].get(39), 1.0);
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    EXPECT_EQ(skipped_steps(trainer.optimizer()), 1);
    EXPECT_EQ(scale_of(scaler), 2.0f);
  }
}

/// Runs some tasks on another thread, then throws while it is still at work.
struct ThrowingJobs {
  void (*raise)();
  int32_t tasks_before = 0;
  std::thread other;

  ~ThrowingJobs() { join(); }
  void join() {
    if (other.joinable()) other.join();
  }
  static void run(void *user, int32_t count, gsc_task_fn body, void *argument) {
    auto *self = static_cast<ThrowingJobs *>(user);
    self->join();
    self->other = std::thread([=, last = std::min(count, self->tasks_before)] {
      for (int32_t i = 0; i < last; ++i) body(argument, i);
    });
    self->raise();
  }
};

TEST(Exceptions, OfAParallelForLeaveNoTaskOut) {
  const TrainerSpec spec = {.options = optimizer_options(GSC_LAMB), .counts = {300000, 3}, .grad_dtypes = {GSC_FP16}};
  const Context plain_context = make_context();
  Trainer expected(plain_context, spec);
  Random same(2);
  expected.fill_grads(same, 1.0, 4.0);
  const Scaler expected_scaler = make_scaler(plain_context, 4.0f);
  ASSERT_GSC_OK(gsc_scaler_step(expected_scaler, expected, nullptr));
  for (const Thrown &thrown : kThrown) {
    for (const int32_t tasks : {0, 2, 1000}) {
      SCOPED_TRACE(tasks);
      ThrowingJobs jobs{thrown.raise, tasks, {}};
      const Context context = make_context(&ThrowingJobs::run, &jobs);
      Trainer trainer(context, spec);
      Random random(2);
      trainer.fill_grads(random, 1.0, 4.0);
      const Scaler scaler = make_scaler(context, 4.0f);
      EXPECT_GSC_ERROR(gsc_scaler_step(scaler, trainer, nullptr), GSC_ERROR_CALLBACK, "options.parallel_for", "threw",
                       "has done its work");
      EXPECT_TRUE(trainer.snapshot().same_with_grads(expected.snapshot()));
      EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr)) << "the list is stepped";
      for (int i = 0; i < 10; ++i) {  // more often than there are regions
        EXPECT_GSC_ERROR(gsc_optimizer_zero_grads(trainer, nullptr), GSC_ERROR_CALLBACK, "threw");
      }
      jobs.join();  // while there is a context that late tasks find closed
    }
  }
}

TEST(Exceptions, OfALogAreDropped) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  int messages = 0;
  options.log = [](void *user, int32_t, const char *) {
    ++*static_cast<int *>(user);
    throw std::runtime_error("the disk is full");
  };
  options.log_user = &messages;
  const Context context = make_context(options);
  EXPECT_EQ(messages, 1);
  gsc_scaler_options policy = scaler_options(1.0f);
  policy.min_scale = 1.0f;
  policy.floor_action = GSC_FLOOR_REPORT;
  const Scaler scaler = make_scaler(context, policy);
  Buffer grads(GSC_FP32, 3);
  grads.fill(kInf);
  const List list = make_list(context, grads);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
  EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  EXPECT_EQ(messages, 2);
  EXPECT_EQ(state_of(scaler).updates, 1);
}

/// Calls of several threads on one context. Each thread has a scaler and a reducer.
TEST(Exceptions, OnSeveralThreads) {
  ThrowingAllocator allocator{.raise = kThrown[1].raise};
  {
    const Context context = make_context(allocator.options());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const Thrown &thrown = kThrown[t % 3];
        for (int i = 0; i < 200; ++i) {
          Buffer grads(GSC_FP32, 100);
          grads.fill(4.0);
          const List list = make_list(context, grads);
          const Scaler scaler = make_scaler(context, 4.0f);
          ThrowingReducer reducer{thrown.raise};
          const gsc_reducer registered = reducer.get();
          ASSERT_GSC_OK(gsc_scaler_set_reducer(scaler, &registered));
          ASSERT_EQ(gsc_scaler_check(scaler, list, nullptr), thrown.status);
          ASSERT_EQ(last_error().status, thrown.status);
        }
      });
    }
    for (std::thread &thread : threads) thread.join();
  }
  EXPECT_EQ(allocator.live, 0);
}

}  // namespace
}  // namespace gsc_test
