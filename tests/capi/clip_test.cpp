// SPDX-License-Identifier: Apache-2.0
//
// Clipping by norm and by value on unscaled gradients, where the result is in the gradients themselves. Clipping that
// is folded into the step is judged in fused_test.cpp against this one.
#include "tests/support/objects.h"
#include "tests/support/oracle.h"

namespace gsc_test {
namespace {

class ClipNorm : public ::testing::TestWithParam<std::tuple<int32_t, int32_t>> {};
INSTANTIATE_TEST_SUITE_P(
    All, ClipNorm, ::testing::Combine(::testing::ValuesIn(kAllDtypes), ::testing::Values(GSC_NORM_L2, GSC_NORM_INF)),
    [](const auto &info) {
      return text(dtype_name(std::get<0>(info.param)), std::get<1>(info.param) == GSC_NORM_L2 ? "_L2" : "_inf");
    });

TEST_P(ClipNorm, ScalesByPyTorchsFactor) {
  const auto [dtype, type] = GetParam();
  const Context context = make_context(2);
  Random random(41);
  const float scale = 64.0f;
  for (const double max_norm : {0.0, 0.01, 1.0, 1e9}) {
    std::vector<Buffer> grads = make_buffers(dtype, {1, 9, 1000, 4099}, 1);
    std::vector<double> unscaled;
    for (Buffer &buffer : grads) {
      buffer.fill_random(random, -60.0, 60.0);
      for (const double value : buffer.values()) unscaled.push_back(round_to(value / scale, dtype));
    }
    const List list = make_list(context, grads);
    const Scaler scaler = make_scaler(context, scale);
    ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, list, max_norm, type, nullptr));
    const Norms norms = ref_norms(unscaled);
    const double factor = ref_clip(max_norm, type == GSC_NORM_L2 ? norms.l2 : norms.inf);
    size_t at = 0;
    for (const Buffer &buffer : grads) {
      ASSERT_TRUE(buffer.guards_intact());
      for (int64_t i = 0; i < buffer.count(); ++i, ++at) {
        const double expected = unscaled[at] * factor;
        // The factor carries the error of the norm; the product is rounded once in fp32 and once to the dtype.
        const double allowed =
            factor == 1.0 ? 0.0 : std::fabs(expected) * 2 * kNormTolerance + 0.51 * ulp(expected, dtype);
        ASSERT_NEAR(buffer.get(i), expected, allowed) << "max_norm " << max_norm << " element " << i;
      }
    }
  }
}

/// The 1e-6 that is added to the norm shows where the norm is as small: 1e-6 / (1e-6 + 1e-6). In place and folded into a step.
TEST(ClipNorm, AddsPyTorchsEpsilonToTheNorm) {
  const Context context = make_context();
  for (const bool unscale_first : {true, false}) {
    std::vector<Buffer> params = make_buffers(GSC_FP32, {4}), grads = make_buffers(GSC_FP32, {4});
    grads[0].set(2, -4e-6);
    const List param_list = make_list(context, params), list = make_list(context, grads);
    const Optimizer optimizer = make_optimizer(context, sgd_options(), param_list, list);
    const Scaler scaler = make_scaler(context, 4.0f);
    if (unscale_first) {
      ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
    }
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, list, 1e-6, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_step(scaler, optimizer, nullptr));
    EXPECT_NEAR(params[0].get(2), 0.5e-6, 1e-12) << (unscale_first ? "unscaled" : "folded");
  }
}

