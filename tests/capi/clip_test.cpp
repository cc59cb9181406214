// SPDX-License-Identifier: Apache-2.0
//
// Clipping by norm and by value on unscaled gradients, where the result is in the gradients themselves. Clipping that is
// folded into the step is in optimizer_test.cpp.
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

TEST_P(ClipNorm, ScalesByPyTorchsFactorAndClamps) {
  const auto [dtype, type] = GetParam();
  const Context context = make_context(2);
  Random random(41);
  const float scale = 64.0f;
  for (const double max_norm : {0.0, 0.01, 1.0, 1e9}) {
    for (const double limit : {0.0, 0.25 * max_norm, 0.25, kInf}) {
      std::vector<Buffer> grads = make_buffers(dtype, {1, 9, 1000, 4099}, 1);
      for (Buffer &buffer : grads) buffer.fill_random(random, -60.0, 60.0);
      const List list = make_list(context, grads);
      const Scaler scaler = make_scaler(context, scale);
      ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
      std::vector<std::vector<double>> unscaled;
      for (const Buffer &buffer : grads) unscaled.push_back(buffer.values());
      ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, list, max_norm, type, nullptr));
      ASSERT_GSC_OK(gsc_scaler_clip_grad_value(scaler, list, limit, nullptr));
      const gsc_report report = report_of(scaler, list);
      const auto factor =
          static_cast<float>(ref_clip(max_norm, type == GSC_NORM_L2 ? report.grad_norm : report.grad_amax));
      for (size_t t = 0; t < grads.size(); ++t) {
        ASSERT_TRUE(grads[t].guards_intact());
        for (int64_t i = 0; i < grads[t].count(); ++i) {
          const double clipped = ref_scale(unscaled[t][static_cast<size_t>(i)], dtype, factor, dtype);
          const double most = round_to(limit, dtype == GSC_FP64 ? GSC_FP64 : GSC_FP32);
          ASSERT_EQ(grads[t].get(i), round_to(std::clamp(clipped, -most, most), dtype))
              << "max_norm " << max_norm << " limit " << limit << " element " << i;
        }
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

}  // namespace
}  // namespace gsc_test
