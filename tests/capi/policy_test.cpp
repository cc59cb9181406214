// SPDX-License-Identifier: Apache-2.0
//
// The policy options one by one, each as a short sequence whose scales are written out by hand. Whole systems are in
// presets_test.cpp.
#include "policy_harness.h"

namespace gsc_test {
namespace {

gsc_scaler_options options(float scale, int32_t interval) { return scaler_options(scale, interval); }

TEST(PolicyDefault, GrowsAndBacksOff) {
  Policy policy(options(8.0f, 2));
  EXPECT_EQ(policy.run("....x.x..xx..."), "8 16 16 32 16 16 8 8 16 8 4 4 8 8");
  const gsc_report report = policy.report();
  EXPECT_EQ(report.updates, 14);
  EXPECT_EQ(report.skipped, 4);
  EXPECT_EQ(report.growth_tracker, 1);
  EXPECT_EQ(report.consecutive_skips, 0);
}

TEST(PolicyDefault, FactorsAreAppliedInDouble) {
  gsc_scaler_options o = options(1000.0f, 1);
  o.growth_factor = 1.1;
  o.backoff_factor = 0.7;
  Policy policy(o);
  float expected = 1000.0f;
  for (int i = 0; i < 50; ++i) {
    const bool overflow = i % 3 == 2;
    policy.update(overflow);
    expected = static_cast<float>(static_cast<double>(expected) * (overflow ? 0.7 : 1.1));
    ASSERT_EQ(policy.scale(), expected) << i;
  }
}

TEST(PolicyDefault, StaysFinite) {
  gsc_scaler_options o = options(1e38f, 1);
  o.growth_factor = 16.0;
  Policy policy(o);
  EXPECT_EQ(policy.run(".."), "9.99999968e+37 9.99999968e+37");
  EXPECT_EQ(policy.report().growth_tracker, 0);
}

TEST(PolicyDefault, WithoutAFloorTheScaleFalls) {
  Policy policy(options(4.0f, 1000));
  EXPECT_EQ(policy.run("xxxx"), "2 1 0.5 0.25");
}

TEST(PolicyFlags, NoFiniteGuardStoresInf) {
  gsc_scaler_options o = options(1e38f, 1);
  o.growth_factor = 16.0;
  o.flags = GSC_SCALER_NO_FINITE_GUARD;
  Policy policy(o);
  policy.update(false);
  EXPECT_EQ(policy.scale(), std::numeric_limits<float>::infinity());
}

TEST(PolicyFlags, GrowOnEqualAgainstGrowAtLeast) {
  for (const bool on_equal : {false, true}) {
    gsc_scaler_options o = options(8.0f, 5);
    o.flags = on_equal ? GSC_SCALER_GROW_ON_EQUAL : 0;
    Policy policy(o);
    EXPECT_EQ(policy.run("..."), "8 8 8");
    o.growth_interval = 2;
    ASSERT_GSC_OK(gsc_scaler_set_options(policy.get(), &o, nullptr));
    // PyTorch's exact rule never meets the lowered interval again.
    EXPECT_EQ(policy.run("...."), on_equal ? "8 8 8 8" : "16 16 32 32");
  }
}

TEST(PolicyFlags, FloorExclusiveKeepsTheOldScale) {
  gsc_scaler_options o = options(8.0f, 1000);
  o.min_scale = 2.0f;
  o.flags = GSC_SCALER_FLOOR_EXCLUSIVE;
  o.floor_action = GSC_FLOOR_REPORT;
  Policy policy(o);
  EXPECT_EQ(policy.run("x"), "4");
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, 0u);
  EXPECT_EQ(policy.run("xx"), "4 4");
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, static_cast<uint32_t>(GSC_REPORT_AT_FLOOR));
}

TEST(PolicyLimits, MinScale) {
  gsc_scaler_options o = options(8.0f, 2);
  o.min_scale = 3.0f;
  Policy policy(o);
  EXPECT_EQ(policy.run("xxx..x"), "4 3 3 3 6 3");
}

TEST(PolicyLimits, MaxScale) {
  gsc_scaler_options o = options(8.0f, 1);
  o.max_scale = 20.0f;
  Policy policy(o);
  EXPECT_EQ(policy.run("...x."), "16 20 20 10 20");
}

