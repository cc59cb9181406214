// SPDX-License-Identifier: Apache-2.0
//
// Lists of several devices under one scaler, with CPU contexts as the devices: what only the scaler's device has, and
// memory. That calls give what they give on one device is in tests/oracle.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

constexpr int kDevices = 3;

TrainerSpec spec(int index) {
  return {.options = optimizer_options(GSC_ADAMW),
          .counts = {3, 1000 * (index + 1)},
          .grad_dtypes = {GSC_FP16},
          .copy_dtype = GSC_BF16,
          .seed = uint64_t(index + 1)};
}

/// A scaler on the first of `contexts` and a trainer on each; trainers beyond the last context share it.
struct Job {
  explicit Job(int count) {
    for (int i = 0; i < count; ++i) contexts.push_back(make_context());
    scaler = make_scaler(contexts[0], scaler_options(1024.0f, 2));
    for (int i = 0; i < kDevices; ++i) {
      trainers.push_back(std::make_unique<Trainer>(contexts[std::min(i, count - 1)], spec(i)));
    }
  }
  std::vector<Context> contexts;
  Scaler scaler;
  std::vector<std::unique_ptr<Trainer>> trainers;
};

TEST(Devices, AListReadsTheScaleOfItsIteration) {
  Job job(2);
  Trainer &away = *job.trainers[1];
  gsc_scaler *const s = job.scaler;
  auto state = with_size<gsc_device_state>();
  EXPECT_BAD_STATE(gsc_scaler_get_device_state(s, away.grad_list(), &state), "grads");
  for (const float scale : {8.0f, 32.0f}) {
    away.fill_grads(2.0 * scale);
    ASSERT_GSC_OK(gsc_scaler_set_scale(s, scale, nullptr));
    ASSERT_GSC_OK(gsc_scaler_unscale(s, away.grad_list(), nullptr));
    EXPECT_EQ(away.grads()[1].get(999), 2.0);
    ASSERT_GSC_OK(gsc_scaler_get_device_state(s, away.grad_list(), &state));
    EXPECT_EQ(*state.scale, scale);
    EXPECT_EQ(*state.inv_scale, 1.0f / scale);
    EXPECT_EQ(*state.found_inf, 0.0f);
    auto home = with_size<gsc_device_state>();
    ASSERT_GSC_OK(gsc_scaler_get_device_state(s, nullptr, &home));
    EXPECT_NE(state.scale, home.scale);
  }
}

/// Two scalers of one context take a list of another in turn.
TEST(Devices, TheLastScalerToTakeAListHasItsState) {
  Job job(2);
  Trainer &away = *job.trainers[1];
  away.fill_grads(4.0);
  gsc_scaler *const first = job.scaler;
  Scaler second = make_scaler(job.contexts[0], 2.0f);
  ASSERT_GSC_OK(gsc_scaler_check(first, away.grad_list(), nullptr));
  const double norm = report_of(job.scaler, away.grad_list()).grad_norm;
  EXPECT_GT(norm, 0.0);
  ASSERT_GSC_OK(gsc_scaler_update(first, nullptr));
  auto state = with_size<gsc_device_state>();
  ASSERT_GSC_OK(gsc_scaler_get_device_state(first, away.grad_list(), &state));
  const float *const scale = state.scale;
  EXPECT_EQ(*scale, 1024.0f);
  EXPECT_BAD_STATE(gsc_scaler_get_device_state(second, away.grad_list(), &state), "grads");
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(second, away.grad_list(), 1.0, GSC_NORM_L2, nullptr));
  EXPECT_BAD_STATE(gsc_scaler_get_device_state(first, away.grad_list(), &state), "grads");
  // One of the list's own context, too, is the last to use it.
  ASSERT_GSC_OK(gsc_scaler_discard(second, away.grad_list()));
  const Scaler own = make_scaler(job.contexts[1], 4.0f);
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(own, away.grad_list(), 1.0, GSC_NORM_L2, nullptr));
  EXPECT_BAD_STATE(gsc_scaler_get_device_state(second, away.grad_list(), &state), "grads");
  ASSERT_GSC_OK(gsc_scaler_discard(own, away.grad_list()));
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(second, away.grad_list(), 1.0, GSC_NORM_L2, nullptr));
  second.reset();
  EXPECT_EQ(report_of(job.scaler, away.grad_list()).grad_norm, norm);
  EXPECT_EQ(*scale, 2.0f) << "valid as long as the list";
  const Context third = make_context();
  const Scaler other = make_scaler(third, 8.0f);
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(other, away.grad_list(), 1.0, GSC_NORM_L2, nullptr));
  EXPECT_BAD_STATE(report_status(job.scaler, away.grad_list()), "grads", "third");
}

TEST(Devices, AnAppliedStepDoesNotRunOutOfMemory) {
  HostMemory memory;
  const Context home = make_context(memory.options());
  const Context there = make_context();
  Buffer params(GSC_FP32, 2), grads(GSC_FP32, 2);
  grads.fill(1.0);
  const List p = make_list(there, params), g = make_list(there, grads);
  const Optimizer optimizer = make_optimizer(there, sgd_options(), p, g);
  const Scaler scaler = make_scaler(home, disabled_options());
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler, g, nullptr));
  memory.refuses = true;
  EXPECT_GSC_OK(gsc_scaler_step(scaler, optimizer, nullptr));
  EXPECT_EQ(params.get(0), -1.0);
}

/// Lists that are rebuilt in every iteration would otherwise stay until the scaler is destroyed.
TEST(Devices, ADisabledScalerLetsGoOfItsListsAtUpdate) {
  HostMemory memory;
  const Context home = make_context(), there = make_context(memory.options());
  const Scaler scaler = make_scaler(home, disabled_options());
  const int64_t before = memory.live;
  for (int iteration = 0; iteration < 3; ++iteration) {
    Buffer grads(GSC_FP32, 4);
    const List g = make_list(there, grads);
    ASSERT_GSC_OK(gsc_scaler_unscale(scaler, g, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  }
  EXPECT_EQ(memory.live, before);
}

TEST(Devices, StepAndUpdateNeedsTheScalersOwnDevice) {
  Job job(2);
  EXPECT_INVALID(gsc_scaler_step_and_update(job.scaler, *job.trainers[1], nullptr), "context", "update");
  EXPECT_EQ(applied_steps(job.trainers[1]->optimizer()), 0);
  ASSERT_GSC_OK(gsc_scaler_step(job.scaler, *job.trainers[1], nullptr));
  ASSERT_GSC_OK(gsc_scaler_step_and_update(job.scaler, *job.trainers[0], nullptr));
  EXPECT_EQ(report_of(job.scaler).updates, 1);
}

}  // namespace
}  // namespace gsc_test
