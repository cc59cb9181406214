// SPDX-License-Identifier: Apache-2.0
//
// Every call of gradscaler::Optimizer once, with an effect that shows that it arrived.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gradscaler/gradscaler.hpp>
#include <string>
#include <vector>

namespace gradscaler {
namespace {

using Floats = std::vector<float>;

class OptimizerTest : public testing::Test {
 protected:
  Floats a_ = {1.0f, 2.0f}, b_ = {3.0f};
  Floats grad_a_ = {1.0f, 1.0f}, grad_b_ = {1.0f};
  Context context_{ContextOptions{.num_threads = 1}};
  TensorList params_{context_, {tensor(a_), tensor(b_)}};
  TensorList grads_{context_, {tensor(grad_a_), tensor(grad_b_)}};
  Optimizer sgd_{context_, {.kind = OptimizerKind::sgd, .lr = 1.0}, params_, grads_};
};

TEST_F(OptimizerTest, StepsWithAndWithoutWords) {
  sgd_.step();
  EXPECT_EQ(a_, (Floats{0.0f, 1.0f}));
  const float inv_scale = 0.5f, clean = 0.0f, overflow = 2.0f;
  sgd_.step_scaled(&inv_scale, &clean);
  EXPECT_EQ(a_, (Floats{-0.5f, 0.5f}));
  sgd_.step_scaled(&inv_scale, &overflow);
  EXPECT_EQ(a_, (Floats{-0.5f, 0.5f}));
  EXPECT_EQ(sgd_.get_steps_sync().applied, 2);
  EXPECT_EQ(sgd_.get_steps_sync().skipped, 1);
  EXPECT_EQ(sgd_.get_unchanged_sync(), 0);  // not counted
  sgd_.set_steps({.applied = 10, .skipped = 3});
  EXPECT_EQ(sgd_.get_steps_sync().applied, 10);
  EXPECT_EQ(sgd_.get_steps_sync().skipped, 3);
  sgd_.zero_grads();
  EXPECT_EQ(grad_a_, (Floats{0.0f, 0.0f}));
}

TEST_F(OptimizerTest, AbsentTensorsStayAndKeepTheirCount) {
  const Floats before = b_;
  grads_.set_present(std::array<uint8_t, 2>{1, 0});
  sgd_.step();
  EXPECT_EQ(b_, before);
  EXPECT_EQ(a_, (Floats{0.0f, 1.0f}));
  EXPECT_EQ(sgd_.get_tensor_steps_sync(), (std::vector<int64_t>{1, 0}));
  const std::array<void *, 2> data = {nullptr, grad_b_.data()};
  grads_.set_present(std::array<uint8_t, 2>{0, 1}, data);
  sgd_.step();
  EXPECT_NE(b_, before);
  EXPECT_EQ(sgd_.get_tensor_steps_sync(), (std::vector<int64_t>{1, 1}));
  EXPECT_THROW(grads_.set_present(std::array<uint8_t, 2>{1, 1}), Error);
  EXPECT_THROW(grads_.set_present(std::array<uint8_t, 1>{1}, data), Error);
  sgd_.set_tensor_steps(std::array<int64_t, 2>{5, 7});
  EXPECT_EQ(sgd_.get_tensor_steps_sync(), (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(sgd_.get_steps_sync().applied, 7);
}

TEST_F(OptimizerTest, GroupsHaveTheirOwnOptions) {
  EXPECT_EQ(sgd_.get_group_count(), 1);
  const int32_t group = sgd_.add_group(1, 1, {.kind = OptimizerKind::sgd, .lr = 0.5});
  EXPECT_EQ(group, 1);
  EXPECT_EQ(sgd_.get_group_count(), 2);
  EXPECT_EQ(sgd_.get_options(group).lr, 0.5);
  EXPECT_EQ(sgd_.get_options().lr, 1.0);
  sgd_.step();
  EXPECT_EQ(a_, (Floats{0.0f, 1.0f}));
  EXPECT_EQ(b_, (Floats{2.5f}));
  sgd_.set_lr(0.25, group);
  EXPECT_EQ(sgd_.get_options(group).lr, 0.25);
  OptimizerOptions options = sgd_.get_options();
  options.lr = 2.0;
  sgd_.set_options(0, options);
  sgd_.step();
  EXPECT_EQ(a_, (Floats{-2.0f, -1.0f}));
  EXPECT_EQ(b_, (Floats{2.25f}));
  EXPECT_THROW(sgd_.add_group(1, 1, {.kind = OptimizerKind::sgd}), Error);
}

TEST_F(OptimizerTest, LearningRateFromAWord) {
  float lr = 0.5f;
  sgd_.set_device_lr(&lr);
  sgd_.step();
  EXPECT_EQ(b_, (Floats{2.5f}));
  lr = 0.25f;
  sgd_.step();
  EXPECT_EQ(b_, (Floats{2.25f}));
  sgd_.set_device_lr(nullptr);
  sgd_.step();
  EXPECT_EQ(b_, (Floats{1.25f}));
}

TEST_F(OptimizerTest, MultipliesGradientsByAWord) {
  const float factor = 0.5f;
  const std::vector<float> before = b_;
  sgd_.get_grads().set_device_factor(&factor);
  sgd_.step();
  const float moved = before[0] - b_[0];
  sgd_.get_grads().set_device_factor(nullptr);
  sgd_.step();
  EXPECT_EQ(before[0] - b_[0], 3 * moved);
}

TEST_F(OptimizerTest, NormsOfItsGradients) {
  std::vector<double> norms(sgd_.get_grads().get_count());
  sgd_.get_grads().set_device_norms(norms.data());
  GradScaler scaler(context_, ScalerOptions::preset(Preset::check));
  scaler.step(sgd_);
  scaler.update();
  EXPECT_EQ(norms, (std::vector<double>{std::sqrt(2.0), 1.0}));
  sgd_.get_grads().set_device_norms(nullptr);
}

TEST_F(OptimizerTest, WritesTheModelCopy) {
  std::vector<uint16_t> half_a(2), half_b(1);
  const TensorList model(context_, {tensor(half_a, DType::fp16), tensor(half_b, DType::bf16)});
  Optimizer sgd(context_, {.kind = OptimizerKind::sgd, .lr = 1.0}, params_, grads_, model);
  sgd.step();
  EXPECT_EQ(half_a, (std::vector<uint16_t>{0x0000, 0x3c00}));  // 0 and 1 in binary16
  EXPECT_EQ(half_b, (std::vector<uint16_t>{0x4000}));          // 2 in bfloat16
}

TEST_F(OptimizerTest, StateBelongsToEither) {
  const OptimizerOptions options = {.kind = OptimizerKind::sgd, .lr = 1.0, .momentum = 0.5};
  Optimizer made(context_, options, params_, grads_);
  ASSERT_EQ(made.get_state_count(), 1);
  EXPECT_STREQ(made.get_state(0).name, "momentum_buffer");
  EXPECT_EQ(made.get_state(0).list.get_count(), 2);
  EXPECT_EQ(made.get_state(0).list.get_tensor(0).count, 2);
  EXPECT_EQ(made.get_grads().get(), grads_.get());
  EXPECT_EQ(sgd_.get_state_count(), 0);
  EXPECT_THROW(made.get_state(1), Error);

  Floats buffer_a = {0.0f, 0.0f}, buffer_b = {0.0f};
  const TensorList buffers(context_, {tensor(buffer_a), tensor(buffer_b)});
  const std::array<TensorListRef, 1> state = {buffers};
  Optimizer given(context_, options, params_, grads_, {}, state);
  given.step();
  EXPECT_EQ(buffer_a, (Floats{1.0f, 1.0f}));
  const std::array<TensorListRef, 2> too_many = {buffers, buffers};
  EXPECT_THROW(Optimizer(context_, options, params_, grads_, {}, too_many), Error);
}

/// The averages of the iterates, between steps, and of the weights, in each step.
TEST_F(OptimizerTest, AveragesWeights) {
  Optimizer averaging(
      context_,
      {.kind = OptimizerKind::sgd_schedule_free, .lr = 1.0, .momentum = 0.5, .weight_lr_power = 0.0, .ema_decay = 0.5},
      params_, grads_);
  averaging.step();
  averaging.step();
  EXPECT_EQ(b_, (Floats{1.25f}));
  ASSERT_STREQ(averaging.get_state(2).name, "ema");
  EXPECT_EQ(*static_cast<const float *>(averaging.get_state(2).list.get_tensor(1).data), 1.625f);  // of 2 and 1.25
  averaging.set_evaluating(true);
  EXPECT_EQ(averaging.get_evaluating(), 1);
  EXPECT_EQ(b_, (Floats{1.5f}));  // the mean of 2 and 1
  EXPECT_THROW(averaging.step(), Error);
  averaging.set_evaluating(false);
  EXPECT_EQ(b_, (Floats{1.25f}));
}

TEST_F(OptimizerTest, SavesAndLoads) {
  const OptimizerOptions options = {.kind = OptimizerKind::sgd, .lr = 1.0, .momentum = 0.5};
  Optimizer first(context_, options, params_, grads_);
  first.step();
  const std::vector<std::byte> saved = first.save_sync();
  EXPECT_EQ(std::ssize(saved), first.get_save_size());
  const Floats a = a_;
  first.step();
  const Floats expected = a_;

  a_ = a;
  Optimizer second(context_, options, params_, grads_);
  second.load_sync(saved);
  EXPECT_EQ(second.get_steps_sync().applied, 1);
  second.step();
  EXPECT_EQ(a_, expected);
  EXPECT_THROW(second.load_sync(std::span(saved).first(saved.size() - 1)), Error);
}

}  // namespace
}  // namespace gradscaler