TEST(PolicyLimits, MaxScaleAtTheLargestFloat) {
  gsc_scaler_options o = options(std::ldexp(1.0f, 126), 1);
  o.max_scale = std::numeric_limits<float>::max();
  Policy policy(o);
  policy.run("...");
  EXPECT_EQ(policy.scale(), std::numeric_limits<float>::max());
}

TEST(PolicyHysteresis, RefilledByGrowth) {
  gsc_scaler_options o = options(64.0f, 2);
  o.hysteresis = 2;
  Policy policy(o);
  // One overflow is forgiven until the next growth, clean steps in between or not.
  EXPECT_EQ(policy.run("x.xx..x.xx"), "64 64 32 16 16 32 32 32 16 8");
}

TEST(PolicyHysteresis, RefilledByACleanStep) {
  gsc_scaler_options o = options(64.0f, 100);
  o.hysteresis = 2;
  o.hysteresis_refill = GSC_REFILL_ON_CLEAN_STEP;
  Policy policy(o);
  EXPECT_EQ(policy.run("x.x.xxxx.x"), "64 64 64 64 64 32 16 8 8 8");
}

TEST(PolicyHysteresis, EveryNthConsecutive) {
  gsc_scaler_options o = options(64.0f, 100);
  o.hysteresis = 2;
  o.hysteresis_refill = GSC_REFILL_CONSECUTIVE;
  Policy policy(o);
  EXPECT_EQ(policy.run("x.xxxx.xxx"), "64 64 64 32 32 16 16 16 8 8");
}

TEST(PolicyHysteresis, CountsDownInTheReportAndResetsGrowth) {
  gsc_scaler_options o = options(64.0f, 3);
  o.hysteresis = 3;
  Policy policy(o);
  EXPECT_EQ(policy.report().hysteresis_tracker, 3);
  policy.run("..");
  EXPECT_EQ(policy.report().growth_tracker, 2);
  policy.run("x");
  EXPECT_EQ(policy.report().hysteresis_tracker, 2);
  EXPECT_EQ(policy.report().growth_tracker, 0) << "a forgiven overflow still ends the clean run";
  policy.run("x");
  EXPECT_EQ(policy.report().hysteresis_tracker, 1);
  EXPECT_EQ(policy.run("x..."), "32 32 32 64");
  EXPECT_EQ(policy.report().hysteresis_tracker, 3);
}

TEST(PolicyHysteresis, LoweredLaterLowersTheTracker) {
  gsc_scaler_options o = options(64.0f, 100);
  o.hysteresis = 5;
  Policy policy(o);
  o.hysteresis = 1;
  ASSERT_GSC_OK(gsc_scaler_set_options(policy.get(), &o, nullptr));
  EXPECT_EQ(policy.report().hysteresis_tracker, 1);
  EXPECT_EQ(policy.run("x"), "32");
}

TEST(PolicyGrowthTiming, AllThree) {
  const auto run = [](int32_t timing) {
    gsc_scaler_options o = options(1.0f, 2);
    o.growth_timing = timing;
    return Policy(o).run("........x....");
  };
  EXPECT_EQ(run(GSC_GROWTH_AT_INTERVAL), "1 2 2 4 4 8 8 16 8 8 16 16 32");
  EXPECT_EQ(run(GSC_GROWTH_ONE_LATER), "1 1 2 2 2 4 4 4 2 2 2 4 4");
  EXPECT_EQ(run(GSC_GROWTH_FIRST_ONE_LATER), "1 1 2 2 4 4 8 8 4 4 4 8 8");
}

TEST(PolicyGrowthTiming, IntervalOne) {
  const auto run = [](int32_t timing) {
    gsc_scaler_options o = options(1.0f, 1);
    o.growth_timing = timing;
    return Policy(o).run("....x...");
  };
  EXPECT_EQ(run(GSC_GROWTH_AT_INTERVAL), "2 4 8 16 8 16 32 64");
  EXPECT_EQ(run(GSC_GROWTH_ONE_LATER), "1 2 2 4 2 2 4 4");
  EXPECT_EQ(run(GSC_GROWTH_FIRST_ONE_LATER), "1 2 4 8 4 4 8 16");
}

TEST(PolicyTolerance, BacksOffOnlyAboveTheRate) {
  gsc_scaler_options o = options(64.0f, 1000);
  o.overflow_tolerance = 0.5;
  Policy policy(o);
  // 1/1; then 1/2 since that rescale; then 1/3 and 2/4.
  EXPECT_EQ(policy.run("x.x..xx"), "32 32 16 16 16 16 8");
}

