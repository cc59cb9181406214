// SPDX-License-Identifier: Apache-2.0
//
// The stage machine: the messages of refused calls, steps without the scaler, limits of fp64 gradients, and the disabled
// scaler. Which call is allowed when, and what it does, is in tests/oracle.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

class Stages : public testing::Test {
 protected:
  static constexpr float kScale = 8.0f;

  Stages()
      : context_(make_context()),
        trainer_(context_, {.options = sgd_options(), .counts = {4, 4, 4}, .grad_dtypes = {GSC_FP16}}),
        scaler_(make_scaler(context_, kScale)) {
    trainer_.fill_grads(16.0);
  }
  gsc_scaler *scaler() const { return scaler_; }
  gsc_tensor_list *grads() const { return trainer_.grad_list(); }
  gsc_status unscale() { return gsc_scaler_unscale(scaler(), grads(), nullptr); }
  gsc_status check() { return gsc_scaler_check(scaler(), grads(), nullptr); }
  gsc_status check_range(int64_t first, int64_t count) {
    return gsc_scaler_check_range(scaler(), grads(), first, count, nullptr);
  }
  gsc_status clip_norm(double norm) { return gsc_scaler_clip_grad_norm(scaler(), grads(), norm, GSC_NORM_L2, nullptr); }
  gsc_status clip_value(double value) { return gsc_scaler_clip_grad_value(scaler(), grads(), value, nullptr); }
  gsc_status step() { return gsc_scaler_step(scaler(), trainer_, nullptr); }
  gsc_status update() { return gsc_scaler_update(scaler(), nullptr); }

  gsc_status call(const std::string &name) {
    int32_t apply = -7;
    const gsc_reducer reducer = {sizeof(gsc_reducer), 0,
                                 [](void *, double *, int64_t, gsc_stream) -> int32_t { return 0; }, nullptr};
    if (name == "unscale") return unscale();
    if (name == "check") return check();
    if (name == "check_0") return check_range(0, 1);
    if (name == "check_1") return check_range(1, 1);
    if (name == "check_0_1") return check_range(0, 2);
    if (name == "check_2") return check_range(2, 1);
    if (name == "clip_norm") return clip_norm(1.0);
    if (name == "clip_value") return clip_value(1.0);
    if (name == "step") return step();
    if (name == "step_and_update") return gsc_scaler_step_and_update(scaler(), trainer_, nullptr);
    if (name == "update") return update();
    if (name == "set_reducer") return gsc_scaler_set_reducer(scaler(), &reducer);
    EXPECT_EQ(name, "should_step");
    const gsc_status status = gsc_scaler_should_step_sync(scaler(), grads(), &apply, nullptr);
    EXPECT_EQ(apply, status == GSC_OK ? 1 : -7);
    return status;
  }
  void expect_bad_state(const std::function<gsc_status()> &call, const char *word) {
    const Snapshot before = trainer_.snapshot();
    const gsc_scaler_state state = state_of(scaler_);
    EXPECT_BAD_STATE(call(), word);
    EXPECT_TRUE(trainer_.snapshot().same_with_grads(before)) << "a refused call changes nothing";
    EXPECT_TRUE(same_bytes(state_of(scaler_), state));
  }

  Context context_;
  Trainer trainer_;
  Scaler scaler_;
};

/// The calls before, the call that is refused, and a word of its message.
const char *const kRefused[][3] = {
    {"unscale", "unscale", "unscale"},
    {"step", "unscale", "step"},
    {"step", "step", "step"},
    {"step", "step_and_update", "step"},
    {"step", "should_step", "step"},
    {"should_step", "step", "step"},
    {"", "update", "update"},
    {"clip_norm", "update", "update"},  // a clip that waits for the step has read no gradient
    {"step update", "update", "update"},
    {"check", "check", "check"},
    {"check unscale", "check", "unscale"},
    {"step", "check", "step"},
    {"check_1", "check_0_1", "[1]"},
    {"check_1 check_2 check_0", "check_0", "check"},
    {"clip_norm", "clip_norm", "clip_grad_norm"},
    {"unscale clip_norm", "clip_norm", "clip_grad_norm"},
    {"clip_value", "clip_norm", "clip_grad_value"},
    {"clip_value", "should_step", "grads has a clip_grad_value"},
    {"step", "clip_norm", "step"},
    {"step", "clip_value", "step"},
    {"check", "set_reducer", "reducer"},
};

TEST_F(Stages, RefusedCalls) {
  for (const auto &[before, refused, word] : kRefused) {
    SCOPED_TRACE(text(before, ", then ", refused));
    std::istringstream names(before);
    for (std::string name; names >> name;) ASSERT_GSC_OK(call(name));
    expect_bad_state([&] { return call(refused); }, word);
    ASSERT_GSC_OK(gsc_scaler_discard(scaler(), nullptr));
    ASSERT_GSC_OK(call("set_reducer"));
    ASSERT_GSC_OK(gsc_scaler_set_reducer(scaler(), nullptr));
    trainer_.fill_grads(16.0);
  }
}

