// SPDX-License-Identifier: Apache-2.0
//
// The scale that a histogram of exponents recommends. What a diagnosis counts is in tests/core/kernels_linear_test.cpp
// for spans, and in tests/oracle for lists.
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

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

TEST(RecommendScale, KeepsTheLargestTwoBinadesBelowOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const struct {
    std::vector<int64_t> histogram;
    float current;
    int32_t dtype;
    float scale;
    double flushed;
  } kRows[] = {
      // fp16 overflows at 2^16, so the largest magnitude may have exponent 13 at most.
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
      {histogram_of({{13, kMost}, {-25, kMost}}), 1.0f, GSC_FP16, 1.0f, 0.5},
  };
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
      const double largest = std::ldexp(1.0, exponent + 1) / current * scale;
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