TEST(PolicyRecovery, ShorterIntervalBelowTheThreshold) {
  gsc_scaler_options o = options(16.0f, 4);
  o.recovery_threshold = 8.0f;
  o.recovery_interval = 1;
  Policy policy(o);
  EXPECT_EQ(policy.run("xxx"), "8 4 2");
  EXPECT_EQ(policy.run("......"), "4 8 8 8 8 16");
}

TEST(PolicyRecovery, HoldsItsInterval) {
  gsc_scaler_options o = options(8.0f, 5);
  o.recovery_threshold = 8.0f;
  o.recovery_interval = 3;
  Policy policy(o);
  EXPECT_EQ(policy.run("x...."), "4 4 4 8 8");
  EXPECT_EQ(policy.run("...."), "8 8 8 16");
}

TEST(PolicyCeiling, AScaleSetAboveItFallsAtTheNextGrowth) {
  gsc_scaler_options o = options(4.0f, 2);
  o.max_scale = 16.0f;
  for (const float above : {17.0f, 64.0f, std::numeric_limits<float>::max()}) {
    Policy policy(o);
    ASSERT_GSC_OK(gsc_scaler_set_scale(policy.get(), above, nullptr));
    policy.run(".");
    EXPECT_EQ(policy.scale(), above);
    EXPECT_EQ(policy.run("..."), "16 16 16");
  }
}

TEST(PolicyFloor, ClampSaysNothing) {
  gsc_scaler_options o = options(1.0f, 1000);
  o.min_scale = 1.0f;
  Policy policy(o);
  policy.run("xxx");
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, 0u);
}

struct Log {
  int warnings = 0;
  std::string last;
};
void count_warnings(void *user, int32_t level, const char *message) {
  Log *log = static_cast<Log *>(user);
  if (level == GSC_LOG_WARNING) {
    ++log->warnings;
    log->last = message;
  }
}

TEST(PolicyFloor, ReportAfterItsPatience) {
  gsc_scaler_options o = options(1.0f, 1000);
  o.min_scale = 1.0f;
  o.floor_action = GSC_FLOOR_REPORT;
  o.floor_patience = 3;
  Policy policy(o);
  Log log;
  ASSERT_GSC_OK(gsc_context_set_log(policy.context().get(), count_warnings, &log));
  policy.run("xx");
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, 0u);
  EXPECT_EQ(log.warnings, 0);
  policy.run("x");
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, static_cast<uint32_t>(GSC_REPORT_AT_FLOOR));
  EXPECT_GE(log.warnings, 1);
  EXPECT_NE(log.last, "");
  policy.run(".");
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, 0u) << "a clean step ends it";
  policy.run("x.x.x");
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, 0u) << "the skips must be consecutive";
}

TEST(PolicyFloor, ErrorFillsTheReport) {
  gsc_scaler_options o = options(2.0f, 1000);
  o.min_scale = 1.0f;
  o.floor_action = GSC_FLOOR_ERROR;
  Policy policy(o);
  policy.run("x");
  EXPECT_EQ(policy.report().scale, 1.0f);
  policy.run("x");
  gsc_report report;
  std::memset(&report, 0, sizeof report);
  report.struct_size = sizeof report;
  EXPECT_GSC_ERROR(gsc_scaler_get_report_sync(policy.get(), nullptr, &report, nullptr), GSC_ERROR_SCALE_FLOOR, "scale");
  EXPECT_EQ(report.scale, 1.0f);
  EXPECT_EQ(report.skipped, 2);
  EXPECT_EQ(report.flags & GSC_REPORT_AT_FLOOR, static_cast<uint32_t>(GSC_REPORT_AT_FLOOR));
  std::memset(&report, 0, sizeof report);
  report.struct_size = sizeof report;
  EXPECT_GSC_OK(gsc_scaler_read_report_async(policy.get(), nullptr, &report, nullptr)) << "never SCALE_FLOOR";
  EXPECT_EQ(report.skipped, 2);
  policy.run(".");
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, 0u);
}

