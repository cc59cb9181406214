// SPDX-License-Identifier: Apache-2.0
//
// The looking glass: per-tensor diagnosis and exponent histogram against a count by hand in every dtype, and the scale
// that a histogram recommends.
#include "tests/support/objects.h"
#include "tests/support/oracle.h"
#include "tests/support/planted.h"

namespace gsc_test {
namespace {

struct Expected {
  gsc_tensor_diagnosis diagnosis = {};
  std::vector<int64_t> histogram = std::vector<int64_t>(GSC_EXPONENT_BINS, 0);
};

Expected diagnose_by_hand(const Buffer &buffer) {
  Expected result;
  gsc_tensor_diagnosis &d = result.diagnosis;
  d.count = buffer.count();
  d.first_nonfinite = -1;
  std::vector<double> finite;
  for (int64_t i = 0; i < buffer.count(); ++i) {
    const double value = buffer.get(i);
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? d.nan_count : d.inf_count);
      if (d.first_nonfinite < 0) d.first_nonfinite = i;
      continue;
    }
    finite.push_back(value);
    if (value == 0.0) {
      ++d.zero_count;
      continue;
    }
    const double magnitude = std::fabs(value);
    if (magnitude < format_of(buffer.dtype()).min_normal()) ++d.subnormal_count;
    d.amax = std::max(d.amax, magnitude);
    d.amin = d.amin == 0.0 ? magnitude : std::min(d.amin, magnitude);
    const int bin = std::clamp(std::ilogb(magnitude) - GSC_EXPONENT_MIN, 0, GSC_EXPONENT_BINS - 1);
    ++result.histogram[bin];
  }
  d.l2_norm = ref_norms(finite).l2;
  return result;
}

void expect_diagnosis(const Context &context, std::vector<Buffer> &buffers) {
  const List list = make_list(context, buffers);
  const int64_t count = static_cast<int64_t>(buffers.size());
  std::vector<gsc_tensor_diagnosis> got(buffers.size());
  std::vector<int64_t> histogram(buffers.size() * GSC_EXPONENT_BINS, -1);
  std::vector<std::vector<unsigned char>> images;
  for (const Buffer &buffer : buffers) images.push_back(buffer.image());
  ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(list, got.data(), histogram.data(), count, nullptr));
  std::vector<gsc_tensor_diagnosis> without(buffers.size());
  ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(list, without.data(), nullptr, count, nullptr));
  for (size_t t = 0; t < buffers.size(); ++t) {
    SCOPED_TRACE(text(dtype_name(buffers[t].dtype()), " tensor ", t));
    const Expected expected = diagnose_by_hand(buffers[t]);
    const gsc_tensor_diagnosis &e = expected.diagnosis;
    const gsc_tensor_diagnosis &g = got[t];
    EXPECT_EQ(g.count, e.count);
    EXPECT_EQ(g.inf_count, e.inf_count);
    EXPECT_EQ(g.nan_count, e.nan_count);
    EXPECT_EQ(g.zero_count, e.zero_count);
    EXPECT_EQ(g.subnormal_count, e.subnormal_count);
    EXPECT_EQ(g.first_nonfinite, e.first_nonfinite);
    EXPECT_EQ(g.amax, e.amax);
    EXPECT_EQ(g.amin, e.amin);
    // Summed in fp64: a few thousand roundings of 1e-16 at most.
    EXPECT_NEAR(g.l2_norm, e.l2_norm, e.l2_norm * 1e-11);
    for (int bin = 0; bin < GSC_EXPONENT_BINS; ++bin) {
      EXPECT_EQ(histogram[t * GSC_EXPONENT_BINS + static_cast<size_t>(bin)], expected.histogram[bin])
          << "exponent " << bin + GSC_EXPONENT_MIN;
    }
    EXPECT_EQ(std::memcmp(&without[t], &g, sizeof g), 0) << "the histogram changes nothing else";
    EXPECT_EQ(buffers[t].image(), images[t]) << "diagnosis only reads";
  }
}

class Diagnose : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, Diagnose, ::testing::ValuesIn(kAllDtypes),
                         [](const auto &info) { return std::string(dtype_name(info.param)); });

TEST_P(Diagnose, ManyChunks) {
  const Context context = make_context(2);
  Random random(52);
  for (int round = 0; round < 12; ++round) {
    std::vector<Buffer> buffers;
    for (int64_t t = random.below(4); t >= 0; --t)
      buffers.push_back(planted_buffer(random, GetParam(), round % 3 != 0));
    SCOPED_TRACE(text("round ", round));
    expect_diagnosis(context, buffers);
  }
}

std::vector<int64_t> histogram_of(std::initializer_list<std::pair<int, int64_t>> exponents) {
  std::vector<int64_t> result(GSC_EXPONENT_BINS, 0);
  for (const auto &[exponent, count] : exponents) result[exponent - GSC_EXPONENT_MIN] = count;
  return result;
}

struct Advice {
  float scale = -1.0f;
  double flushed = -1.0;
};
Advice recommend(const std::vector<int64_t> &histogram, float current, int32_t dtype) {
  Advice advice;
  EXPECT_GSC_OK(gsc_histogram_recommend_scale(histogram.data(), GSC_EXPONENT_BINS, current, dtype, &advice.scale,
                                              &advice.flushed));
  return advice;
}

