// SPDX-License-Identifier: Apache-2.0
//
// What can be seen of a scaler: reports of one list and of all, the history ring and its wrap, device words, and the
// state that a checkpoint keeps, which must continue exactly where it was saved.
#include "policy_harness.h"

namespace gsc_test {
namespace {

TEST(Report, OfOneListAndOfAll) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, 4.0f);
  std::vector<Buffer> a = make_buffers(GSC_FP16, {4, 4}), b = make_buffers(GSC_FP32, {2});
  for (Buffer &buffer : a) buffer.fill(4.0);
  b[0].set(0, 12.0);
  b[0].set(1, 16.0);
  const List first = make_list(context, a), second = make_list(context, b);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, first, nullptr));
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler, second, nullptr));
  EXPECT_DOUBLE_EQ(report_of(scaler, first).grad_norm, std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(report_of(scaler, second).grad_norm, 5.0);
  ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  gsc_report all = report_of(scaler);
  EXPECT_DOUBLE_EQ(all.grad_norm, std::sqrt(33.0));
  EXPECT_EQ(all.grad_amax, 4.0);
  EXPECT_EQ(all.first_tensor, -1);
  EXPECT_EQ(all.struct_size, sizeof all);
  EXPECT_DOUBLE_EQ(report_of(scaler, second).grad_norm, 5.0) << "also after update, until the next check";

  a[1].set(2, kNan);
  b[0].set(1, kInf);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, first, nullptr));
  ASSERT_GSC_OK(gsc_scaler_check(scaler, second, nullptr));
  ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  all = report_of(scaler);
  EXPECT_EQ(all.flags & GSC_REPORT_OVERFLOW, static_cast<uint32_t>(GSC_REPORT_OVERFLOW));
  EXPECT_EQ(all.nonfinite_count, 2);
  EXPECT_EQ(all.inf_count, 1);
  EXPECT_EQ(all.nan_count, 1);
  EXPECT_EQ(all.first_tensor, 1);
  EXPECT_EQ(all.first_element, 2);
  EXPECT_EQ(all.skipped, 1);
  EXPECT_EQ(all.consecutive_skips, 1);
  EXPECT_EQ(all.scale, 2.0f);
  const gsc_report own = report_of(scaler, second);
  EXPECT_EQ(own.first_tensor, 0);
  EXPECT_EQ(own.first_element, 1);
  EXPECT_EQ(own.nan_count, 0);
}

TEST(Report, TheLargestMagnitudeIsThatOfAllLists) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, 1.0f);
  Buffer small(GSC_FP32, 3), large(GSC_FP32, 3);
  small.fill(2.0);
  large.fill(8.0);
  const List small_list = make_list(context, small), large_list = make_list(context, large);
  for (const bool large_first : {false, true}) {
    ASSERT_GSC_OK(gsc_scaler_check(scaler, (large_first ? large_list : small_list), nullptr));
    ASSERT_GSC_OK(gsc_scaler_check(scaler, (large_first ? small_list : large_list), nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    EXPECT_EQ(report_of(scaler).grad_amax, 8.0);
  }
}

TEST(Report, WithoutWaitingSaysTheSame) {
  Policy policy(scaler_options(8.0f, 2));
  policy.run("..x.");
  const gsc_report waited = policy.report();
  gsc_report copied;
  std::memset(&copied, 0x5a, sizeof copied);
  copied.struct_size = sizeof copied;
  ASSERT_GSC_OK(gsc_scaler_read_report_async(policy, nullptr, &copied, nullptr));
  EXPECT_EQ(std::memcmp(&waited, &copied, sizeof waited), 0);
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
  std::vector<gsc_history_entry> entries(static_cast<size_t>(capacity));
  int64_t count = -1;
  EXPECT_GSC_OK(gsc_scaler_get_history_sync(policy, entries.data(), capacity, &count, nullptr));
  EXPECT_LE(count, capacity);
  entries.resize(static_cast<size_t>(std::max<int64_t>(count, 0)));
  return entries;
}

int64_t history_count(const Policy &policy) {
  int64_t count = -1;
  EXPECT_GSC_OK(gsc_scaler_get_history_sync(policy, nullptr, 0, &count, nullptr));
  return count;
}

TEST(History, KeepsEveryUpdateInOrder) {
  Policy policy(scaler_options(8.0f, 2));
  EXPECT_EQ(history_count(policy), 0);
  EXPECT_TRUE(history_of(policy, 10).empty());
  policy.run("..x.");
  EXPECT_EQ(history_count(policy), 4);
  const std::vector<gsc_history_entry> entries = history_of(policy, 10);
  ASSERT_EQ(entries.size(), 4u);
  const float scales[] = {8.0f, 16.0f, 8.0f, 8.0f};
  const float before[] = {8.0f, 8.0f, 16.0f, 8.0f};
  for (int64_t i = 0; i < 4; ++i) {
    const gsc_history_entry &entry = entries[i];
    EXPECT_EQ(entry.update, i);
    EXPECT_EQ(entry.scale, scales[i]);
    EXPECT_EQ(entry.overflow, i == 2 ? 1 : 0);
    EXPECT_EQ(entry.nonfinite_count, i == 2 ? 1 : 0);
    if (i != 2) {
      EXPECT_EQ(entry.grad_norm, 1.0 / static_cast<double>(before[i]));
    } else {
      EXPECT_EQ(entry.grad_norm, kInf);
    }
  }
  const std::vector<gsc_history_entry> newest = history_of(policy, 2);
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].update, 2) << "the newest, oldest first";
  EXPECT_EQ(newest[1].update, 3);
}

