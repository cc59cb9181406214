// SPDX-License-Identifier: Apache-2.0
//
// Callbacks that do what they must not: reducers, parallel-fors and allocators that use or destroy the objects of the
// call they are in, parallel-fors that drop, repeat, invent or delay tasks or throw, and logs that throw. What other
// callbacks throw is in memory_test.cpp and reducer_test.cpp.
#include <atomic>
#include <stdexcept>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

struct Reducer {
  std::function<void()> inside;
  int calls = 0;
  gsc_reducer get() { return {sizeof(gsc_reducer), 0, &Reducer::run, this}; }
  static int32_t run(void *user, double *, int64_t, gsc_stream) {
    auto *self = static_cast<Reducer *>(user);
    ++self->calls;
    if (self->inside) self->inside();
    return 0;
  }
};

TEST(Callbacks, AReducerCannotUseTheObjectsOfItsCall) {
  const Context context = make_context();
  Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {5, 40}});
  Random random(1);
  trainer.fill_grads(random, 1.0, 4.0);
  const Scaler scaler = make_scaler(context, 4.0f);
  gsc_scaler *const s = scaler;
  gsc_optimizer *const o = trainer;
  gsc_tensor_list *const g = trainer.grad_list();
  Reducer reducer;
  const gsc_reducer registered = reducer.get();
  ASSERT_GSC_OK(gsc_scaler_set_reducer(s, &registered));
  gsc_scaler_state state = state_of(scaler);
  const gsc_scaler_options options = scaler_options(4.0f);
  void *data[] = {trainer.grads()[0].data(), trainer.grads()[1].data()};
  std::vector<gsc_status> statuses;
  std::vector<char> saved(4096);
  reducer.inside = [&] {
    int32_t apply = 0;
    statuses = {gsc_scaler_check(s, g, nullptr),
                gsc_scaler_check_range(s, g, 0, 1, nullptr),
                gsc_scaler_unscale(s, g, nullptr),
                gsc_scaler_clip_grad_norm(s, g, 1.0, GSC_NORM_L2, nullptr),
                gsc_scaler_clip_grad_value(s, g, 1.0, nullptr),
                gsc_scaler_step(s, o, nullptr),
                gsc_scaler_step_and_update(s, o, nullptr),
                gsc_scaler_should_step_sync(s, g, &apply, nullptr),
                gsc_scaler_update(s, nullptr),
                gsc_scaler_discard(s, g),
                gsc_scaler_discard(s, nullptr),
                gsc_scaler_set_scale(s, 2.0f, nullptr),
                gsc_scaler_set_state(s, &state, nullptr),
                gsc_scaler_set_options(s, &options, nullptr),
                gsc_scaler_set_reducer(s, nullptr),
                gsc_optimizer_step(o, nullptr),
                gsc_optimizer_zero_grads(o, nullptr),
                gsc_optimizer_set_steps(o, 9, 9, nullptr),
                gsc_optimizer_save_sync(o, saved.data(), std::ssize(saved), nullptr),
                gsc_tensor_list_set_pointers(g, data, 2, nullptr)};
    EXPECT_BAD_STATE(gsc_scaler_discard(s, g), "scaler is in use", "callbacks");
    EXPECT_EQ(scale_of(scaler), 4.0f) << "looking is allowed";
    gsc_tensor_diagnosis diagnosis[2];
    EXPECT_GSC_OK(gsc_tensor_list_diagnose_sync(g, diagnosis, nullptr, 2, nullptr));
    EXPECT_EQ(diagnosis[1].count, 40);
  };
  Trainer plain(context, {.options = optimizer_options(GSC_ADAMW), .counts = {5, 40}});
  Random same(1);
  plain.fill_grads(same, 1.0, 4.0);
  const Scaler other = make_scaler(context, 4.0f);
  ASSERT_GSC_OK(gsc_scaler_step_and_update(other, plain, nullptr));
  ASSERT_GSC_OK(gsc_scaler_step_and_update(s, o, nullptr));
  EXPECT_EQ(reducer.calls, 1);
  EXPECT_EQ(statuses.size(), 20u);
  for (size_t i = 0; i < statuses.size(); ++i) EXPECT_EQ(statuses[i], GSC_ERROR_BAD_STATE) << i;
  EXPECT_TRUE(trainer.snapshot().same_with_grads(plain.snapshot()));
  EXPECT_TRUE(same_bytes(state_of(scaler), state_of(other)));
}

