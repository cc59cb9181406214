// SPDX-License-Identifier: Apache-2.0
//
// Bad input to the scaler: null and foreign objects, values that are not numbers, and states that are truncated or of
// another kind. Options are in option_limits_test.cpp, wrong order of calls in stages_test.cpp.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

const float kInfF = std::numeric_limits<float>::infinity();
const float kNanF = std::numeric_limits<float>::quiet_NaN();
class BadInputScaler : public OnCpu {};

TEST_F(BadInputScaler, MessagesOfLimitsNameBothNumbers) {
  const auto refused = [&](float init, float least, float most, const char *words) {
    gsc_scaler_options options = GSC_SCALER_OPTIONS_INIT;
    options.init_scale = init;
    options.min_scale = least;
    options.max_scale = most;
    gsc_scaler *scaler = nullptr;
    EXPECT_INVALID(gsc_scaler_create(context, &options, &scaler), words);
  };
  refused(4.0F, 8.0F, 4.0F, "min_scale is 8, above options.max_scale, which is 4");
  refused(0.25F, 0.75F, 0.5F, "min_scale is 0.75, above options.max_scale, which is 0.5");
  refused(2.0F, 8.0F, 0.0F, "init_scale is 2, below options.min_scale, which is 8");
  refused(1.0F, 0.0F, 0.5F, "init_scale is 1, above options.max_scale, which is 0.5");
}

TEST_F(BadInputScaler, WhatASetterRefuses) {
  const Scaler scaler = make_scaler(context, 65536.0f);
  const auto refused = [&](const char *word, void (*change)(gsc_scaler_options &)) {
    gsc_scaler_options options = GSC_SCALER_OPTIONS_INIT;
    change(options);
    EXPECT_INVALID(gsc_scaler_set_options(scaler, &options, nullptr), word);
  };
  // What is fixed when a scaler is made.
  refused("init_scale", [](auto &o) { o.init_scale = 2.0f; });
  refused("enabled", [](auto &o) { o.enabled = 0; });
  refused("history_capacity", [](auto &o) { o.history_capacity = 1; });
  for (const float v : {0.0f, -1.0f, kInfF, kNanF}) {
    EXPECT_INVALID(gsc_scaler_set_scale(scaler, v, nullptr), "scale");
  }
  EXPECT_EQ(scale_of(scaler), 65536.0f);
}