/// Folded into a step, too, gradients are unscaled and then clipped, with a rounding each, and not by one factor.
TEST(ClipNorm, RoundsTwice) {
  const Context context = make_context();
  std::vector<Buffer> params = make_buffers(GSC_FP32, {1000}), grads = make_buffers(GSC_FP32, {1000});
  Random random(11);
  for (int64_t i = 0; i < 1000; ++i) grads[0].set(i, random.uniform(-3.0, 3.0));
  const List param_list = make_list(context, params), list = make_list(context, grads);
  const Optimizer optimizer = make_optimizer(context, sgd_options(), param_list, list);
  const Scaler scaler = make_scaler(context, 3.0f);
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, list, 0.7, GSC_NORM_L2, nullptr));
  ASSERT_GSC_OK(gsc_scaler_step(scaler, optimizer, nullptr));
  const auto inverse = static_cast<float>(1.0 / 3.0);
  const auto clip = static_cast<float>(0.7 / (report_of(scaler, list).grad_norm + 1e-6));
  int told_apart = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const float g = grads[0].as<float>()[i];
    const volatile float unscaled = g * inverse, clipped = unscaled * clip;
    const volatile float factor = inverse * clip, at_once = g * factor;
    EXPECT_EQ(params[0].as<float>()[i], -clipped) << i;
    told_apart += clipped != at_once ? 1 : 0;
  }
  EXPECT_GT(told_apart, 100);
}

TEST(ClipNorm, OfZeroLeavesNothing) {
  const Context context = make_context();
  for (const int32_t enabled : {0, 1}) {
    gsc_scaler_options options = scaler_options(1.0F);
    options.enabled = enabled;
    const Scaler scaler = make_scaler(context, options);
    Buffer params(GSC_FP32, 3), grads(GSC_FP32, 3);
    params.fill(2.0);
    grads.fill(3.0);
    const List p = make_list(context, params), g = make_list(context, grads);
    const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_SGD), p, g);
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, g, 0.0, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
    EXPECT_EQ(params.get(1), 2.0);
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, g, 0.0, GSC_NORM_L2, nullptr));
    int32_t apply = 0;
    ASSERT_GSC_OK(gsc_scaler_should_step_sync(scaler, g, &apply, nullptr));
    EXPECT_EQ(apply, 1);
    EXPECT_EQ(grads.get(1), 0.0);
  }
}

TEST(ClipNorm, DisabledScalerClipsWithScaleOne) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, disabled_options());
  Buffer grads(GSC_FP32, 4);
  grads.fill(2.0);
  const List list = make_list(context, grads);
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, list, 1.0, GSC_NORM_L2, nullptr));
  std::vector<Buffer> params = make_buffers(GSC_FP32, {4});
  const List param_list = make_list(context, params);
  const Optimizer optimizer = make_optimizer(context, sgd_options(), param_list, list);
  ASSERT_GSC_OK(gsc_scaler_step(scaler, optimizer, nullptr));
  for (const double value : params[0].values()) EXPECT_NEAR(value, -0.5, 1e-6);
}

class ClipValue : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, ClipValue, ::testing::ValuesIn(kAllDtypes),
                         [](const auto &info) { return std::string(dtype_name(info.param)); });

TEST_P(ClipValue, ClampsInPlace) {
  const Context context = make_context(2);
  Random random(43);
  for (const double limit : {0.0, 0.25, 1.0, kInf}) {
    std::vector<Buffer> grads = make_buffers(GetParam(), {1, 9, 5000}, 1);
    std::vector<std::vector<double>> before;
    for (Buffer &buffer : grads) {
      buffer.fill_random(random, -8.0, 8.0);
      before.push_back(buffer.values());
    }
    const List list = make_list(context, grads);
    const Scaler scaler = make_scaler(context, 4.0f);
    ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
    ASSERT_GSC_OK(gsc_scaler_clip_grad_value(scaler, list, limit, nullptr));
    for (size_t t = 0; t < grads.size(); ++t) {
      ASSERT_TRUE(grads[t].guards_intact());
      for (int64_t i = 0; i < grads[t].count(); ++i) {
        const double unscaled = before[t][i] / 4.0;
        ASSERT_EQ(grads[t].get(i), std::clamp(round_to(unscaled, GetParam()), -limit, limit));
      }
    }
  }
}

}  // namespace
}  // namespace gsc_test
