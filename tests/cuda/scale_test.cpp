// SPDX-License-Identifier: Apache-2.0
//
// A scale without an inverse on the emulated device, where the library does not see it until it reads it: lists without
// elements stay clean, as on the CPU, and each call that reads the scaler's state warns once.
#include "tests/cuda/training.h"

namespace gsc_test {
namespace {

class DeviceScale : public testing::Test {
 protected:
  DeviceScale() {
    EXPECT_GSC_OK(gsc_context_set_log(
        contexts.device,
        [](void *user, int32_t level, const char *message) {
          if (level != GSC_LOG_WARNING) return;
          ++static_cast<DeviceScale *>(user)->warnings;
          static_cast<DeviceScale *>(user)->last = message;
        },
        this));
  }
  const Contexts contexts;
  int warnings = 0;
  std::string last;
};

TEST_F(DeviceScale, AbsentTensorsAreCleanAtAnyScale) {
  for (const bool in_slices : {false, true}) {
    const Training t(contexts.device, 2, 300);
    const uint8_t absent[2] = {0, 0};
    ASSERT_GSC_OK(gsc_scaler_set_scale(t.scaler, 1e-40f, nullptr));
    ASSERT_GSC_OK(gsc_tensor_list_set_present(t.grads, absent, nullptr, 2, nullptr));
    int64_t left = in_slices ? 1 : 0;
    while (left > 0) ASSERT_GSC_OK(gsc_scaler_step_slice(t.scaler, t.optimizer, 1, &left, nullptr));
    if (!in_slices) {
      ASSERT_GSC_OK(gsc_scaler_step(t.scaler, t.optimizer, nullptr));
    }
    ASSERT_GSC_OK(gsc_scaler_update(t.scaler, nullptr));
    for (const gsc_report &report : {report_of(t.scaler, t.grads), report_of(t.scaler)}) {
      EXPECT_EQ(report.flags, uint32_t{GSC_REPORT_SCALE_UNDERFLOW});
      EXPECT_EQ(report.nonfinite_count, 0);
      EXPECT_EQ(report.grad_norm, 0.0);
      EXPECT_EQ(report.grad_amax, 0.0);
    }
    EXPECT_EQ(applied_steps(t.optimizer), 1);
    EXPECT_EQ(skipped_steps(t.optimizer), 0);
    ASSERT_GSC_OK(gsc_tensor_list_set_present(t.grads, nullptr, nullptr, 2, nullptr));
    ASSERT_GSC_OK(t.step());
    EXPECT_EQ(applied_steps(t.optimizer), 1) << "present ones are skipped";
  }
}

/// An inverse that no check has used skips the step, absent tensors or not.
TEST_F(DeviceScale, TheCallersInverseIsJudged) {
  const Training t(contexts.device, 2, 300);
  const uint8_t absent[2] = {0, 0};
  ASSERT_GSC_OK(gsc_tensor_list_set_present(t.grads, absent, nullptr, 2, nullptr));
  const TwinWord<float> inverse{INFINITY};
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(t.optimizer, inverse.device(), nullptr, nullptr));
  EXPECT_EQ(skipped_steps(t.optimizer), 1);
}

TEST_F(DeviceScale, WhoeverReadsTheStateWarnsOnce) {
  auto report = with_size<gsc_report>();
  auto state = with_size<gsc_scaler_state>();
  gsc_history_entry entries[2];
  int64_t count = 0;
  float scale = 0.0f;
  const std::function<gsc_status(gsc_scaler *)> readers[] = {
      [&](auto *s) { return gsc_scaler_get_report_sync(s, nullptr, &report, nullptr); },
      [&](auto *s) { return gsc_scaler_get_scale_sync(s, &scale, nullptr); },
      [&](auto *s) { return gsc_scaler_get_state_sync(s, &state, nullptr); },
      [&](auto *s) { return gsc_scaler_get_history_sync(s, entries, 2, &count, nullptr); },
      [&](auto *s) { return gsc_scaler_get_history_sync(s, nullptr, 0, &count, nullptr); },
  };
  for (const auto &reader : readers) {
    warnings = 0;
    Training t(contexts.device, 1, 8);
    Random random(1);
    t.g[0].fill(kWithInf, random);
    ASSERT_GSC_OK(gsc_scaler_set_scale(t.scaler, 0x1p-127f, nullptr));
    ASSERT_GSC_OK(reader(t.scaler));
    for (int i = 0; i < 3; ++i) ASSERT_GSC_OK(t.step());
    EXPECT_EQ(warnings, 0) << "a step does not wait";
    for (int i = 0; i < 2; ++i) {
      ASSERT_GSC_OK(reader(t.scaler));
      EXPECT_EQ(warnings, 1);
    }
    EXPECT_NE(last.find("too small to divide by"), std::string::npos) << last;
    for (const auto &other : readers) ASSERT_GSC_OK(other(t.scaler));
    EXPECT_EQ(warnings, 1);
    ASSERT_GSC_OK(gsc_scaler_set_scale(t.scaler, 1e-40f, nullptr));
    EXPECT_EQ(warnings, 1) << "it has been said";
    ASSERT_GSC_OK(gsc_scaler_set_scale(t.scaler, 1.0f, nullptr));
    ASSERT_GSC_OK(gsc_scaler_set_scale(t.scaler, 1e-40f, nullptr));
    EXPECT_EQ(warnings, 2) << "the host knows what it sets";
  }
}

/// The callback may destroy what was read.
TEST_F(DeviceScale, TheWarningMayEndTheScaler) {
  static Scaler scaler;
  ASSERT_GSC_OK(gsc_context_set_log(
      contexts.device, [](void *, int32_t, const char *) { scaler.reset(); }, nullptr));
  float scale = 1.0f;
  auto state = with_size<gsc_scaler_state>();
  for (const bool reads_scale : {true, false}) {
    scaler = make_scaler(contexts.device, 0x1p-127f);
    Twin twin(GSC_FP32, 8);
    Random random(1);
    twin.fill(kWithInf, random);
    const List list = make_list(contexts.device, {twin.device_tensor()});
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    EXPECT_GSC_OK(reads_scale ? gsc_scaler_get_scale_sync(scaler, &scale, nullptr)
                              : gsc_scaler_get_state_sync(scaler, &state, nullptr));
    EXPECT_EQ(scaler, nullptr);
  }
  EXPECT_EQ(scale, 0x1p-128f);
  EXPECT_EQ(state.scale, 0x1p-128f);
}

}  // namespace
}  // namespace gsc_test