/// Of a tile whose second half is cut short: only the tensor's own elements count.
TEST(DiagnoseTile, EndsWithItsTensor) {
  const Context context = make_context();
  std::vector<uint16_t> ones(4096, 0x3c00);
  ones[10] = 1;  // a subnormal, for which exponents are counted in fp32
  const gsc_tensor tensor = GSC_TENSOR_INIT(ones.data(), 3000, GSC_FP16);
  const List list = make_list(context, {tensor});
  gsc_tensor_diagnosis diagnosis;
  std::vector<int64_t> bins(GSC_EXPONENT_BINS);
  ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(list, &diagnosis, bins.data(), 1, nullptr));
  EXPECT_EQ(bins[-GSC_EXPONENT_MIN], 2999);
}

/// What fills up a vector does not count as the largest exponent.
TEST(DiagnoseTile, CountsTheLargestExponent) {
  const Context context = make_context();
  std::vector<float> large(5, 3e38F);
  const gsc_tensor tensor = GSC_TENSOR_INIT(large.data(), 5, GSC_FP32);
  const List list = make_list(context, {tensor});
  gsc_tensor_diagnosis diagnosis;
  std::vector<int64_t> bins(GSC_EXPONENT_BINS);
  ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(list, &diagnosis, bins.data(), 1, nullptr));
  EXPECT_EQ(bins[127 - GSC_EXPONENT_MIN], 5);
}

TEST(RecommendScale, KeepsTheLargestTwoBinadesBelowOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const struct {
    std::vector<int64_t> histogram;
    float current;
    int32_t dtype;
    float scale;
    double flushed;
  } kRows[] = {// fp16 overflows at 2^16, so the largest magnitude may have exponent 13 at most.
               {histogram_of({{13, 1}}), 1.0f, GSC_FP16, 1.0f, 0.0},
               {histogram_of({{13, 1}}), 1024.0f, GSC_FP16, 1024.0f, 0.0},
               {histogram_of({{14, 1}}), 1024.0f, GSC_FP16, 512.0f, 0.0},
               {histogram_of({{-7, 5}, {3, 1}}), 8.0f, GSC_FP16, 8192.0f, 0.0},
               {histogram_of({}), 4096.0f, GSC_FP16, 4096.0f, 0.0},
               // bf16 and fp32 overflow at 2^128.
               {histogram_of({{120, 1}}), 1.0f, GSC_BF16, 32.0f, 0.0},
               {histogram_of({{120, 1}}), 1.0f, GSC_FP32, 32.0f, 0.0},
               // 38 binades below the largest is 2^-25, under 2^-24.
               {histogram_of({{13, 1}, {-24, 3}}), 1.0f, GSC_FP16, 1.0f, 0.0},
               {histogram_of({{13, 1}, {-25, 3}}), 1.0f, GSC_FP16, 1.0f, 0.75},
               {histogram_of({{3, 1}, {-35, 1}}), 1.0f, GSC_FP16, 1024.0f, 0.5},
               {histogram_of({{3, 1}, {-34, 1}}), 1.0f, GSC_FP16, 1024.0f, 0.0},
               {histogram_of({{13, kMost}, {-25, kMost}}), 1.0f, GSC_FP16, 1.0f, 0.5}};
  for (const auto &row : kRows) {
    SCOPED_TRACE(&row - kRows);
    const Advice advice = recommend(row.histogram, row.current, row.dtype);
    EXPECT_EQ(advice.scale, row.scale);
    EXPECT_EQ(advice.flushed, row.flushed);
  }
}

TEST(RecommendScale, IsAPowerOfTwoThatKeepsTheLimitForAnyCurrentScale) {
  for (const float current : {3.0f, 1000.0f, 0.3f, 65535.0f}) {
    for (const int exponent : {-20, 0, 9, 15}) {
      const float scale = recommend(histogram_of({{exponent, 7}}), current, GSC_FP16).scale;
      EXPECT_EQ(std::ldexp(1.0, std::ilogb(scale)), scale);
      // Magnitudes of the bin lie in [2^e, 2^(e+1)) at `current`.
      const double largest = std::ldexp(1.0, exponent + 1) / static_cast<double>(current) * static_cast<double>(scale);
      EXPECT_LE(largest, std::ldexp(1.0, 14)) << current << ' ' << exponent;
      EXPECT_GT(largest, std::ldexp(1.0, 12)) << current << ' ' << exponent;
    }
  }
}

TEST(RecommendScale, StaysFiniteAndPositive) {
  for (const int exponent : {GSC_EXPONENT_MIN, 127}) {
    for (const int32_t dtype : {GSC_FP16, GSC_BF16, GSC_FP32}) {
      for (const float current : {std::numeric_limits<float>::min(), std::numeric_limits<float>::max()}) {
        const float scale = recommend(histogram_of({{exponent, 1}}), current, dtype).scale;
        EXPECT_TRUE(std::isfinite(scale) && scale > 0.0f) << exponent << ' ' << dtype << ' ' << current;
      }
    }
  }
}

}  // namespace
}  // namespace gsc_test