/// A scale that an overflow has brought to 0 cannot be lowered: that is the floor where none was set.
TEST(PolicyFloor, IsZeroWithoutAnother) {
  const Context context = make_context();
  Buffer grads(GSC_FP32, 4);
  const List list = make_list(context, grads);
  gsc_scaler_options options = scaler_options(4.0f);
  options.floor_action = GSC_FLOOR_REPORT;
  options.floor_patience = 2;
  const Scaler scaler = make_scaler(context, options);
  ASSERT_GSC_OK(gsc_scaler_set_scale(scaler.get(), 1e-44f, nullptr));
  grads.fill(kInf);
  int64_t updates_at_zero = 0;
  for (int i = 0; i < 8; ++i) {
    ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
    updates_at_zero += scale_of(scaler) == 0.0f ? 1 : 0;
    gsc_report report{};
    report.struct_size = sizeof report;
    ASSERT_GSC_OK(gsc_scaler_get_report_sync(scaler.get(), nullptr, &report, nullptr));
    EXPECT_EQ((report.flags & GSC_REPORT_AT_FLOOR) != 0, updates_at_zero >= 2) << i;
    EXPECT_EQ(state_of(scaler).skips_at_floor, updates_at_zero) << i;
  }
  EXPECT_GE(updates_at_zero, 3);
}

/// So are scales whose product rounds to themselves: inf, and subnormals next to 0.
TEST(PolicyFloor, IsWhereTheScaleCannotMove) {
  const Context context = make_context();
  Buffer grads(GSC_FP32, 4);
  const List list = make_list(context, grads);
  grads.fill(kInf);
  for (const float stuck : {4 * 0x1p-149f, static_cast<float>(kInf)}) {
    for (const float min_scale : {0.0f, 0x1p-149f}) {
      gsc_scaler_options options = scaler_options(4.0f);
      options.min_scale = min_scale;
      options.backoff_factor = 0.9;
      options.floor_action = GSC_FLOOR_ERROR;
      const Scaler scaler = make_scaler(context, options);
      gsc_scaler_state state = state_of(scaler);
      state.scale = stuck;
      ASSERT_GSC_OK(gsc_scaler_set_state(scaler.get(), &state, nullptr));
      ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
      ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
      EXPECT_EQ(scale_of(scaler), stuck);
      gsc_report report{};
      report.struct_size = sizeof report;
      EXPECT_GSC_ERROR(gsc_scaler_get_report_sync(scaler.get(), nullptr, &report, nullptr), GSC_ERROR_SCALE_FLOOR);
    }
  }
}

TEST(PolicyFloor, ANewScaleEndsIt) {
  gsc_scaler_options o = options(1.0f, 1000);
  o.min_scale = 1.0f;
  o.floor_action = GSC_FLOOR_ERROR;
  Policy policy(o);
  policy.update(true);
  ASSERT_GSC_OK(gsc_scaler_set_scale(policy.get(), 4.0f, nullptr));
  EXPECT_EQ(policy.report().flags & GSC_REPORT_AT_FLOOR, 0u) << "4 can be lowered";
}

TEST(PolicySetters, OptionsTakeEffectAtTheNextUpdate) {
  gsc_scaler_options o = options(8.0f, 100);
  Policy policy(o);
  o.growth_factor = 4.0;
  o.backoff_factor = 0.125;
  o.growth_interval = 2;
  ASSERT_GSC_OK(gsc_scaler_set_options(policy.get(), &o, nullptr));
  EXPECT_EQ(policy.run("..x"), "8 32 4");
  gsc_scaler_options now = GSC_SCALER_OPTIONS_INIT;
  ASSERT_GSC_OK(gsc_scaler_get_options(policy.get(), &now));
  EXPECT_EQ(now.growth_factor, 4.0);
  EXPECT_EQ(now.backoff_factor, 0.125);
  EXPECT_EQ(now.growth_interval, 2);
  EXPECT_EQ(now.init_scale, 8.0f) << "the one given at creation";
}

TEST(PolicySetters, SetScaleIgnoresTheLimits) {
  gsc_scaler_options o = options(8.0f, 2);
  o.min_scale = 4.0f;
  o.max_scale = 16.0f;
  Policy policy(o);
  policy.run(".");
  ASSERT_GSC_OK(gsc_scaler_set_scale(policy.get(), 1024.0f, nullptr));
  EXPECT_EQ(policy.scale(), 1024.0f);
  EXPECT_EQ(policy.report().growth_tracker, 1);
  EXPECT_EQ(policy.run("x"), "512");
}

}  // namespace
}  // namespace gsc_test