/// What is destroyed in a callback goes when the call returns.
TEST(Callbacks, AReducerDestroysEverything) {
  for (const bool unscale : {false, true}) {
    Context context = make_context();
    Buffer params(GSC_FP32, 100), grads(GSC_FP16, 100);
    grads.fill(4.0);
    List p = make_list(context, params), g = make_list(context, grads);
    Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_ADAMW), p, g);
    Scaler scaler = make_scaler(context, 4.0f);
    Reducer reducer;
    reducer.inside = [&] {
      scaler.reset();
      optimizer.reset();
      p.reset();
      g.reset();
      context.reset();
    };
    const gsc_reducer registered = reducer.get();
    ASSERT_GSC_OK(gsc_scaler_set_reducer(scaler, &registered));
    if (unscale) {
      EXPECT_GSC_OK(gsc_scaler_unscale(scaler, g, nullptr));
      EXPECT_EQ(grads.get(99), 1.0);
    } else {
      EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
      EXPECT_NE(params.get(99), 0.0);
    }
  }
}

/// A job system that misbehaves in one way.
struct Jobs {
  enum Way { kRight, kDropsOne, kDropsAll, kRepeats, kInvents, kReturnsEarly, kComesLate, kThrows, kThrowsAmid } way;
  std::function<void()> inside;
  std::vector<std::thread> late;
  int32_t regions = 0;

  Jobs(Way w) : way(w) {}
  ~Jobs() { join(); }
  void join() {
    for (std::thread &thread : late) thread.join();
    late.clear();
  }
  static void run(void *user, int32_t count, gsc_task_fn body, void *argument) {
    auto *self = static_cast<Jobs *>(user);
    ++self->regions;
    if (self->inside) self->inside();
    if (self->way == kDropsAll) return;
    if (self->way == kReturnsEarly || self->way == kComesLate) {
      self->late.emplace_back([=, late = self->way == kComesLate] {
        if (late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        for (int32_t i = 0; i < count; ++i) body(argument, i);
      });
      return;
    }
    if (self->way == kThrows || self->way == kThrowsAmid) {
      // While another thread is at work on some of the tasks.
      const int32_t last = self->way == kThrows ? 0 : std::min(count, 2);
      self->late.emplace_back([=] {
        for (int32_t i = 0; i < last; ++i) body(argument, i);
      });
      if (self->regions % 3 == 0) throw std::bad_alloc();
      if (self->regions % 3 == 1) throw std::runtime_error("not today");
      throw 7;
    }
    for (int32_t i = count - 1; i >= 0; --i) {
      if (self->way != kDropsOne || i != 1) body(argument, i);
      if (self->way == kRepeats && i == 1) body(argument, i);
    }
    if (self->way == kInvents) {
      for (const int32_t index : {-1, count, INT32_MAX}) body(argument, index);
    }
  }
  Context context() { return make_context(&Jobs::run, this); }
};

TrainerSpec large() {
  return {.options = optimizer_options(GSC_LAMB), .counts = {300000, 3}, .grad_dtypes = {GSC_FP16}};
}

TEST(ParallelFor, ThatBreaksItsContractIsFoundOutAndDoesNoHarm) {
  const Context plain_context = make_context();
  for (const Jobs::Way way : {Jobs::kRight, Jobs::kDropsOne, Jobs::kDropsAll, Jobs::kRepeats, Jobs::kInvents,
                              Jobs::kReturnsEarly, Jobs::kComesLate, Jobs::kThrows, Jobs::kThrowsAmid}) {
    SCOPED_TRACE(way);
    Jobs jobs(way);
    const Context context = jobs.context();
    Trainer trainer(context, large());
    const Scaler scaler = make_scaler(context, 4.0f);
    Random random(2), same(2);
    trainer.fill_grads(random, 1.0, 4.0);
    Trainer expected(plain_context, large());
    expected.fill_grads(same, 1.0, 4.0);
    const Scaler expected_scaler = make_scaler(plain_context, 4.0f);
    ASSERT_GSC_OK(gsc_scaler_step(expected_scaler, expected, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(expected_scaler, nullptr));
    const gsc_status status = gsc_scaler_step(scaler, trainer, nullptr);
    EXPECT_GT(jobs.regions, 1);
    if (way == Jobs::kRight) {
      EXPECT_EQ(status, GSC_OK);
    } else if (way != Jobs::kReturnsEarly) {  // whose tasks may have been quick enough
      EXPECT_GSC_ERROR(status, GSC_ERROR_CALLBACK, "options.parallel_for", "has done its work");
    }
    if (way == Jobs::kRepeats) {
      const std::string count = text("ran ", jobs.regions, " twice");
      const std::string message = gsc_error_get_message();
      EXPECT_NE(message.find(count), std::string::npos) << message;
      EXPECT_EQ(message.find("threw"), std::string::npos) << message;
    }
    if (way >= Jobs::kThrows) {
      for (int i = 0; i < 10; ++i) {  // more often than there are regions
        EXPECT_GSC_ERROR(gsc_optimizer_zero_grads(trainer, nullptr), GSC_ERROR_CALLBACK, "threw");
      }
      expected.fill_grads(0.0);
    }
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr)) << "the list is stepped";
    EXPECT_TRUE(trainer.snapshot().same_with_grads(expected.snapshot()));
    jobs.join();
    EXPECT_TRUE(trainer.snapshot().same_with_grads(expected.snapshot())) << "what comes late does nothing";
  }
}