TEST_F(Stages, AListIsInOneIterationAtATime) {
  const Scaler second = make_scaler(context_, 2.0f);
  ASSERT_GSC_OK(check());
  EXPECT_BAD_STATE(gsc_scaler_check(second, grads(), nullptr), "another scaler");
  EXPECT_BAD_STATE(gsc_scaler_update(second, nullptr), "update");
  EXPECT_BAD_STATE(gsc_scaler_step(second, trainer_, nullptr), "another scaler");
  EXPECT_STREQ(last_error().argument, "optimizer");
  ASSERT_GSC_OK(update());
  EXPECT_GSC_OK(gsc_scaler_check(second, grads(), nullptr));
  EXPECT_GSC_OK(gsc_scaler_update(second, nullptr));
}

class Disabled : public testing::Test {
 protected:
  Disabled()
      : context_(make_context()),
        trainer_(context_, {.options = optimizer_options(GSC_SGD), .counts = {4}}),
        scaler_(make_scaler(context_, disabled_options())) {}
  Context context_;
  Trainer trainer_;
  Scaler scaler_;
};

TEST_F(Disabled, HasNeitherAScaleNorReportsOfLists) {
  EXPECT_GSC_OK(gsc_scaler_set_scale(scaler_, 5.0f, nullptr));
  EXPECT_EQ(scale_of(scaler_), 1.0f);
  ASSERT_GSC_OK(gsc_scaler_check(scaler_, trainer_.grad_list(), nullptr));
  EXPECT_BAD_STATE(report_status(scaler_, trainer_.grad_list()), "grads");
}

TEST_F(Disabled, HasNoState) {
  auto state = with_size<gsc_scaler_state>();
  EXPECT_BAD_STATE(gsc_scaler_get_state_sync(scaler_, &state, nullptr), "disabled");
  const Scaler other = make_scaler(context_, 64.0f);
  state = state_of(other);
  EXPECT_GSC_OK(gsc_scaler_set_state(scaler_, &state, nullptr));
  EXPECT_EQ(scale_of(scaler_), 1.0f);
}

/// The sums of a check that has begun lie where LAMB puts its own.
TEST_F(Stages, StepWithoutAScalerAmidACheck) {
  ASSERT_GSC_OK(check_range(0, 1));
  EXPECT_BAD_STATE(gsc_optimizer_step(trainer_, nullptr), "optimizer", "1 of 3 tensors");
  ASSERT_GSC_OK(check_range(1, 2));
  ASSERT_GSC_OK(unscale());
  EXPECT_GSC_OK(gsc_optimizer_step(trainer_, nullptr));
}

/// It would take scaled gradients for gradients.
TEST_F(Stages, StepWithoutAScalerAfterACheck) {
  ASSERT_GSC_OK(check());
  expect_bad_state([&] { return gsc_optimizer_step(trainer_, nullptr); }, "checked and not unscaled");
  const float inv_scale = 1.0F / kScale;
  EXPECT_GSC_OK(gsc_optimizer_step_scaled(trainer_, &inv_scale, nullptr, nullptr));
  int32_t apply = 0;
  ASSERT_GSC_OK(gsc_scaler_should_step_sync(scaler(), grads(), &apply, nullptr));
  EXPECT_GSC_OK(gsc_optimizer_step(trainer_, nullptr));  // what is left to do is the caller's
}

/// What the scaler has stepped on is still scaled in memory, if nothing has written it.
TEST_F(Stages, StepWithoutAScalerAfterItsStep) {
  const float inv_scale = 1.0F / kScale;
  ASSERT_GSC_OK(step());
  expect_bad_state([&] { return gsc_optimizer_step(trainer_, nullptr); }, "stepped on and not unscaled");
  EXPECT_GSC_OK(gsc_optimizer_step_scaled(trainer_, &inv_scale, nullptr, nullptr));
  ASSERT_GSC_OK(update());
  ASSERT_GSC_OK(unscale());
  ASSERT_GSC_OK(step());
  EXPECT_GSC_OK(gsc_optimizer_step(trainer_, nullptr));
  for (const uint32_t flag : {GSC_OPTIMIZER_WRITE_GRADS, GSC_OPTIMIZER_ZERO_GRADS}) {
    gsc_optimizer_options options = sgd_options();
    options.flags = flag;
    const Trainer writes(context_, {.options = options, .counts = {4}, .grad_dtypes = {GSC_FP16}});
    ASSERT_GSC_OK(gsc_scaler_step(scaler(), writes, nullptr));
    EXPECT_GSC_OK(gsc_optimizer_step(writes, nullptr));
  }
}

