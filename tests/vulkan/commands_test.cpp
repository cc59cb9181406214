// SPDX-License-Identifier: Apache-2.0
//
// Calls that record into the caller's command buffers: recorded once and submitted every frame, secondary buffers, several
// frames in flight. All with the CPU's bits, without submitting, waiting or allocating.
#include "tests/cuda/twin.h"

namespace gsc_test {
namespace {

class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DEVICE();
    contexts_ = std::make_unique<Contexts>();
    device_ = vulkan_device();
  }
  /// Records what f(commands) does.
  template <typename F>
  VkCommandBuffer record(const F &f, VkCommandBufferLevel level = VK_COMMAND_BUFFER_LEVEL_PRIMARY) {
    const VkCommandBuffer commands = device_->make_commands(level);
    VulkanDevice::begin(commands);
    f(commands);
    EXPECT_EQ(vkEndCommandBuffer(commands), VK_SUCCESS);
    return commands;
  }
  std::unique_ptr<Contexts> contexts_;
  VulkanDevice *device_ = nullptr;
};

/// A step of both sides on the same tensors. LAMB has all kernels of a step.
struct Steps {
  explicit Steps(const Contexts &contexts, int32_t kind = GSC_LAMB) {
    for (const int64_t count : {100, 40000, 17, 3000}) {
      params.emplace_back(GSC_FP32, count);
      grads.emplace_back(GSC_FP16, count, 1);
      params.back().fill(Values::kOrdinary, random);
      grads.back().fill(Values::kOrdinary, random);
    }
    const gsc_optimizer_options options = optimizer_options(kind);
    host = std::make_unique<Side>(contexts.cpu, options, host_tensors(params), host_tensors(grads));
    device = std::make_unique<Side>(contexts.device, options, device_tensors(params), device_tensors(grads));
  }
  void fill(bool overflow) {
    for (Twin &grad : grads) grad.fill(overflow ? Values::kWithInf : Values::kOrdinary, random);
  }
  void expect_same() {
    for (const Twin &twin : params) ASSERT_TRUE(twin.same());
    expect_same_report(report_of(device->scaler), report_of(host->scaler));
    ASSERT_EQ(saved_image(device->optimizer), saved_image(host->optimizer));
  }
  Random random{4};
  Twins params, grads;
  std::unique_ptr<Side> host, device;
};