TEST(History, WrapsAround) {
  for (const int32_t capacity : {1, 3, 8}) {
    gsc_scaler_options options = scaler_options(1.0f, 1);
    options.history_capacity = capacity;
    Policy policy(options);
    for (int64_t updates = 1; updates <= 20; ++updates) {
      policy.update(false);
      EXPECT_EQ(history_count(policy), std::min<int64_t>(updates, capacity));
      const std::vector<gsc_history_entry> entries = history_of(policy, 30);
      ASSERT_EQ(static_cast<int64_t>(entries.size()), std::min<int64_t>(updates, capacity));
      for (size_t i = 0; i < entries.size(); ++i) {
        const int64_t update = updates - static_cast<int64_t>(entries.size() - i);
        EXPECT_EQ(entries[i].update, update);
        EXPECT_EQ(entries[i].scale, std::ldexp(1.0f, static_cast<int>(update) + 1));
      }
    }
  }
}

TEST(History, KeepsSixteenUpdatesByDefault) {
  Policy policy(scaler_options(1.0f, 1));
  for (int i = 0; i < 40; ++i) policy.update(false);
  const std::vector<gsc_history_entry> entries = history_of(policy, 100);
  ASSERT_EQ(entries.size(), 16u);
  EXPECT_EQ(entries.front().update, 24);
  EXPECT_EQ(entries.back().update, 39);
}

TEST(History, CanBeTurnedOff) {
  gsc_scaler_options options = scaler_options(1.0f, 1);
  options.history_capacity = 0;
  Policy policy(options);
  policy.run("....");
  EXPECT_EQ(history_count(policy), 0);
  EXPECT_EQ(policy.report().updates, 4);
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
  EXPECT_EQ(*words.inv_scale, static_cast<float>(1.0 / 3.0));
  EXPECT_EQ(*words.hysteresis_tracker, 1);
  policy.run(".");
  EXPECT_EQ(*words.growth_tracker, 1);
  policy.run(".");
  EXPECT_EQ(*words.scale, 6.0f);
  EXPECT_EQ(*words.inv_scale, static_cast<float>(1.0 / 6.0));
  ASSERT_GSC_OK(gsc_scaler_set_scale(policy, 7.0f, nullptr));
  EXPECT_EQ(*words.scale, 7.0f);
  EXPECT_EQ(*words.inv_scale, static_cast<float>(1.0 / 7.0));
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

/// Saving and restoring in the middle must not be seen in what follows, whatever the policy.
TEST(ScalerState, ContinuesWhereItWasSaved) {
  std::vector<gsc_scaler_options> all;
  for (int32_t preset = GSC_PRESET_TORCH; preset <= GSC_PRESET_COLOSSALAI; ++preset) {
    gsc_scaler_options options = preset_options(preset);
    options.init_scale = 1024.0f;
    options.growth_interval = 3;
    all.push_back(options);
  }
  gsc_scaler_options tolerant = scaler_options(1024.0f, 3);
  tolerant.overflow_tolerance = 0.4;
  tolerant.hysteresis = 2;
  tolerant.min_scale = 1.0f;
  tolerant.floor_action = GSC_FLOOR_REPORT;
  tolerant.floor_patience = 4;
  all.push_back(tolerant);
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    Random random(111 + i);
    std::string pattern;
    for (int update = 0; update < 60; ++update) pattern += random.below(3) == 0 ? 'x' : '.';
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{17}, size_t{30}, size_t{59}}) {
      Policy whole(all[i]), before(all[i]), after(all[i]);
      const std::string expected = whole.run(pattern);
      std::string got = before.run(pattern.substr(0, cut));
      const gsc_scaler_state state = state_of(before.scaler());
      after.run("x..xx");
      ASSERT_GSC_OK(gsc_scaler_set_state(after, &state, nullptr));
      const std::string rest = after.run(pattern.substr(cut));
      got = text(got, got.empty() || rest.empty() ? "" : " ", rest);
      EXPECT_EQ(got, expected) << "cut at " << cut;
      const gsc_scaler_state a = state_of(whole.scaler()), b = state_of(after.scaler());
      EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
    }
  }
}