/// It would leave the clip out.
TEST_F(Stages, StepWithoutAScalerBeforeAPendingClip) {
  const float inv_scale = 1.0F / kScale;
  for (const bool by_norm : {true, false}) {
    ASSERT_GSC_OK(by_norm ? clip_norm(1.0) : clip_value(1.0));
    expect_bad_state([&] { return gsc_optimizer_step(trainer_, nullptr); }, "pending clip");
    expect_bad_state([&] { return gsc_optimizer_step_scaled(trainer_, &inv_scale, nullptr, nullptr); }, "pending clip");
    ASSERT_GSC_OK(step());
    ASSERT_GSC_OK(update());
  }
}

/// Which fp64 gradients overflow depends on who will use them.
TEST_F(Stages, AnOptimizerThatNarrowsWhatHasBeenChecked) {
  Buffer params(GSC_FP32, 2), wide(GSC_FP64, 2);
  wide.fill(1e300);
  const List p = make_list(context_, params), g = make_list(context_, wide);
  for (const bool whole : {true, false}) {
    ASSERT_GSC_OK(whole ? gsc_scaler_check(scaler(), g, nullptr)
                        : gsc_scaler_clip_grad_norm(scaler(), g, 1.0, GSC_NORM_L2, nullptr));
    const Optimizer optimizer = make_optimizer(context_, sgd_options(), p, g);
    if (whole) {
      EXPECT_BAD_STATE(gsc_scaler_step(scaler(), optimizer, nullptr), "optimizer", "fp64", "check it again");
      ASSERT_GSC_OK(gsc_scaler_discard(scaler(), g));
    }
    ASSERT_GSC_OK(gsc_scaler_step(scaler(), optimizer, nullptr));
    EXPECT_EQ(skipped_steps(optimizer), 1);
    EXPECT_EQ(params.get(0), 0.0);
    ASSERT_GSC_OK(gsc_scaler_update(scaler(), nullptr));
  }
  // Unscaled gradients cannot be checked again: they would be divided twice.
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler(), g, nullptr));
  const Optimizer optimizer = make_optimizer(context_, sgd_options(), p, g);
  EXPECT_BAD_STATE(gsc_scaler_step(scaler(), optimizer, nullptr), "optimizer", "unscaled", "compute them again");
}

/// Ranges checked before and after such an optimizer came or went: one of them was held against fp64's limit.
TEST_F(Stages, RangesCheckedUnderDifferentLimits) {
  std::vector<Buffer> params = make_buffers(GSC_FP32, {2, 2}), wide = make_buffers(GSC_FP64, {2, 2});
  const List p = make_list(context_, params), g = make_list(context_, wide);
  for (const bool narrow_first : {false, true}) {
    wide[narrow_first ? 1 : 0].fill(1e300);
    wide[narrow_first ? 0 : 1].fill(1.0);
    Optimizer optimizer = narrow_first ? make_optimizer(context_, sgd_options(), p, g) : nullptr;
    ASSERT_GSC_OK(gsc_scaler_check_range(scaler(), g, 0, 1, nullptr));
    optimizer = narrow_first ? nullptr : make_optimizer(context_, sgd_options(), p, g);
    ASSERT_GSC_OK(gsc_scaler_check_range(scaler(), g, 1, 1, nullptr));
    if (narrow_first) optimizer = make_optimizer(context_, sgd_options(), p, g);
    EXPECT_BAD_STATE(gsc_scaler_step(scaler(), optimizer, nullptr), "optimizer", "fp64", "check it again");
    for (const Buffer &buffer : params) EXPECT_EQ(buffer.get(0), 0.0);
    ASSERT_GSC_OK(gsc_scaler_discard(scaler(), g));
  }
}

using Narrowing = OnCpu;

/// Exactly those that round to inf: from half a step above the largest float on.
TEST_F(Narrowing, OverflowsWhereGradientsRoundToInf) {
  const double limit = 0x1.ffffffp+127;
  for (const double value : {limit, -limit, std::nextafter(limit, 0.0), 0x1.fffffep+127}) {
    gsc_optimizer_options sgd = optimizer_options(GSC_SGD);
    sgd.lr = 1e-38;
    Trainer trainer(context, {.options = sgd, .counts = {40}, .grad_dtypes = {GSC_FP64}});
    const Scaler scaler = make_scaler(context, 1.0f);
    trainer.grads()[0].set(7, value);
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    EXPECT_EQ(applied_steps(trainer), std::abs(value) < limit ? 1 : 0) << value;
    EXPECT_TRUE(std::isfinite(trainer.params()[0].get(7))) << value;
  }
}