TEST(ParallelFor, CannotUseTheObjectsOfItsCall) {
  Jobs jobs(Jobs::kRight);
  const Context context = jobs.context();
  Trainer trainer(context, large());
  const Scaler scaler = make_scaler(context, 4.0f);
  std::vector<gsc_status> statuses;
  double norm = 0.0;
  const gsc_tensor other = trainer.params()[1].tensor();
  jobs.inside = [&] {
    statuses.push_back(gsc_scaler_discard(scaler, nullptr));
    statuses.push_back(gsc_optimizer_set_lr(trainer, 0, 0.5, nullptr));
    // The context may be used: an engine's thread that waits runs another job meanwhile.
    EXPECT_GSC_OK(gsc_ops_norm(context, &other, 1, GSC_NORM_L2, &norm, nullptr, nullptr));
  };
  EXPECT_GSC_OK(gsc_scaler_step(scaler, trainer, nullptr));
  EXPECT_GT(statuses.size(), 3u);
  for (const gsc_status status : statuses) EXPECT_EQ(status, GSC_ERROR_BAD_STATE);
}

/// An operation inside an operation on the same context and thread.
TEST(ParallelFor, OperationsNest) {
  Jobs jobs(Jobs::kRight);
  const Context context = jobs.context();
  Buffer big(GSC_FP32, 300000), little(GSC_FP32, 3);
  big.fill(1.0);
  little.fill(2.0);
  const gsc_tensor tensors[2] = {big.tensor(), little.tensor()};
  double norm = 0.0, inner = 0.0;
  jobs.inside = [&] { EXPECT_GSC_OK(gsc_ops_norm(context, &tensors[1], 1, GSC_NORM_L2, &inner, nullptr, nullptr)); };
  EXPECT_GSC_OK(gsc_ops_norm(context, &tensors[0], 1, GSC_NORM_L2, &norm, nullptr, nullptr));
  EXPECT_EQ(norm, std::sqrt(300000.0));
  EXPECT_EQ(inner, std::sqrt(12.0));
}

/// Large lists on a context whose job system runs `jobs.inside` in the midst of a call.
struct InAJob : public testing::Test {
  Jobs jobs{Jobs::kRight};
  Context context = jobs.context();
  Buffer params{GSC_FP32, 300000}, grads{GSC_FP32, 300000};
  List p = make_list(context, params), g = make_list(context, grads);
  Scaler scaler = make_scaler(context, 4.0f);
  InAJob() { grads.fill(4.0); }
};

/// What a step reads belongs to the step, and a check to its list.
TEST_F(InAJob, TheListsOfAStepCannotChange) {
  const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_SGD), p, g);
  int refused = 0;
  jobs.inside = [&] {
    EXPECT_BAD_STATE(set_pointers(p, {params.data()}), "list is in use");
    EXPECT_BAD_STATE(gsc_scaler_unscale(scaler, g, nullptr), "grads is in use");
    ++refused;
  };
  EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  EXPECT_GSC_OK(gsc_optimizer_zero_grads(optimizer, nullptr));
  EXPECT_GT(refused, 1);
  grads.fill(4.0);
  jobs.inside = [&] {
    EXPECT_BAD_STATE(gsc_optimizer_zero_grads(optimizer, nullptr), "optimizer is in use");
    EXPECT_BAD_STATE(gsc_optimizer_step(optimizer, nullptr), "optimizer is in use");
  };
  EXPECT_GSC_OK(gsc_scaler_check(scaler, g, nullptr));
  EXPECT_GT(report_of(scaler, g).grad_norm, 1.0);
}