/// A run that is stopped and resumed while it skips at the floor is reported as early as one that was not.
TEST(ScalerState, ContinuesCountingSkipsAtTheFloor) {
  gsc_scaler_options options = scaler_options(2.0f, 100);
  options.min_scale = 1.0f;
  options.floor_action = GSC_FLOOR_REPORT;
  options.floor_patience = 3;
  for (size_t cut = 0; cut <= 5; ++cut) {
    Policy before(options), after(options);
    before.run(std::string(cut, 'x'));
    const gsc_scaler_state state = state_of(before.scaler());
    ASSERT_GSC_OK(gsc_scaler_set_state(after, &state, nullptr));
    for (size_t update = cut; update < 5; ++update) {
      before.update(true);
      after.update(true);
      EXPECT_EQ(after.report().flags & GSC_REPORT_AT_FLOOR, before.report().flags & GSC_REPORT_AT_FLOOR)
          << "saved after " << cut << " updates, now after " << update + 1;
    }
  }
}

TEST(ScalerState, RestoresEveryCounter) {
  gsc_scaler_options options = scaler_options(64.0f, 100);
  options.hysteresis = 3;
  Policy policy(options);
  policy.run("..x.xx");
  const gsc_scaler_state state = state_of(policy.scaler());
  EXPECT_EQ(state.scale, 32.0f);
  EXPECT_EQ(state.growth_interval, 100);
  EXPECT_EQ(state.consecutive_skips, 2);
  EXPECT_EQ(state.updates, 6);
  EXPECT_EQ(state.skipped, 3);
  Policy other(options);
  ASSERT_GSC_OK(gsc_scaler_set_state(other, &state, nullptr));
  const gsc_report report = other.report();
  EXPECT_EQ(report.scale, 32.0f);
  EXPECT_EQ(report.updates, 6);
  EXPECT_EQ(report.skipped, 3);
  EXPECT_EQ(report.consecutive_skips, 2);
}

/// A checkpoint may hold any count that is not negative.
TEST(ScalerState, CountersStopAtTheirLargest) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  gsc_scaler_options options = scaler_options(8.0f, kMost);
  options.min_scale = 8.0f;
  Policy policy(options);
  gsc_scaler_state state = state_of(policy.scaler());
  state.growth_tracker = state.overflows_since_rescale = state.updates_since_rescale = kMost;
  state.consecutive_skips = state.skips_at_floor = kMost;
  state.updates = state.skipped = std::numeric_limits<int64_t>::max();
  ASSERT_GSC_OK(gsc_scaler_set_state(policy, &state, nullptr));
  policy.update(true);
  gsc_scaler_state now = state_of(policy.scaler());
  EXPECT_EQ(now.consecutive_skips, kMost);
  EXPECT_EQ(now.skips_at_floor, kMost);
  EXPECT_EQ(now.updates, state.updates);
  EXPECT_EQ(now.skipped, state.skipped);
  ASSERT_GSC_OK(gsc_scaler_set_state(policy, &state, nullptr));
  policy.update(false);
  EXPECT_EQ(policy.scale(), 16.0f) << "the tracker has reached the interval";
}

TEST(ScalerState, RestoringReturnsListsToReady) {
  Policy policy(scaler_options(8.0f, 2));
  const gsc_scaler_state state = state_of(policy.scaler());
  ASSERT_GSC_OK(gsc_scaler_check(policy, policy.list(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_set_state(policy, &state, nullptr));
  EXPECT_BAD_STATE(gsc_scaler_update(policy, nullptr), "update");
  EXPECT_GSC_OK(gsc_scaler_check(policy, policy.list(), nullptr));
}

/// The ring is not part of the state: a restored scaler has no history of updates that it did not make.
TEST(ScalerState, HistoryBeginsAfterARestore) {
  const Context context = make_context();
  gsc_scaler_options options = scaler_options(4.0f);
  options.history_capacity = 4;
  const Scaler first = make_scaler(context, options), second = make_scaler(context, options);
  Buffer grads(GSC_FP32, 3);
  const List list = make_list(context, grads);
  const auto update = [&](const Scaler &scaler) {
    EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  };
  for (int i = 0; i < 3; ++i) update(first);
  const gsc_scaler_state state = state_of(first);
  ASSERT_GSC_OK(gsc_scaler_set_state(second, &state, nullptr));
  gsc_history_entry entries[4] = {};
  int64_t count = -1;
  ASSERT_GSC_OK(gsc_scaler_get_history_sync(second, entries, 4, &count, nullptr));
  EXPECT_EQ(count, 0);
  update(second);
  ASSERT_GSC_OK(gsc_scaler_get_history_sync(second, entries, 4, &count, nullptr));
  EXPECT_EQ(count, 1);
  EXPECT_EQ(entries[0].update, 3);
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