TEST_F(Commands, RecordedOnceAndSubmittedEveryFrame) {
  Steps steps(*contexts_);
  for (const auto level : {VK_COMMAND_BUFFER_LEVEL_PRIMARY, VK_COMMAND_BUFFER_LEVEL_SECONDARY}) {
    VkCommandBuffer frame = record([&](VkCommandBuffer c) { EXPECT_GSC_OK(steps.device->step(c)); }, level);
    if (level == VK_COMMAND_BUFFER_LEVEL_SECONDARY) {
      const VkCommandBuffer inner = frame;
      frame = record([&](VkCommandBuffer c) { vkCmdExecuteCommands(c, 1, &inner); });
    }
    for (int step = 0; step < 6; ++step) {
      SCOPED_TRACE(step);
      steps.fill(step == 2);
      ASSERT_GSC_OK(steps.host->step());
      device_->submit({frame});
      steps.expect_same();
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(skipped_steps(steps.device->optimizer), 2);
}

/// Memory that later calls replace is kept for what was recorded before.
TEST_F(Commands, RecordedBeforeTheOptimizerGrows) {
  Steps steps(*contexts_);
  const VkCommandBuffer frame = record([&](VkCommandBuffer c) { EXPECT_GSC_OK(steps.device->step(c)); });
  auto same = with_size<gsc_optimizer_options>();
  const int64_t none[4] = {0, 0, 0, 0};
  for (const auto *side : {steps.host.get(), steps.device.get()}) {
    ASSERT_GSC_OK(gsc_optimizer_get_options(side->optimizer, 0, &same));
    ASSERT_GSC_OK(gsc_optimizer_add_group(side->optimizer, 0, 1, &same, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_set_tensor_steps(side->optimizer, none, 4, nullptr));
  }
  std::vector<Scaler> others;  // take what has been released
  for (int i = 0; i < 20; ++i) others.push_back(make_scaler(contexts_->device, 8.0F));
  ASSERT_GSC_OK(steps.host->step());
  device_->submit({frame});
  steps.expect_same();
  for (const Scaler &scaler : others) EXPECT_EQ(scale_of(scaler), 8.0F);
}

/// Three frames are recorded and then submitted at once. Each has separate gradients and another learning rate.
TEST_F(Commands, SeveralFramesAreInFlight) {
  Steps steps(*contexts_, GSC_ADAMW);
  std::vector<Twins> frames(3);
  for (Twins &frame : frames) {
    for (const Twin &grad : steps.grads) frame.emplace_back(GSC_FP16, const_cast<Twin &>(grad).host().count());
  }
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    std::vector<VkCommandBuffer> recorded;
    for (Twins &frame : frames) {
      const int index = static_cast<int>(recorded.size());
      for (Twin &grad : frame) grad.fill(round == 1 && index == 1 ? Values::kWithNan : Values::kOrdinary, steps.random);
      std::vector<void *> there, here;
      for (Twin &grad : frame) {
        there.push_back(grad.device_data());
        here.push_back(grad.host_data());
      }
      const auto count = static_cast<int64_t>(frame.size());
      const double lr = 0.01 * (1 + index + round);
      recorded.push_back(record([&](VkCommandBuffer c) {
        EXPECT_GSC_OK(gsc_tensor_list_set_pointers(steps.device->grads, there.data(), count, c));
        EXPECT_GSC_OK(gsc_optimizer_set_lr(steps.device->optimizer, 0, lr, c));
        EXPECT_GSC_OK(steps.device->step(c));
      }));
      EXPECT_GSC_OK(gsc_tensor_list_set_pointers(steps.host->grads, here.data(), count, nullptr));
      EXPECT_GSC_OK(gsc_optimizer_set_lr(steps.host->optimizer, 0, lr, nullptr));
      EXPECT_GSC_OK(steps.host->step());
    }
    device_->submit(recorded);
    steps.expect_same();
    if (HasFailure()) return;
  }
}

/// Nothing is submitted, and the second recording allocates nothing.
TEST_F(Commands, RecordingNeitherSubmitsNorAllocates) {
  Steps steps(*contexts_);
  Twin x(GSC_FP32, 70000, 1), y(GSC_FP16, 70000);
  const TwinWord<float> found(0.0F), factor(2.0F);
  const DeviceBytes norm(8);
  const auto all = [&](VkCommandBuffer c) {
    const gsc_tensor from = x.device_tensor(), to = y.device_tensor();
    EXPECT_GSC_OK(gsc_scaler_check(steps.device->scaler, steps.device->grads, c));
    EXPECT_GSC_OK(steps.device->step(c));
    EXPECT_GSC_OK(gsc_scaler_set_scale(steps.device->scaler, 64.0F, c));
    EXPECT_GSC_OK(gsc_optimizer_zero_grads(steps.device->optimizer, c));
    EXPECT_GSC_OK(gsc_ops_axpby(contexts_->device, 0.5, &from, 0.25, &to, 1, c));
    EXPECT_GSC_OK(gsc_ops_unscale_check(contexts_->device, &from, 1, found.device(), factor.device(), c));
    EXPECT_GSC_OK(
        gsc_ops_norm(contexts_->device, &from, 1, GSC_NORM_L2, reinterpret_cast<double *>(norm.data()), nullptr, c));
  };
  int64_t before[2], after[2];
  record(all);
  const int locks = device_->locks;
  ASSERT_GSC_OK(gsc_context_get_memory(contexts_->device, &before[0], &before[1]));
  record(all);
  ASSERT_GSC_OK(gsc_context_get_memory(contexts_->device, &after[0], &after[1]));
  EXPECT_EQ(device_->locks, locks);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_GSC_OK(gsc_scaler_step(steps.device->scaler, steps.device->optimizer, nullptr));
  EXPECT_GT(device_->locks, locks) << "stream NULL is submitted";
}

TEST_F(Commands, StatelessOperationsAreSubmittedAgain) {
  Twin x(GSC_FP32, 70000, 1), y(GSC_FP16, 70000, 1);
  Random random(8);
  x.fill(Values::kOrdinary, random);
  y.fill(Values::kOrdinary, random);
  const gsc_tensor from = x.device_tensor(), to = y.device_tensor(), host[] = {x.host_tensor(), y.host_tensor()};
  const DeviceBytes out(8);
  auto *norm = reinterpret_cast<double *>(out.data());
  const VkCommandBuffer frame = record([&](VkCommandBuffer c) {
    EXPECT_GSC_OK(gsc_ops_axpby(contexts_->device, 0.5, &from, 0.25, &to, 1, c));
    EXPECT_GSC_OK(gsc_ops_norm(contexts_->device, &to, 1, GSC_NORM_L2, norm, nullptr, c));
  });
  for (int i = 0; i < 3; ++i) {
    device_->submit({frame});
    double want = 0.0;
    ASSERT_GSC_OK(gsc_ops_axpby(contexts_->cpu, 0.5, &host[0], 0.25, &host[1], 1, nullptr));
    ASSERT_GSC_OK(gsc_ops_norm(contexts_->cpu, &host[1], 1, GSC_NORM_L2, &want, nullptr, nullptr));
    EXPECT_TRUE(y.same());
    EXPECT_EQ(read_device(norm), want);
  }
}

/// The learning rate is read when a command buffer runs.
TEST_F(Commands, LearningRatesLiveOnTheDevice) {
  Steps steps(*contexts_, GSC_SGD);
  TwinWord<float> lr(0.5F);
  ASSERT_GSC_OK(gsc_optimizer_set_device_lr(steps.device->optimizer, 0, lr.device(), nullptr));
  ASSERT_GSC_OK(gsc_optimizer_set_device_lr(steps.host->optimizer, 0, &lr.host, nullptr));
  const VkCommandBuffer frame = record([&](VkCommandBuffer c) { EXPECT_GSC_OK(steps.device->step(c)); });
  for (const float next : {0.25F, 0.125F}) {
    lr.set(next);
    ASSERT_GSC_OK(steps.host->step());
    device_->submit({frame});
    for (const Twin &twin : steps.params) ASSERT_TRUE(twin.same());
  }
}

TEST_F(Commands, NormsOfTensorsAreKept) {
  Steps steps(*contexts_);
  const TwinNorms norms(*steps.host, *steps.device, steps.grads.size());
  const VkCommandBuffer frame = record([&](VkCommandBuffer c) { EXPECT_GSC_OK(steps.device->step(c)); });
  for (const bool overflow : {false, true, false}) {
    steps.fill(overflow);
    ASSERT_GSC_OK(steps.host->step());
    device_->submit({frame});
    norms.expect_same();
    ASSERT_NO_FATAL_FAILURE(steps.expect_same());
  }
}

/// So is the factor of the gradients, and one that is invalid skips.
TEST_F(Commands, FactorsOfGradientsLiveOnTheDevice) {
  Steps steps(*contexts_);
  TwinWord<float> factor(0.5F);
  ASSERT_GSC_OK(gsc_tensor_list_set_device_factor(steps.device->grads, factor.device()));
  ASSERT_GSC_OK(gsc_tensor_list_set_device_factor(steps.host->grads, &factor.host));
  const VkCommandBuffer frame = record([&](VkCommandBuffer c) { EXPECT_GSC_OK(steps.device->step(c)); });
  for (const float next : {0.25F, 1.0F / 3.0F}) {
    factor.set(next);
    steps.fill(false);
    ASSERT_GSC_OK(steps.host->step());
    device_->submit({frame});
    ASSERT_NO_FATAL_FAILURE(steps.expect_same());
  }
  factor.set(static_cast<float>(kNan));
  device_->submit({frame});
  EXPECT_GT(report_of(steps.device->scaler).nonfinite_count, 0);
  EXPECT_EQ(applied_steps(steps.device->optimizer), 2);
}

TEST_F(Commands, AReportIsWrittenWhenTheFrameRuns) {
  Steps steps(*contexts_);
  const DeviceBytes memory(sizeof(gsc_report));
  auto *const address = reinterpret_cast<gsc_report *>(memory.data());
  const VkCommandBuffer frame = record([&](VkCommandBuffer c) {
    EXPECT_GSC_OK(steps.device->step(c));
    EXPECT_GSC_OK(gsc_scaler_read_report_async(steps.device->scaler, steps.device->grads, address, c));
    EXPECT_INVALID(gsc_scaler_read_report_async(steps.device->scaler, nullptr, nullptr, c), "out_report");
  });
  for (const bool overflow : {false, true, false}) {
    steps.fill(overflow);
    ASSERT_GSC_OK(steps.host->step());
    device_->submit({frame});
    gsc_report report{};
    copy_to_host(&report, address, sizeof report);
    EXPECT_EQ(report.struct_size, sizeof report);
    expect_same_report(report, report_of(steps.host->scaler, steps.host->grads));
  }
}

TEST_F(Commands, WhatWaitsOrIsMissingIsRefused) {
  Steps steps(*contexts_);
  const Context other = make_device_context();
  const List away = make_list(other, device_tensors(steps.grads));
  auto report = with_size<gsc_report>();
  record([&](VkCommandBuffer c) {
    EXPECT_BAD_STATE(gsc_scaler_get_report_sync(steps.device->scaler, nullptr, &report, c), "stream", "command buffer");
    int64_t applied = 0;
    EXPECT_BAD_STATE(gsc_optimizer_get_steps_sync(steps.device->optimizer, &applied, nullptr, c), "stream");
    EXPECT_GSC_ERROR(gsc_scaler_check(steps.device->scaler, away, c), GSC_ERROR_UNSUPPORTED, "context");
  });
  ASSERT_GSC_OK(steps.host->step());
  ASSERT_GSC_OK(steps.device->step());
  steps.expect_same();
}

}  // namespace
}  // namespace gsc_test
