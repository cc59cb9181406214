// SPDX-License-Identifier: Apache-2.0
// multiply_add in fp32 against the C library's fma, for random patterns, sums that nearly cancel, halfway cases,
// subnormals, inf and NaN. On x86-64 this file is compiled without the instruction, and so tests the routine that
// stands in for it.
#include <cmath>
#include <cstring>

#include "core/optim/coefficients.h"
#include "tests/core/kernel_testing.h"

namespace gsc {
namespace {

using cpu::from_bits;
using cpu::to_bits;

void expect_fma(float a, float b, float c) {
  const float got = multiply_add(a, b, c);
  const float expected = std::fma(a, b, c);
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << a << " * " << b << " + " << c << " gives " << got;
  } else {
    EXPECT_EQ(to_bits(got), to_bits(expected))
        << std::hexfloat << a << " * " << b << " + " << c << " gives " << got << " instead of " << expected;
  }
}

TEST(MultiplyAdd, RandomPatterns) {
  std::mt19937_64 random(31);
  for (int i = 0; i < 1000000 && !::testing::Test::HasFailure(); ++i) {
    const uint64_t bits = random();
    expect_fma(from_bits(static_cast<uint32_t>(bits)), from_bits(static_cast<uint32_t>(bits >> 32)),
               from_bits(static_cast<uint32_t>(random())));
  }
}

TEST(MultiplyAdd, AddendsNearTheProduct) {
  std::mt19937_64 random(32);
  std::uniform_real_distribution<float> significand(1.0F, 2.0F);
  std::uniform_int_distribution<int> exponent(-74, 62);
  std::uniform_int_distribution<int> distance(-50, 50);
  for (int i = 0; i < 1000000 && !::testing::Test::HasFailure(); ++i) {
    const float a = std::ldexp(significand(random), exponent(random));
    const float b = std::ldexp(significand(random), exponent(random));
    const float sign = i % 2 == 0 ? -1.0F : 1.0F;
    expect_fma(a, b, sign * std::ldexp(significand(random), std::ilogb(a) + std::ilogb(b) + distance(random)));
    expect_fma(a, b, -(a * b));  // what is left is the rounding error of the product
  }
}

TEST(MultiplyAdd, HalfwayBetweenTwoNumbers) {
  // 1 + 2^-24 lies halfway between 1 and the next number; the least bit beyond decides.
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const float beyond : {-0x1p-80F, -tiny, 0.0F, tiny, 0x1p-80F}) {
    expect_fma(1.0F + 0x1p-12F, 1.0F + 0x1p-12F, beyond);
    expect_fma(1.0F + 0x1p-12F, 1.0F - 0x1p-12F, beyond);
    expect_fma(0x1p-75F, 0x1p-75F, beyond);
    expect_fma(0x1.8p-75F, 0x1p-75F, beyond);
  }
}

TEST(MultiplyAdd, Limits) {
  const float inf = std::numeric_limits<float>::infinity();
  const float values[] = {0.0F,
                          -0.0F,
                          1.0F,
                          -1.0F,
                          std::numeric_limits<float>::denorm_min(),
                          0x1p-126F,
                          0x1.fffffep127F,
                          -0x1.fffffep127F,
                          inf,
                          -inf,
                          std::numeric_limits<float>::quiet_NaN()};
  for (const float a : values) {
    for (const float b : values) {
      for (const float c : values) expect_fma(a, b, c);
    }
  }
}

}  // namespace
}  // namespace gsc