/// The list is the caller's: an optimizer that has gone leaves no mark on it.
TEST_F(Narrowing, EndsWithTheOptimizer) {
  Buffer params(GSC_FP32, 1), grads(GSC_FP64, 1);
  grads.set(0, 1e300);
  const List param_list = make_list(context, params), grad_list = make_list(context, grads);
  const Scaler scaler = make_scaler(context, 2.0f);
  const auto counted = [&] {
    EXPECT_GSC_OK(gsc_scaler_check(scaler, grad_list, nullptr));
    const int64_t inf_count = report_of(scaler, grad_list).inf_count;
    EXPECT_GSC_OK(gsc_scaler_discard(scaler, grad_list));
    return inf_count;
  };
  EXPECT_EQ(counted(), 0);
  {
    const Optimizer first = make_optimizer(context, optimizer_options(GSC_SGD), param_list, grad_list);
    {
      const Optimizer second = make_optimizer(context, optimizer_options(GSC_LION), param_list, grad_list);
      EXPECT_EQ(counted(), 1);
    }
    EXPECT_EQ(counted(), 1);
  }
  EXPECT_EQ(counted(), 0);
}

/// Its lists are free, although it was in the middle of an iteration.
TEST_F(Stages, AfterTheScalerIsDestroyed) {
  ASSERT_GSC_OK(check());
  const std::vector<void *> data = {trainer_.grads()[0].data(), trainer_.grads()[1].data(), trainer_.grads()[2].data()};
  EXPECT_BAD_STATE(set_pointers(grads(), data), "list");
  scaler_.reset();
  EXPECT_GSC_OK(set_pointers(grads(), data));
  scaler_ = make_scaler(context_, kScale);
  EXPECT_GSC_OK(check());
}

/// The step, at the scale of its gradients, and then the update: as the only list of the iteration, and as one of two.
TEST(StepAndUpdate, StepsBeforeItUpdates) {
  const Context context = make_context();
  for (const bool is_alone : {true, false}) {
    SCOPED_TRACE(is_alone);
    Trainer first(context, {.options = sgd_options(), .counts = {3}}),
        second(context, {.options = sgd_options(), .counts = {3}});
    for (Trainer *t : {&first, &second}) {
      t->params()[0].fill(0.0);
      t->fill_grads(8.0);
    }
    const Scaler scaler = make_scaler(context, scaler_options(8.0f, 1));
    if (!is_alone) {
      ASSERT_GSC_OK(gsc_scaler_step(scaler, second, nullptr));
    }
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, first, nullptr));
    for (Trainer *t : {&first, &second}) {
      const double moved = t == &first || !is_alone ? -1.0 : 0.0;
      for (const double p : t->params()[0].values()) EXPECT_EQ(p, moved);
    }
    EXPECT_EQ(scale_of(scaler), 16.0f);
    EXPECT_EQ(report_of(scaler).updates, 1);
    EXPECT_BAD_STATE(gsc_scaler_update(scaler, nullptr), "no list was checked") << "the iteration has ended";
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, first, nullptr));
    for (const double p : first.params()[0].values()) EXPECT_EQ(p, -1.5);
  }
}

/// Which is a step that checks nothing, and no update of anything.
TEST(StepAndUpdate, OfADisabledScalerIsAStep) {
  const Context context = make_context();
  Trainer trainer(context, {.options = sgd_options(), .counts = {3}});
  trainer.params()[0].fill(0.0);
  trainer.fill_grads(8.0);
  trainer.grads()[0].set(1, kInf);
  const Scaler disabled = make_scaler(context, disabled_options());
  for (int i = 1; i <= 3; ++i) {
    ASSERT_GSC_OK(gsc_scaler_step_and_update(disabled, trainer, nullptr));
    EXPECT_EQ(trainer.params()[0].get(0), -8.0 * i);
    EXPECT_EQ(trainer.params()[0].get(1), -kInf);
    EXPECT_EQ(applied_steps(trainer), i);
    EXPECT_EQ(skipped_steps(trainer), 0);
    EXPECT_EQ(scale_of(disabled), 1.0f);
    EXPECT_EQ(report_of(disabled).updates, 0);
    EXPECT_EQ(report_of(disabled).flags, 0u);
  }
  const Scaler scaler = make_scaler(context, 8.0f);
  EXPECT_GSC_OK(gsc_scaler_check(scaler, trainer.grad_list(), nullptr)) << "the list is free";
}

TEST(DisabledScaler, ACheckLeavesTheListAlone) {
  const Context context = make_context();
  const Scaler disabled = make_scaler(context, disabled_options()), scaler = make_scaler(context, 4.0f);
  Buffer grads(GSC_FP32, 3);
  const List list = make_list(context, grads);
  EXPECT_GSC_OK(gsc_scaler_check(disabled, list, nullptr));
  EXPECT_GSC_OK(gsc_scaler_check_range(disabled, list, 0, 1, nullptr));
  EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
}

}  // namespace
}  // namespace gsc_test
