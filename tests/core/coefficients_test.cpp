// SPDX-License-Identifier: Apache-2.0
//
// multiply_add in fp32 rounds once: compared with the C library's fmaf over random bit patterns, over sums that nearly
// cancel, and over sums that lie at or next to the middle of two floats, where a double in between would round twice.
// Compiled without the instruction on x86-64, so that it is the routine that is tested; elsewhere both are the
// processor's. And NAdam's product of momenta, worked out from the number of the step, against all its factors.
#include "core/rules/optim/coefficients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "core/rules/optim/adam_like.h"
#include "tests/support/oracle.h"

namespace gsc {
namespace {

void expect_same(float a, float b, float c) {
  const float expected = gsc_test::fmaf_rounded_once(a, b, c);
  const float got = multiply_add(a, b, c);
  const bool same =
      std::isnan(expected) ? std::isnan(got) : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(expected);
  EXPECT_TRUE(same) << a << " * " << b << " + " << c << ": " << got << ", expected " << expected;
}

TEST(RealPower, IsThePowerToFifteenDigits) {
  for (const double base : {1e-300, 1e-7, 0.3, 0.70710678, 0.9999, 1.0, 1.4142136, 3.0, 1e5, 1e300}) {
    for (const double exponent : {0.0, 1e-9, 0.5, 0.75, 1.0, 1.5, 2.0, 3.25, 17.0}) {
      const double expected = std::pow(base, exponent);
      if (expected > 0.0 && std::isfinite(expected)) {
        EXPECT_NEAR(real_power(base, exponent) / expected, 1.0, 1e-15 * (2.0 + std::abs(std::log2(expected))))
            << base << "^" << exponent;
      } else {
        EXPECT_EQ(real_power(base, exponent), expected) << base << "^" << exponent;
      }
    }
  }
  EXPECT_EQ(real_power(0.0, 0.5), 0.0);
  EXPECT_EQ(real_power(0.0, 0.0), 1.0);
  EXPECT_EQ(real_power(1e-300, 3.5), 0.0);
  EXPECT_EQ(real_power(1e300, 3.5), HUGE_VAL);
}

TEST(MultiplyAdd, RandomPatterns) {
  std::mt19937 random(1);
  const auto any = [&] { return std::bit_cast<float>(uint32_t(random())); };
  for (int i = 0; i < 2000000; ++i) expect_same(any(), any(), any());
}

TEST(MultiplyAdd, AddendsNearTheProduct) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> significand(1.0F, 2.0F);
  std::uniform_int_distribution<int> exponent(-74, 62);
  std::uniform_int_distribution<int> distance(-50, 50);
  for (int i = 0; i < 1000000; ++i) {
    const float a = std::ldexp(significand(random), exponent(random));
    const float b = std::ldexp(significand(random), exponent(random));
    const float sign = i % 2 == 0 ? -1.0F : 1.0F;
    expect_same(a, b, sign * std::ldexp(significand(random), std::ilogb(a) + std::ilogb(b) + distance(random)));
    expect_same(a, b, -(a * b));  // what is left is the rounding error of the product
  }
}

TEST(MultiplyAdd, NearTheMiddleOfTwoFloats) {
  std::mt19937 random(2);
  std::uniform_int_distribution<int> exponent(-20, 20);
  for (int i = 0; i < 2000000; ++i) {
    // The product is half of c's last bit, a trace above or below it that a double next to c has no room for.
    const float c = std::ldexp(float(0x800000U | (random() & 0x7fffffU)), exponent(random));
    const float half = ((random() & 1U) != 0 ? -0.5F : 0.5F) * (std::nextafter(c, INFINITY) - c);
    expect_same(half, 1.0F, c);
    expect_same(half * (1.0F + 0x1p-12F), 1.0F - 0x1p-12F + 0x1p-24F, c);
    expect_same(half * (1.0F + 0x1p-15F), 1.0F - 0x1p-15F, c);
  }
}

TEST(MultiplyAdd, SubnormalsAndInfinities) {
  const float numbers[] = {0.0F,  -0.0F,           0x1p-149F, -0x1p-149F, 0x1p-126F, 0x1.8p-127F, 1.0F,
                           -1.5F, 0x1.fffffep127F, INFINITY,  -INFINITY,  NAN,       0x1p-75F,    0x1.000002p-74F};
  for (const float a : numbers) {
    for (const float b : numbers) {
      for (const float c : numbers) expect_same(a, b, c);
    }
  }
}

TEST(Interpolate, ExactAtBothEnds) {
  for (const float from : {1e30F, -3.0F, 0.1F}) {
    for (const float to : {1e-30F, 0.3F, 7.0F}) {
      EXPECT_EQ(interpolate(from, to, 0.0F), from);
      EXPECT_EQ(interpolate(from, to, 1.0F), to);
    }
  }
}

TEST(NadamProduct, IsThatOfAllFactors) {
  for (const double beta1 : {0.0, 0.5, 0.9, 0.999, 0.999999}) {
    for (const double momentum_decay : {0.0, 4e-3, 0.3, 2.0, 50.0, 1e6}) {
      const double decay = std::pow(0.96, momentum_decay);
      double product = 1.0, decayed = 1.0;
      for (int64_t step = 1; step <= 5000; ++step) {
        decayed *= decay;
        product *= beta1 * (1.0 - 0.5 * decayed);
        // One rounding to fp32 for each factor, and what 1 - product does not show.
        const double error = product * std::min<int64_t>(step, 2300) * 0x1p-23 + 0x1p-54;
        ASSERT_NEAR(optim::Nadam::momentum_product(beta1, decay, step), product, error)
            << beta1 << ' ' << momentum_decay << ' ' << step;
      }
    }
  }
}

/// As after a checkpoint of many steps. Multiplying all factors would take years.
TEST(NadamProduct, EndsAfterAFewFactors) {
  for (const double momentum_decay : {0.0, 4e-3, 0.4, 1.0, 1e6}) {
    const double product = optim::Nadam::momentum_product(0.999999, std::pow(0.96, momentum_decay), int64_t{1} << 53);
    EXPECT_LT(product, 0x1p-53) << momentum_decay;
  }
}

}  // namespace
}  // namespace gsc
