// SPDX-License-Identifier: Apache-2.0
//
// Norms: L2 and inf, over all tensors and per tensor, in every dtype; squares that overflow or underflow fp32;
// propagation of inf and NaN; and the norms that a check and an unscale record. Tolerance: see kNormTolerance.
#include "tests/support/objects.h"
#include "tests/support/oracle.h"
#include "tests/support/planted.h"

namespace gsc_test {
namespace {

struct Result {
  double total = -1.0;
  std::vector<double> each;
};

Result norm(const Context &context, std::vector<Buffer> &buffers, int32_t type) {
  Result result;
  result.each.assign(buffers.size(), -1.0);
  EXPECT_GSC_OK(gsc_ops_norm(context, tensors_of(buffers).data(), static_cast<int64_t>(buffers.size()), type,
                             &result.total, result.each.data(), nullptr));
  return result;
}

void expect_close(double got, double expected) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << got;
  } else if (std::isinf(expected)) {
    EXPECT_EQ(got, expected);
  } else {
    EXPECT_NEAR(got, expected, expected * kNormTolerance);
  }
}

void expect_norms(const Context &context, std::vector<Buffer> &buffers) {
  const Result l2 = norm(context, buffers, GSC_NORM_L2);
  const Result inf = norm(context, buffers, GSC_NORM_INF);
  std::vector<double> all;
  for (size_t t = 0; t < buffers.size(); ++t) {
    const std::vector<double> values = buffers[t].values();
    const Norms expected = ref_norms(values);
    expect_close(l2.each[t], expected.l2);
    expect_close(inf.each[t], expected.inf);
    all.insert(all.end(), values.begin(), values.end());
  }
  const Norms expected = ref_norms(all);
  expect_close(l2.total, expected.l2);
  if (std::isfinite(expected.inf)) {
    EXPECT_EQ(inf.total, expected.inf) << "a maximum is exact";
  } else {
    expect_close(inf.total, expected.inf);
  }
}

class Norm : public ::testing::TestWithParam<int32_t> {
 protected:
  Context context_ = make_context(2);
};
INSTANTIATE_TEST_SUITE_P(All, Norm, ::testing::ValuesIn(kAllDtypes),
                         [](const auto &info) { return std::string(dtype_name(info.param)); });

TEST_P(Norm, RandomTensors) {
  Random random(31);
  std::vector<Buffer> buffers = make_buffers(GetParam(), {0, 1, 3, 17, 255, 4095, 4097, 70001}, 1);
  for (Buffer &buffer : buffers) buffer.fill_random(random, -3.0, 3.0);
  expect_norms(context_, buffers);
}

TEST_P(Norm, ManyChunks) {
  Random random(33);
  for (int round = 0; round < 12; ++round) {
    std::vector<Buffer> buffers;
    for (int64_t t = random.below(4); t >= 0; --t)
      buffers.push_back(planted_buffer(random, GetParam(), round % 3 == 0));
    SCOPED_TRACE(text("round ", round));
    expect_norms(context_, buffers);
  }
}

TEST_P(Norm, LargestAndSmallestValues) {
  const Format format = format_of(GetParam());
  for (const double value : {format.max(), format.max() / 4, format.min_normal(), format.min_subnormal()}) {
    // Even fp64 squares of these are out of range: only what the header promises, "squares that overflow or
    // underflow fp32", is asked for.
    if (GetParam() == GSC_FP64) continue;
    std::vector<Buffer> buffers = make_buffers(GetParam(), {1, 5, 3000}, 1);
    for (Buffer &buffer : buffers) buffer.fill(value);
    expect_norms(context_, buffers);
  }
}

TEST_P(Norm, MixedMagnitudes) {
  if (GetParam() == GSC_FP16) return;
  std::vector<Buffer> buffers = make_buffers(GetParam(), {4096, 4096, 4096, 10000});
  buffers[0].fill(1e-30);
  buffers[1].fill(2e19);
  buffers[2].fill(1.0);
  buffers[3].fill(-3e-25);
  buffers[3].set(9999, 5e18);
  expect_norms(context_, buffers);
}

TEST_P(Norm, CheckAndUnscaleRecordTheUnscaledNorm) {
  const float scale = 256.0f;
  Random random(32);
  for (const bool in_place : {false, true}) {
    std::vector<Buffer> buffers = make_buffers(GetParam(), {1, 300, 9001}, 1);
    std::vector<double> all;
    for (Buffer &buffer : buffers) {
      buffer.fill_random(random, -200.0, 200.0);
      const std::vector<double> values = buffer.values();
      all.insert(all.end(), values.begin(), values.end());
    }
    const List list = make_list(context_, buffers);
    const Scaler scaler = make_scaler(context_, scale);
    ASSERT_GSC_OK(in_place ? gsc_scaler_unscale(scaler, list, nullptr) : gsc_scaler_check(scaler, list, nullptr));
    const gsc_report report = report_of(scaler, list);
    const Norms expected = ref_norms(all, 1.0 / scale);
    expect_close(report.grad_norm, expected.l2);
    EXPECT_EQ(report.grad_amax, expected.inf);
    auto words = with_size<gsc_device_state>();
    ASSERT_GSC_OK(gsc_scaler_get_device_state(scaler, list, &words));
    EXPECT_EQ(*words.grad_norm, report.grad_norm);
    EXPECT_EQ(*words.found_inf, 0.0f);
  }
}

TEST(NormOfAll, FiniteGradientsWhoseSquaresOverflowAreNotAnOverflow) {
  const Context context = make_context();
  for (const int32_t dtype : {GSC_FP32, GSC_BF16}) {
    Buffer grads(dtype, 5000);
    grads.fill(1e30);
    const List list = make_list(context, grads);
    const Scaler scaler = make_scaler(context, 1.0f);
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    const gsc_report report = report_of(scaler, list);
    EXPECT_EQ(report.flags & GSC_REPORT_OVERFLOW, 0u);
    EXPECT_EQ(report.nonfinite_count, 0);
    expect_close(report.grad_norm, ref_norms(grads.values()).l2);
  }
}

TEST(NormOfAll, ThousandsOfTinyTensors) {
  const Context context = make_context(2);
  Random random(33);
  std::vector<Buffer> buffers;
  for (int64_t i = 0; i < 3000; ++i) {
    buffers.emplace_back(kAllDtypes[i % 4], 1 + i % 9, i % 7);
    buffers.back().fill_random(random, -1.0, 1.0);
  }
  expect_norms(context, buffers);
}

}  // namespace
}  // namespace gsc_test
