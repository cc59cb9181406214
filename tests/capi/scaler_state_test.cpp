// SPDX-License-Identifier: Apache-2.0
//
// The visible state of a scaler: reports, the history ring, device words, and the limits of the state that a checkpoint
// keeps. That a restored scaler continues exactly where it was saved, and rings of any size, are in tests/oracle.
#include "policy_harness.h"

namespace gsc_test {
namespace {

TEST(Report, WithoutWaitingSaysTheSame) {
  Policy policy(scaler_options(8.0f, 2));
  policy.run("..x.");
  gsc_report copied;
  std::memset(&copied, 0x5a, sizeof copied);
  copied.struct_size = sizeof copied;
  ASSERT_GSC_OK(gsc_scaler_read_report_async(policy, nullptr, &copied, nullptr));
  EXPECT_TRUE(same_bytes(copied, policy.report()));
}

TEST(Report, OfANewScaler) {
  Policy policy(scaler_options(8.0f, 2));
  const gsc_report report = policy.report();
  EXPECT_EQ(report.scale, 8.0f);
  EXPECT_EQ(report.updates, 0);
  EXPECT_EQ(report.skipped, 0);
  EXPECT_EQ(report.flags, 0u);
  EXPECT_EQ(report.first_tensor, -1);
  EXPECT_EQ(report.hysteresis_tracker, 1);
}

std::vector<gsc_history_entry> history_of(const Policy &policy, int64_t capacity) {
  std::vector<gsc_history_entry> entries(capacity);
  int64_t count = -1;
  EXPECT_GSC_OK(gsc_scaler_get_history_sync(policy, entries.data(), capacity, &count, nullptr));
  EXPECT_LE(count, capacity);
  entries.resize(std::max<int64_t>(count, 0));
  return entries;
}

TEST(History, GivesTheNewestOldestFirst) {
  Policy policy(scaler_options(8.0f, 2));
  EXPECT_TRUE(history_of(policy, 10).empty());
  policy.run("..x.");
  const std::vector<gsc_history_entry> newest = history_of(policy, 2);
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].update, 2);
  EXPECT_EQ(newest[0].overflow, 1);
  EXPECT_EQ(newest[0].grad_norm, kInf);
  EXPECT_EQ(newest[1].update, 3);
  EXPECT_EQ(newest[1].scale, 8.0f);
}

TEST(DeviceState, FollowsTheScaler) {
  Policy policy(scaler_options(3.0f, 2));
  gsc_device_state words;
  std::memset(&words, 0x5a, sizeof words);
  words.struct_size = sizeof words;
  ASSERT_GSC_OK(gsc_scaler_get_device_state(policy, nullptr, &words));
  EXPECT_EQ(words.found_inf, nullptr);
  EXPECT_EQ(words.grad_norm, nullptr);
  ASSERT_NE(words.scale, nullptr);
  EXPECT_EQ(*words.scale, 3.0f);
  EXPECT_EQ(*words.inv_scale, float(1.0 / 3.0));
  EXPECT_EQ(*words.hysteresis_tracker, 1);
  policy.run(".");
  EXPECT_EQ(*words.growth_tracker, 1);
  policy.run(".");
  EXPECT_EQ(*words.scale, 6.0f);
  EXPECT_EQ(*words.inv_scale, float(1.0 / 6.0));
  ASSERT_GSC_OK(gsc_scaler_set_scale(policy, 7.0f, nullptr));
  EXPECT_EQ(*words.scale, 7.0f);
  EXPECT_EQ(*words.inv_scale, float(1.0 / 7.0));
}

TEST(DeviceState, FoundInfCounts) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, 4.0f);
  Buffer grads(GSC_FP16, 100);
  const List list = make_list(context, grads);
  for (int64_t i = 0; i < 5; ++i) grads.set(i * 20, i % 2 == 0 ? kInf : kNan);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
  auto words = with_size<gsc_device_state>();
  ASSERT_GSC_OK(gsc_scaler_get_device_state(scaler, list, &words));
  EXPECT_EQ(*words.found_inf, 5.0f);
  EXPECT_TRUE(std::isnan(*words.grad_norm));
}

/// A checkpoint may hold any count that is not negative.
TEST(ScalerState, CountersStopAtTheirLargest) {
  gsc_scaler_options options = scaler_options(8.0f, INT32_MAX);
  options.min_scale = 8.0f;
  Policy policy(options);
  gsc_scaler_state state = state_of(policy);
  state.growth_tracker = state.overflows_since_rescale = state.updates_since_rescale = INT32_MAX;
  state.consecutive_skips = state.skips_at_floor = INT32_MAX;
  state.updates = state.skipped = INT64_MAX;
  ASSERT_GSC_OK(gsc_scaler_set_state(policy, &state, nullptr));
  policy.update(true);
  gsc_scaler_state now = state_of(policy);
  EXPECT_EQ(now.consecutive_skips, INT32_MAX);
  EXPECT_EQ(now.skips_at_floor, INT32_MAX);
  EXPECT_EQ(now.updates, state.updates);
  EXPECT_EQ(now.skipped, state.skipped);
  ASSERT_GSC_OK(gsc_scaler_set_state(policy, &state, nullptr));
  policy.update(false);
  EXPECT_EQ(policy.scale(), 16.0f) << "the tracker has reached the interval";
}

TEST(State, IsHeldAgainstTheOptionsOfTheScaler) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, preset_options(GSC_PRESET_MEGATRON));
  gsc_scaler_state state = state_of(scaler);
  state.growth_factor = 1e300;
  EXPECT_INVALID(gsc_scaler_set_state(scaler, &state, nullptr), "state.growth_factor", "FP32_PRODUCTS");
}

}  // namespace
}  // namespace gsc_test
