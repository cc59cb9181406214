// SPDX-License-Identifier: Apache-2.0
//
// Every call of gradscaler::GradScaler once, with an effect that shows that it arrived.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <gradscaler/gradscaler.hpp>
#include <utility>
#include <vector>

namespace gradscaler {
namespace {

gsc_status status_of(const std::function<void()> &call) {
  try {
    call();
  } catch (const Error &error) {
    return error.status();
  }
  return GSC_OK;
}

#define EXPECT_STATUS(call, status) EXPECT_EQ(status_of([&] { call; }), status)

using Floats = std::vector<float>;

class GradScalerTest : public testing::Test {
 protected:
  Floats weights_ = {1.0f, 2.0f};
  Floats gradients_ = {4.0f, 8.0f};
  Context context_{ContextOptions{.num_threads = 1}};
  TensorList params_{context_, tensor(weights_)};
  TensorList grads_{context_, tensor(gradients_)};
  Optimizer sgd_{context_, {.kind = OptimizerKind::sgd, .lr = 1.0}, params_, grads_};
  GradScaler scaler_{context_, {.init_scale = 4.0f, .growth_interval = 2}};
};

TEST_F(GradScalerTest, ScaleMultipliesAndConverts) {
  Floats src = {0.5f, 3.0f}, dst(2);
  std::vector<uint16_t> halfs(2);
  scaler_.scale(tensor(src), tensor(dst));
  EXPECT_EQ(dst, (Floats{2.0f, 12.0f}));
  scaler_.scale({tensor(src)}, {tensor(halfs, DType::fp16)});
  EXPECT_EQ(halfs, (std::vector<uint16_t>{0x4000, 0x4a00}));  // 2 and 12 in binary16
  EXPECT_STATUS(scaler_.scale({tensor(src), tensor(gradients_)}, tensor(dst)), GSC_ERROR_INVALID_ARGUMENT);
}

TEST_F(GradScalerTest, UnscaleThenStep) {
  scaler_.unscale(grads_);
  EXPECT_EQ(gradients_, (Floats{1.0f, 2.0f}));
  EXPECT_STATUS(scaler_.unscale(grads_), GSC_ERROR_BAD_STATE);
  scaler_.step(sgd_);
  EXPECT_EQ(weights_, (Floats{0.0f, 0.0f}));
  EXPECT_STATUS(scaler_.step(sgd_), GSC_ERROR_BAD_STATE);
  scaler_.update();
  EXPECT_STATUS(scaler_.update(), GSC_ERROR_BAD_STATE);
}

TEST_F(GradScalerTest, CheckAndCheckRangeLeaveTheGradients) {
  scaler_.check(grads_);
  EXPECT_EQ(gradients_, (Floats{4.0f, 8.0f}));
  scaler_.discard(grads_);
  scaler_.check_range(grads_, 0, 1);
  EXPECT_STATUS(scaler_.check(grads_), GSC_ERROR_BAD_STATE);
  scaler_.discard();
  scaler_.check(grads_);
}

TEST_F(GradScalerTest, StepsInSlices) {
  EXPECT_GT(scaler_.step_slice(sgd_, 1), 0);
  EXPECT_STATUS(scaler_.update(), GSC_ERROR_BAD_STATE);
  EXPECT_EQ(scaler_.step_slice(sgd_, 1000), 0);
  EXPECT_EQ(weights_, (Floats{0.0f, 0.0f}));
  scaler_.update();
}

TEST_F(GradScalerTest, ClipsByNormAndByValue) {
  scaler_.unscale(grads_);
  scaler_.clip_grad_norm(grads_, 1.0, Norm::inf);
  EXPECT_NEAR(gradients_[0], 0.5f, 1e-5f);
  EXPECT_NEAR(gradients_[1], 1.0f, 1e-5f);
  scaler_.clip_grad_value(grads_, 0.25);
  EXPECT_EQ(gradients_, (Floats{0.25f, 0.25f}));
}

TEST_F(GradScalerTest, ShouldStepSaysNoOnOverflow) {
  EXPECT_TRUE(scaler_.should_step_sync(grads_));
  scaler_.update();
  gradients_[1] = INFINITY;
  EXPECT_FALSE(scaler_.should_step_sync(grads_));
  scaler_.update();
  EXPECT_EQ(scaler_.get_scale_sync(), 2.0f);
}

TEST_F(GradScalerTest, StepAndUpdateGrowsAndBacksOff) {
  scaler_.step_and_update(sgd_);
  EXPECT_EQ(weights_, (Floats{0.0f, 0.0f}));
  scaler_.step_and_update(sgd_);
  EXPECT_EQ(scaler_.get_scale_sync(), 8.0f);
  gradients_[0] = INFINITY;
  scaler_.step_and_update(sgd_);
  EXPECT_EQ(scaler_.get_scale_sync(), 4.0f);
  scaler_.set_scale(3.0f);
  EXPECT_EQ(scaler_.get_scale_sync(), 3.0f);
  EXPECT_STATUS(scaler_.set_scale(-1.0f), GSC_ERROR_INVALID_ARGUMENT);
}

TEST_F(GradScalerTest, ReportsAndHistory) {
  scaler_.step_and_update(sgd_);
  gradients_[1] = INFINITY;
  scaler_.step_and_update(sgd_);
  const gsc_report report = scaler_.get_report_sync(grads_);
  EXPECT_EQ(report.struct_size, sizeof report);
  EXPECT_EQ(report.updates, 2);
  EXPECT_EQ(report.skipped, 1);
  EXPECT_EQ(report.first_tensor, 0);
  EXPECT_EQ(report.first_element, 1);
  gsc_report copy{};
  scaler_.read_report_async(copy, grads_);
  EXPECT_EQ(copy.updates, 2);

  const std::vector<gsc_history_entry> history = scaler_.get_history_sync();
  ASSERT_EQ(history.size(), 2u);
  EXPECT_EQ(history[0].overflow, 0);
  EXPECT_NEAR(history[0].grad_norm, std::sqrt(5.0), 1e-6);
  EXPECT_EQ(history[1].overflow, 1);
  EXPECT_EQ(history[1].scale, 2.0f);
  ASSERT_EQ(scaler_.get_history_sync(1).size(), 1u);
  EXPECT_EQ(scaler_.get_history_sync(1)[0].update, 1);
  EXPECT_TRUE(scaler_.get_history_sync(0).empty());
}

TEST_F(GradScalerTest, FloorErrorFillsInTheReport) {
  GradScaler scaler(context_, {.init_scale = 1.0f, .min_scale = 1.0f, .floor_action = FloorAction::error});
  gradients_[0] = INFINITY;
  scaler.step_and_update(sgd_);
  gsc_report report{};
  EXPECT_STATUS(scaler.get_report_sync(report), GSC_ERROR_SCALE_FLOOR);
  EXPECT_EQ(report.skipped, 1);
  EXPECT_TRUE((report.flags & GSC_REPORT_AT_FLOOR) != 0);
  EXPECT_STATUS(scaler.get_report_sync(), GSC_ERROR_SCALE_FLOOR);
}

TEST_F(GradScalerTest, SpikesSkipAndTheirErrorFillsInTheReport) {
  ScalerOptions options = ScalerOptions::preset(Preset::check);
  options.skip_norm = 5.0;
  options.spike_patience = 2;
  options.spike_action = SpikeAction::error;
  GradScaler scaler(context_, options);
  scaler.step_and_update(sgd_);
  EXPECT_EQ(weights_, (Floats{1.0f, 2.0f}));
  gsc_report report = scaler.get_report_sync(grads_);
  EXPECT_EQ(report.flags, uint32_t{GSC_REPORT_SPIKE});
  EXPECT_EQ(report.norm_limit, 5.0);
  EXPECT_EQ(*scaler.get_device_state(grads_).spike, 1);
  EXPECT_EQ(scaler.get_history_sync()[0].spike, 1);
  scaler.step_and_update(sgd_);
  EXPECT_STATUS(scaler.get_report_sync(report), GSC_ERROR_SPIKES);
  EXPECT_EQ(report.spikes, 2);
  EXPECT_TRUE((report.flags & GSC_REPORT_SPIKES_PERSIST) != 0);
  EXPECT_STATUS(scaler.get_report_sync(grads_), GSC_ERROR_SPIKES);
  EXPECT_EQ(scaler.get_scale_sync(), 1.0f);
}

TEST_F(GradScalerTest, AStaticScaleStays) {
  ScalerOptions options = ScalerOptions::preset(Preset::static_scale);
  EXPECT_NE(options.flags & GSC_SCALER_STATIC_SCALE, 0u);
  options.growth_interval = 1;
  GradScaler scaler(context_, options);
  for (const float gradient : {4.0f, INFINITY, 8.0f}) {
    gradients_[0] = gradient;
    scaler.step_and_update(sgd_);
    EXPECT_EQ(scaler.get_scale_sync(), 128.0f);
  }
  EXPECT_EQ(scaler.get_report_sync().skipped, 1);
}

TEST_F(GradScalerTest, GradientsOfBeforeTheUpdateAreRefused) {
  Floats weight = {0.0f}, gradient = {4.0f}, loss = {1.0f};
  TensorList params(context_, tensor(weight)), grads(context_, tensor(gradient));
  Optimizer second(context_, {.kind = OptimizerKind::sgd, .lr = 1.0}, params, grads);
  scaler_.scale(tensor(loss), tensor(loss));
  scaler_.step(sgd_);
  scaler_.update();
  EXPECT_STATUS(scaler_.step(second), GSC_ERROR_BAD_STATE);
  EXPECT_EQ(weight[0], 0.0f);
  scaler_.scale(tensor(loss), tensor(loss));
  scaler_.step(second);
  EXPECT_EQ(weight[0], -1.0f);
}

TEST_F(GradScalerTest, DeviceWordsAreTheScalers) {
  const gsc_device_state without = scaler_.get_device_state();
  EXPECT_EQ(*without.scale, 4.0f);
  EXPECT_EQ(*without.inv_scale, 0.25f);
  EXPECT_EQ(without.found_inf, nullptr);
  gradients_[0] = INFINITY;
  scaler_.check(grads_);
  EXPECT_NE(*scaler_.get_device_state(grads_).found_inf, 0.0f);
}

TEST_F(GradScalerTest, StateMovesToAnotherScaler) {
  scaler_.step_and_update(sgd_);
  const gsc_scaler_state state = scaler_.get_state_sync();
  EXPECT_EQ(state.growth_tracker, 1);
  GradScaler other(context_);
  other.set_state(state);
  EXPECT_EQ(other.get_scale_sync(), 4.0f);
  EXPECT_EQ(other.get_options().growth_interval, 2);
  EXPECT_EQ(other.get_state_sync().updates, 1);
  EXPECT_STATUS(other.set_state({}), GSC_ERROR_INVALID_ARGUMENT);
}

TEST_F(GradScalerTest, OptionsCanBeReadAndReplaced) {
  EXPECT_TRUE(scaler_.get_options().enabled);
  EXPECT_FALSE(GradScaler(context_, {.enabled = false}).get_options().enabled);
  ScalerOptions options = scaler_.get_options();
  EXPECT_EQ(options.init_scale, 4.0f);
  EXPECT_EQ(options.growth_interval, 2);
  options.hysteresis = 2;
  options.growth_interval = 5;
  scaler_.set_options(options);
  EXPECT_EQ(scaler_.get_options().hysteresis, 2);
  EXPECT_EQ(scaler_.get_options().growth_interval, 5);
  options.backoff_factor = 1.0;
  EXPECT_STATUS(scaler_.set_options(options), GSC_ERROR_INVALID_ARGUMENT);
}

// A null reference stands for all lists; what was moved from must not.
TEST_F(GradScalerTest, ListsThatWereMovedFromAreRefused) {
  scaler_.check(grads_);
  TensorList here(context_, {});
  const TensorList there = std::move(here);
  EXPECT_STATUS(scaler_.discard(here), GSC_ERROR_INVALID_ARGUMENT);  // NOLINT(bugprone-use-after-move)
  EXPECT_STATUS(scaler_.get_report_sync(here), GSC_ERROR_INVALID_ARGUMENT);
  scaler_.update();
}

TEST_F(GradScalerTest, ReducerIsCalledAndRemoved) {
  int calls = 0;
  const auto another_rank_overflows = [](void *user, double *values, int64_t, gsc_stream) -> int32_t {
    ++*static_cast<int *>(user);
    values[0] += 1.0;
    return 0;
  };
  scaler_.set_reducer(another_rank_overflows, &calls);
  scaler_.step_and_update(sgd_);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(weights_, (Floats{1.0f, 2.0f}));
  scaler_.set_reducer(nullptr);
  gradients_ = {2.0f, 4.0f};
  scaler_.step_and_update(sgd_);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(weights_, (Floats{0.0f, 0.0f}));
}

}  // namespace
}  // namespace gradscaler