/// What a diagnosis reads may be read meanwhile, but not changed.
TEST_F(InAJob, TheListOfADiagnosisCannotChange) {
  Buffer elsewhere(GSC_FP32, 300000);
  gsc_tensor_diagnosis diagnosis{};
  gsc_tensor tensor{};
  jobs.inside = [&] {
    EXPECT_BAD_STATE(set_pointers(g, {elsewhere.data()}), "list is in use");
    EXPECT_BAD_STATE(gsc_scaler_unscale(scaler, g, nullptr), "grads is in use");
    EXPECT_GSC_OK(gsc_tensor_list_get_tensor(g, 0, &tensor));
  };
  EXPECT_GSC_OK(gsc_tensor_list_diagnose_sync(g, &diagnosis, nullptr, 1, nullptr));
  EXPECT_GT(jobs.regions, 0);
  EXPECT_EQ(diagnosis.amax, 4.0);
  // In a callback of a call that holds the list.
  bool is_inside = false;
  jobs.inside = [&] {
    if (is_inside) return;
    is_inside = true;
    EXPECT_GSC_OK(gsc_tensor_list_diagnose_sync(g, &diagnosis, nullptr, 1, nullptr));
    EXPECT_BAD_STATE(set_pointers(g, {elsewhere.data()}), "list is in use");
  };
  EXPECT_GSC_OK(gsc_scaler_check(scaler, g, nullptr));
  jobs.inside = nullptr;
  ASSERT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
  EXPECT_GSC_OK(set_pointers(g, {elsewhere.data()}));
}

/// The lists of an optimizer in the making: it has compared their addresses.
TEST_F(InAJob, TheListsOfAnOptimizerInTheMakingCannotChange) {
  gsc_optimizer_options options = optimizer_options(GSC_ADAGRAD);
  options.initial_accumulator_value = 0.5;
  jobs.inside = [&] { EXPECT_BAD_STATE(set_pointers(g, {params.data()}), "list is in use"); };
  Optimizer optimizer = make_optimizer(context, options, p, g);
  EXPECT_GT(jobs.regions, 0);
  jobs.inside = nullptr;
  EXPECT_GSC_OK(set_pointers(g, {grads.data()})) << "afterwards it is free";
  EXPECT_INVALID(status_of_optimizer(context, &options, p, p), "overlaps");
  // An object that its caller would not know of.
  jobs.way = Jobs::kDropsOne;
  EXPECT_GSC_ERROR(status_of_optimizer(context, &options, p, g), GSC_ERROR_CALLBACK, "options.parallel_for");
}

/// The call whose parallel-for it was reports it, not a call that a later callback makes.
TEST_F(InAJob, ABrokenContractIsFoundOutByItsOwnCall) {
  const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_LAMB), p, g);
  jobs.way = Jobs::kDropsOne;
  jobs.inside = [&] { EXPECT_EQ(scale_of(scaler), 4.0f); };
  EXPECT_GSC_ERROR(gsc_scaler_step(scaler, optimizer, nullptr), GSC_ERROR_CALLBACK, "options.parallel_for");
  EXPECT_GT(jobs.regions, 1);
}

TEST(Log, CreationIsInformation) {
  std::vector<std::pair<int32_t, std::string>> messages;
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = 3;
  options.log = [](void *user, int32_t level, const char *message) {
    static_cast<std::vector<std::pair<int32_t, std::string>> *>(user)->emplace_back(level, message);
    throw std::runtime_error("the disk is full");  // which is dropped
  };
  options.log_user = &messages;
  const Context context = make_context(options);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].first, GSC_LOG_INFO);
  EXPECT_NE(messages[0].second.find("3 threads"), std::string::npos) << messages[0].second;
  gsc_scaler_options policy = scaler_options(1.0f);
  policy.min_scale = 1.0f;
  policy.floor_action = GSC_FLOOR_REPORT;
  const Scaler scaler = make_scaler(context, policy);
  Buffer grads(GSC_FP32, 3);
  grads.fill(kInf);
  const List list = make_list(context, grads);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
  EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  EXPECT_EQ(messages.size(), 2u);
  EXPECT_EQ(state_of(scaler).updates, 1);
}

}  // namespace
}  // namespace gsc_test