TEST_F(BadInputScaler, NullObjects) {
  const Scaler owner = make_scaler(context, 4.0f);
  gsc_scaler *const s = owner;
  Buffer buffer(GSC_FP32, 4);
  const List list = make_list(context, buffer);
  const gsc_tensor tensor = buffer.tensor();
  gsc_scaler *out_scaler = nullptr;
  float scale = -7.0f;
  int32_t word = -7;
  int64_t count = -7;
  EXPECT_INVALID(gsc_scaler_create(nullptr, nullptr, &out_scaler), "context");
  EXPECT_INVALID(gsc_scaler_create(context, nullptr, nullptr), "out_scaler");
  EXPECT_INVALID(gsc_scaler_scale(nullptr, &tensor, &tensor, 1, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_scale(s, nullptr, &tensor, 1, nullptr), "src");
  EXPECT_INVALID(gsc_scaler_scale(s, &tensor, nullptr, 1, nullptr), "dst");
  EXPECT_INVALID(gsc_scaler_scale(s, &tensor, &tensor, -1, nullptr), "count");
  EXPECT_INVALID(gsc_scaler_unscale(nullptr, list, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_unscale(s, nullptr, nullptr), "grads");
  EXPECT_INVALID(gsc_scaler_check(nullptr, list, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_check(s, nullptr, nullptr), "grads");
  EXPECT_INVALID(gsc_scaler_check_range(nullptr, list, 0, 1, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_check_range(s, nullptr, 0, 1, nullptr), "grads");
  EXPECT_INVALID(gsc_scaler_clip_grad_norm(nullptr, list, 1.0, GSC_NORM_L2, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_clip_grad_norm(s, nullptr, 1.0, GSC_NORM_L2, nullptr), "grads");
  EXPECT_INVALID(gsc_scaler_clip_grad_value(nullptr, list, 1.0, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_clip_grad_value(s, nullptr, 1.0, nullptr), "grads");
  EXPECT_INVALID(gsc_scaler_step(nullptr, nullptr, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_step(s, nullptr, nullptr), "optimizer");
  EXPECT_INVALID(gsc_scaler_should_step_sync(nullptr, list, &word, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_should_step_sync(s, nullptr, &word, nullptr), "grads");
  EXPECT_INVALID(gsc_scaler_should_step_sync(s, list, nullptr, nullptr), "out_apply");
  EXPECT_INVALID(gsc_scaler_update(nullptr, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_step_and_update(nullptr, nullptr, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_step_and_update(s, nullptr, nullptr), "optimizer");
  EXPECT_INVALID(gsc_scaler_discard(nullptr, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_set_scale(nullptr, 1.0f, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_get_scale_sync(nullptr, &scale, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_get_scale_sync(s, nullptr, nullptr), "out_scale");
  EXPECT_INVALID(gsc_scaler_get_options(nullptr, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_get_options(s, nullptr), "out_options");
  EXPECT_INVALID(gsc_scaler_set_options(s, nullptr, nullptr), "options");
  EXPECT_INVALID(gsc_scaler_get_history_sync(nullptr, nullptr, 0, &count, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_get_history_sync(s, nullptr, 3, &count, nullptr), "out_entries");
  EXPECT_INVALID(gsc_scaler_get_history_sync(s, nullptr, -1, &count, nullptr), "capacity");
  EXPECT_INVALID(gsc_scaler_get_history_sync(s, nullptr, 0, nullptr, nullptr), "out_count");
  EXPECT_INVALID(gsc_scaler_set_reducer(nullptr, nullptr), "scaler");
  EXPECT_EQ(out_scaler, nullptr);
  EXPECT_EQ(scale, -7.0f);
  EXPECT_EQ(word, -7);
  EXPECT_EQ(count, -7);
}

/// Their sizes are in tests/abi/struct_size_test.cpp.
TEST_F(BadInputScaler, Structs) {
  const Scaler scaler = make_scaler(context, 4.0f);
  Buffer buffer(GSC_FP32, 4);
  const List list = make_list(context, buffer);
  auto report = with_size<gsc_report>();
  EXPECT_INVALID(gsc_scaler_get_report_sync(scaler, nullptr, nullptr, nullptr), "out_report");
  EXPECT_INVALID(gsc_scaler_read_report_async(scaler, nullptr, nullptr, nullptr), "out_report");
  EXPECT_INVALID(gsc_scaler_get_report_sync(nullptr, nullptr, &report, nullptr), "scaler");
  EXPECT_BAD_STATE(gsc_scaler_get_report_sync(scaler, list, &report, nullptr), "grads");
  EXPECT_INVALID(gsc_scaler_get_device_state(scaler, nullptr, nullptr), "out_state");
  gsc_reducer reducer = {sizeof(gsc_reducer), 0, nullptr, nullptr};
  EXPECT_INVALID(gsc_scaler_set_reducer(scaler, &reducer), "all_reduce");
  reducer.all_reduce = [](void *, double *, int64_t, gsc_stream) -> int32_t { return 0; };
  reducer.flags = 1;
  EXPECT_INVALID(gsc_scaler_set_reducer(scaler, &reducer), "flags");
}

TEST_F(BadInputScaler, TensorPairs) {
  const Scaler scaler = make_scaler(context, 4.0f);
  std::vector<Buffer> src = make_buffers(GSC_FP32, {4, 4, 4}), dst = make_buffers(GSC_FP16, {4, 4, 4});
  for (Buffer &buffer : dst) buffer.fill(7.0);
  const std::vector<gsc_tensor> s = tensors_of(src);
  std::vector<gsc_tensor> d = tensors_of(dst);
  d[2].count = 3;
  EXPECT_INVALID(gsc_scaler_scale(scaler, s.data(), d.data(), 3, nullptr), "dst[2]");
  d = tensors_of(dst);
  d[1].dtype = 0;
  EXPECT_INVALID(gsc_scaler_scale(scaler, s.data(), d.data(), 3, nullptr), "dst[1]");
  std::vector<gsc_tensor> bad = s;
  bad[2].data = nullptr;
  d = tensors_of(dst);
  EXPECT_INVALID(gsc_scaler_scale(scaler, bad.data(), d.data(), 3, nullptr), "src[2]");
  for (const Buffer &buffer : dst) {
    for (const double value : buffer.values()) EXPECT_EQ(value, 7.0) << "outputs of a refused call are untouched";
  }
}

TEST_F(BadInputScaler, ClipArgumentsAndRanges) {
  const Scaler scaler = make_scaler(context, 4.0f);
  std::vector<Buffer> buffers = make_buffers(GSC_FP32, {4, 4, 4});
  const List list = make_list(context, buffers);
  for (const double v : {-1.0, kInf, kNan}) {
    EXPECT_INVALID(gsc_scaler_clip_grad_norm(scaler, list, v, GSC_NORM_L2, nullptr), "max_norm");
  }
  for (const int32_t v : {0, 1, 4, -1}) {
    EXPECT_INVALID(gsc_scaler_clip_grad_norm(scaler, list, 1.0, v, nullptr), "norm_type");
  }
  for (const double v : {-1.0, kNan}) {
    EXPECT_INVALID(gsc_scaler_clip_grad_value(scaler, list, v, nullptr), "clip_value");
  }
  const int64_t ranges[][2] = {{-1, 1}, {0, -1}, {0, 4}, {3, 1}, {4, 0}, {1, INT64_MAX}};
  for (const auto &range : ranges) {
    EXPECT_INVALID(gsc_scaler_check_range(scaler, list, range[0], range[1], nullptr), range[0] < 0 ? "first" : "");
  }
  EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr)) << "refused calls leave the list READY";
}

TEST_F(BadInputScaler, States) {
  const Scaler scaler = make_scaler(context, 8.0f);
  const gsc_scaler_state good = state_of(scaler);
  const auto expect_refused = [&](const char *word, const std::function<void(gsc_scaler_state &)> &spoil) {
    gsc_scaler_state state = good;
    spoil(state);
    EXPECT_INVALID(gsc_scaler_set_state(scaler, &state, nullptr), word);
    EXPECT_TRUE(same_bytes(state_of(scaler), good)) << word;
  };
  expect_refused("format", [](auto &s) { s.format = 0; });
  for (const float v : {-1.0f, -kInfF, kNanF}) {
    expect_refused("scale", [v](auto &s) { s.scale = v; });
  }
  for (const double v : {1.0, kInf, kNan}) {
    expect_refused("growth_factor", [v](auto &s) { s.growth_factor = v; });
  }
  for (const double v : {0.0, 1.0, kNan}) {
    expect_refused("backoff_factor", [v](auto &s) { s.backoff_factor = v; });
  }
  expect_refused("growth_interval", [](auto &s) { s.growth_interval = 0; });
#define GSC_NEGATIVE(field) expect_refused(#field, [](auto &s) { s.field = -1; })
  GSC_NEGATIVE(growth_tracker);
  GSC_NEGATIVE(overflows_since_rescale);
  GSC_NEGATIVE(updates_since_rescale);
  GSC_NEGATIVE(consecutive_skips);
  GSC_NEGATIVE(updates);
  GSC_NEGATIVE(skipped);
  expect_refused("skipped", [](auto &s) { s.skipped = s.updates + 1; });
  // A policy without a floor or a guard can get to 0 and inf, so a checkpoint may hold them.
  for (const float v : {0.0f, kInfF}) {
    gsc_scaler_state state = good;
    state.scale = v;
    EXPECT_GSC_OK(gsc_scaler_set_state(scaler, &state, nullptr));
    EXPECT_EQ(scale_of(scaler), v);
  }
  EXPECT_INVALID(gsc_scaler_set_state(scaler, nullptr, nullptr), "state");
  EXPECT_INVALID(gsc_scaler_set_state(nullptr, &good, nullptr), "scaler");
  EXPECT_INVALID(gsc_scaler_get_state_sync(scaler, nullptr, nullptr), "out_state");
}

}  // namespace
}  // namespace gsc_test
