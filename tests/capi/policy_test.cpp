// SPDX-License-Identifier: Apache-2.0
//
// The policy options one by one, each as a short sequence whose scales are written out by hand, the floor, and the numbers
// of the presets. Whole systems are in tests/conformance; any options, setters and trackers in tests/oracle.
#include <cfloat>

#include "policy_harness.h"

namespace gsc_test {
namespace {

/// Scales after each update, '.' a clean one and 'x' an overflow.
struct Row {
  const char *what;
  float scale;
  int32_t interval;
  void (*change)(gsc_scaler_options &);
  const char *pattern, *scales;
};

const Row kRows[] = {
    {"default", 8, 2, [](auto &) {}, "....x.x..xx...", "8 16 16 32 16 16 8 8 16 8 4 4 8 8"},
    {"no floor", 4, 1000, [](auto &) {}, "xxxx", "2 1 0.5 0.25"},
    {"min_scale", 8, 2, [](auto &o) { o.min_scale = 3; }, "xxx..x", "4 3 3 3 6 3"},
    {"max_scale", 8, 1, [](auto &o) { o.max_scale = 20; }, "...x.", "16 20 20 10 20"},
    {"max_scale, the largest float", 0x1p126F, 1, [](auto &o) { o.max_scale = FLT_MAX; }, "...",
     "1.70141183e+38 3.40282347e+38 3.40282347e+38"},
    // One overflow is forgiven until the next growth, clean steps in between or not.
    {"hysteresis refilled by growth", 64, 2, [](auto &o) { o.hysteresis = 2; }, "x.xx..x.xx",
     "64 64 32 16 16 32 32 32 16 8"},
    {"hysteresis refilled by a clean step", 64, 100,
     [](auto &o) { o.hysteresis = 2, o.hysteresis_refill = GSC_REFILL_ON_CLEAN_STEP; }, "x.x.xxxx.x",
     "64 64 64 64 64 32 16 8 8 8"},
    {"every second overflow in a row", 64, 100,
     [](auto &o) { o.hysteresis = 2, o.hysteresis_refill = GSC_REFILL_CONSECUTIVE; }, "x.xxxx.xxx",
     "64 64 64 32 32 16 16 16 8 8"},
    {"growth at the interval", 1, 2, [](auto &) {}, "........x....", "1 2 2 4 4 8 8 16 8 8 16 16 32"},
    {"growth one later", 1, 2, [](auto &o) { o.growth_timing = GSC_GROWTH_ONE_LATER; }, "........x....",
     "1 1 2 2 2 4 4 4 2 2 2 4 4"},
    {"first growth one later", 1, 2, [](auto &o) { o.growth_timing = GSC_GROWTH_FIRST_ONE_LATER; }, "........x....",
     "1 1 2 2 4 4 8 8 4 4 4 8 8"},
    {"growth at an interval of 1", 1, 1, [](auto &) {}, "....x...", "2 4 8 16 8 16 32 64"},
    {"growth one later, interval 1", 1, 1, [](auto &o) { o.growth_timing = GSC_GROWTH_ONE_LATER; }, "....x...",
     "1 2 2 4 2 2 4 4"},
    {"first growth one later, interval 1", 1, 1, [](auto &o) { o.growth_timing = GSC_GROWTH_FIRST_ONE_LATER; },
     "....x...", "1 2 4 8 4 4 8 16"},
    // 1/1; then 1/2 since that rescale; then 1/3 and 2/4.
    {"tolerance", 64, 1000, [](auto &o) { o.overflow_tolerance = 0.5; }, "x.x..xx", "32 32 16 16 16 16 8"},
    {"recovery", 16, 4, [](auto &o) { o.recovery_threshold = 8, o.recovery_interval = 1; }, "xxx......",
     "8 4 2 4 8 8 8 8 16"},
    {"recovery at the threshold", 8, 5, [](auto &o) { o.recovery_threshold = 8, o.recovery_interval = 3; }, "x........",
     "4 4 4 8 8 8 8 8 16"},
    {"exclusive floor", 4, 1000, [](auto &o) { o.min_scale = 1, o.flags = GSC_SCALER_FLOOR_EXCLUSIVE; }, "xx.",
     "2 2 2"},
    {"growth beyond fp32", 0x1p126F, 1, [](auto &o) { o.growth_factor = 16; }, "..", "8.50705917e+37 8.50705917e+37"},
    {"growth beyond fp32, unguarded", 0x1p126F, 1,
     [](auto &o) { o.growth_factor = 16, o.flags = GSC_SCALER_NO_FINITE_GUARD; }, ".", "inf"},
};

TEST(Policy, Scales) {
  for (const Row &row : kRows) {
    gsc_scaler_options o = scaler_options(row.scale, row.interval);
    row.change(o);
    EXPECT_EQ(Policy(o).run(row.pattern), row.scales) << row.what;
  }
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
  gsc_scaler_options o = scaler_options(1.0f, 1000);
  o.min_scale = 1.0f;
  o.floor_action = GSC_FLOOR_REPORT;
  o.floor_patience = 3;
  Policy policy(o);
  Log log;
  ASSERT_GSC_OK(gsc_context_set_log(policy.context(), count_warnings, &log));
  policy.run("xx");
  EXPECT_FALSE(policy.at_floor());
  EXPECT_EQ(log.warnings, 0);
  policy.run("x");
  EXPECT_TRUE(policy.at_floor());
  EXPECT_GE(log.warnings, 1);
  EXPECT_NE(log.last, "");
  policy.run(".");
  EXPECT_FALSE(policy.at_floor()) << "a clean step ends it";
  policy.run("x.x.x");
  EXPECT_FALSE(policy.at_floor()) << "the skips must be consecutive";
}

TEST(PolicyFloor, ErrorFillsTheReport) {
  gsc_scaler_options o = scaler_options(2.0f, 1000);
  o.min_scale = 1.0f;
  o.floor_action = GSC_FLOOR_ERROR;
  Policy policy(o);
  policy.run("x");
  EXPECT_EQ(policy.report().scale, 1.0f);
  policy.run("x");
  auto report = with_size<gsc_report>();
  EXPECT_GSC_ERROR(gsc_scaler_get_report_sync(policy, nullptr, &report, nullptr), GSC_ERROR_SCALE_FLOOR, "scale");
  EXPECT_EQ(report.scale, 1.0f);
  EXPECT_EQ(report.skipped, 2);
  EXPECT_NE(report.flags & GSC_REPORT_AT_FLOOR, 0u);
  report = with_size<gsc_report>();
  EXPECT_GSC_OK(gsc_scaler_read_report_async(policy, nullptr, &report, nullptr)) << "never SCALE_FLOOR";
  EXPECT_EQ(report.skipped, 2);
  policy.run(".");
  EXPECT_FALSE(policy.at_floor());
}

/// Of which a clean step ends the row, in the report and in the state.
TEST(PolicySkips, AreCountedInARow) {
  Policy policy(scaler_options(1024.0f));
  const char pattern[] = "x.xx..xxx.x";
  int32_t row = 0, skipped = 0;
  for (const char *at = pattern; *at != '\0'; ++at) {
    policy.update(*at == 'x');
    row = *at == 'x' ? row + 1 : 0;
    skipped += *at == 'x' ? 1 : 0;
    EXPECT_EQ(policy.report().consecutive_skips, row) << at;
    EXPECT_EQ(state_of(policy).consecutive_skips, row) << at;
    EXPECT_EQ(policy.report().skipped, skipped) << at;
  }
}

/// A scale that an overflow has brought to 0 cannot be lowered: that is the floor where none was set.
TEST(PolicyFloor, IsZeroWithoutAnother) {
  gsc_scaler_options options = scaler_options(4.0f);
  options.floor_action = GSC_FLOOR_REPORT;
  options.floor_patience = 2;
  Policy policy(options);
  ASSERT_GSC_OK(gsc_scaler_set_scale(policy, 1e-44f, nullptr));
  int64_t updates_at_zero = 0;
  for (int i = 0; i < 8; ++i) {
    policy.update(true);
    updates_at_zero += policy.scale() == 0.0f ? 1 : 0;
    EXPECT_EQ(policy.at_floor(), updates_at_zero >= 2) << i;
    EXPECT_EQ(state_of(policy).skips_at_floor, updates_at_zero) << i;
  }
  EXPECT_GE(updates_at_zero, 3);
}

bool has_underflowed(gsc_scaler *scaler, const gsc_tensor_list *grads = nullptr) {
  auto report = with_size<gsc_report>();
  EXPECT_GSC_OK(gsc_scaler_read_report_async(scaler, grads, &report, nullptr));
  EXPECT_EQ(report.flags, report_of(scaler, grads).flags);
  return (report.flags & GSC_REPORT_SCALE_UNDERFLOW) != 0;
}

/// A scale that has no inverse in fp32 skips every step. Whatever leads to it (updates, a first scale,
/// gsc_scaler_set_scale, a restored state), the report has the flag while it lasts, and it is logged once each time.
TEST(PolicyUnderflow, IsReportedAndLoggedOnce) {
  const Context context = make_context();
  Log log;
  ASSERT_GSC_OK(gsc_context_set_log(context, count_warnings, &log));
  Buffer grad(GSC_FP32, 1), fine(GSC_FP32, 1);
  const gsc_tensor tensors[] = {fine.tensor(), grad.tensor()};
  const char *const names[] = {"embedding", "head"};
  gsc_tensor_list *made = nullptr;
  ASSERT_GSC_OK(gsc_tensor_list_create(context, tensors, 2, names, &made));
  const List list(made);
  const Scaler scaler = make_scaler(context, 1.0f);
  const auto update = [&] {
    EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  };
  grad.set(0, kNan);
  for (int i = 1; i <= 400; ++i) {
    update();
    const bool is_lost = !(1.0 / double{scale_of(scaler)} <= double{FLT_MAX});
    ASSERT_EQ(is_lost, i >= 128) << "1 / 2^-128 is inf";
    ASSERT_EQ(has_underflowed(scaler), is_lost) << i;
    ASSERT_EQ(has_underflowed(scaler, list), is_lost) << i;
    ASSERT_EQ(log.warnings, is_lost ? 1 : 0) << i;
  }
  EXPECT_NE(log.last.find("too small to divide by"), std::string::npos) << log.last;
  EXPECT_NE(log.last.find("tensor 1 (\"head\")"), std::string::npos) << log.last;
  grad.set(0, 1.0);
  update();
  EXPECT_EQ(report_of(scaler).flags, uint32_t{GSC_REPORT_OVERFLOW | GSC_REPORT_SCALE_UNDERFLOW})
      << "good gradients, too";
  EXPECT_EQ(log.warnings, 1);

  ASSERT_GSC_OK(gsc_scaler_set_scale(scaler, 0x1p-127f, nullptr));
  EXPECT_FALSE(has_underflowed(scaler));
  EXPECT_EQ(log.warnings, 1);
  grad.set(0, kInf);
  for (int i = 0; i < 3; ++i) update();
  EXPECT_TRUE(has_underflowed(scaler));
  EXPECT_EQ(log.warnings, 2) << "and once again after it was mended";

  gsc_scaler_state state = state_of(scaler);
  for (const float lost : {0.0f, 0x1p-128f}) {
    state.scale = 8.0f;
    ASSERT_GSC_OK(gsc_scaler_set_state(scaler, &state, nullptr));
    EXPECT_FALSE(has_underflowed(scaler));
    log.warnings = 0;
    if (lost > 0.0f) {
      ASSERT_GSC_OK(gsc_scaler_set_scale(scaler, lost, nullptr));
      EXPECT_EQ(log.warnings, 1);
    }
    state.scale = lost;
    ASSERT_GSC_OK(gsc_scaler_set_state(scaler, &state, nullptr));
    update();
    EXPECT_TRUE(has_underflowed(scaler));
    EXPECT_EQ(log.warnings, 1) << lost;
  }
  log.warnings = 0;
  EXPECT_TRUE(has_underflowed(make_scaler(context, 1e-40f)));
  EXPECT_EQ(log.warnings, 1);
}

/// Scales that can be divided by, however odd, and no scale at all.
TEST(PolicyUnderflow, IsNoOtherScale) {
  const Context context = make_context();
  Log log;
  ASSERT_GSC_OK(gsc_context_set_log(context, count_warnings, &log));
  for (const float scale : {0x1p-127f, 1.0f, FLT_MAX}) EXPECT_FALSE(has_underflowed(make_scaler(context, scale)));
  gsc_scaler_options options = disabled_options();
  options.init_scale = 1e-40f;
  EXPECT_FALSE(has_underflowed(make_scaler(context, options)));
  const Scaler scaler = make_scaler(context, 1.0f);
  gsc_scaler_state state = state_of(scaler);
  state.scale = INFINITY;
  ASSERT_GSC_OK(gsc_scaler_set_state(scaler, &state, nullptr));
  EXPECT_FALSE(has_underflowed(scaler));
  EXPECT_EQ(log.warnings, 0);
}

/// So are scales whose product rounds to themselves: inf, and subnormals next to 0.
TEST(PolicyFloor, IsWhereTheScaleCannotMove) {
  for (const float stuck : {4 * 0x1p-149f, INFINITY}) {
    for (const float min_scale : {0.0f, 0x1p-149f}) {
      gsc_scaler_options options = scaler_options(4.0f);
      options.min_scale = min_scale;
      options.backoff_factor = 0.9;
      options.floor_action = GSC_FLOOR_ERROR;
      Policy policy(options);
      gsc_scaler_state state = state_of(policy);
      state.scale = stuck;
      ASSERT_GSC_OK(gsc_scaler_set_state(policy, &state, nullptr));
      policy.update(true);
      EXPECT_EQ(policy.scale(), stuck);
      EXPECT_GSC_ERROR(report_status(policy), GSC_ERROR_SCALE_FLOOR);
    }
  }
}

struct Numbers {
  int32_t preset;
  float init_scale;
  double growth, backoff;
  int32_t interval, hysteresis;
  float min_scale, max_scale;
  uint32_t flags = 0;
};
constexpr uint32_t kFp32 = GSC_SCALER_FP32_PRODUCTS, kUnguarded = GSC_SCALER_NO_FINITE_GUARD;

/// How a preset behaves is recorded from its system (tests/conformance): here are numbers alone.
TEST(Presets, Numbers) {
  const Numbers table[] = {
      {GSC_PRESET_TORCH, 65536, 2, .5, 2000, 1, 0, 0},
      {GSC_PRESET_APEX, 65536, 2, .5, 2000, 1, 0, 16777216},
      {GSC_PRESET_MEGATRON, 4294967296.0f, 2, .5, 1000, 2, 1, 0, kUnguarded | kFp32},
      {GSC_PRESET_DEEPSPEED, 65536, 2, .5, 1000, 2, 1, 0, kUnguarded},
      {GSC_PRESET_TENSORFLOW, 32768, 2, .5, 2000, 1, 1, 0},
      {GSC_PRESET_KERAS, 32768, 2, .5, 2000, 1, 0, 0, kUnguarded | kFp32},
      {GSC_PRESET_FLAX, 65536, 2, .5, 2000, 1, FLT_MIN, FLT_MAX, kFp32},
      {GSC_PRESET_JMP, 32768, 2, .5, 2000, 1, 1, 0, kFp32},
      {GSC_PRESET_FAIRSEQ, 32768, 2, .5, 2000, 1, 1e-4f, 0, kUnguarded | GSC_SCALER_FLOOR_EXCLUSIVE},
      {GSC_PRESET_ONEFLOW, 65536, 2, .5, 2000, 1, 1, FLT_MAX},
      {GSC_PRESET_PADDLE, 65536, 2, .5, 2000, 1, 1, 0, kFp32},
      {GSC_PRESET_COLOSSALAI, 65536, 2, .5, 1000, 2, 0, 0, kUnguarded | kFp32},
  };
  for (const Numbers &n : table) {
    SCOPED_TRACE(n.preset);
    const gsc_scaler_options o = preset_options(n.preset);
    EXPECT_EQ(o.struct_size, sizeof o);
    EXPECT_EQ(o.init_scale, n.init_scale);
    EXPECT_EQ(o.growth_factor, n.growth);
    EXPECT_EQ(o.backoff_factor, n.backoff);
    EXPECT_EQ(o.growth_interval, n.interval);
    EXPECT_EQ(o.hysteresis, n.hysteresis);
    EXPECT_EQ(o.min_scale, n.min_scale);
    EXPECT_EQ(o.max_scale, n.max_scale);
    EXPECT_EQ(o.enabled, 1);
    EXPECT_EQ(o.flags, n.flags);
  }
  const gsc_scaler_options torch = preset_options(GSC_PRESET_TORCH);
  const gsc_scaler_options defaults = GSC_SCALER_OPTIONS_INIT;
  EXPECT_EQ(torch.init_scale, defaults.init_scale);
  EXPECT_EQ(torch.growth_interval, defaults.growth_interval);
}

}  // namespace
}  // namespace gsc_test
