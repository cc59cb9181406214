// SPDX-License-Identifier: Apache-2.0
// The scalar conversions of core/cpu/convert.h against those of tests/support/dtypes.h, which share nothing with them,
// and against the processor's own where it has them. All 2^16 patterns of the 16-bit formats; towards 16 bits every
// value, every midpoint and their neighbours, and random patterns. The block forms are tested through the kernels, in
// kernels_linear_test.cpp.
#include "core/cpu/convert.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <gtest/gtest.h>

#include <random>

#include "core/cpu/dispatch.h"
#include "tests/support/dtypes.h"

namespace gsc::cpu {
namespace {

using gsc_test::kInf;

struct Format {
  int32_t dtype;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
  uint16_t (*narrow64)(double);

  const char *name() const { return gsc_test::dtype_name(dtype); }
  int mantissa_bits() const { return gsc_test::format_of(dtype).precision - 1; }
  int max_exponent() const { return gsc_test::format_of(dtype).max_exponent; }
  uint16_t infinity() const { return gsc_test::encode(kInf, dtype); }
  uint16_t quiet_bit() const { return 1 << (mantissa_bits() - 1); }
  double value_of(uint32_t h) const { return gsc_test::decode(h, dtype); }
  uint16_t nearest(double x) const { return gsc_test::encode(gsc_test::round_to(x, dtype), dtype); }
};

const Format kFp16 = {GSC_FP16, [](uint16_t h) { return fp16_to_fp32(h); }, [](float x) { return fp32_to_fp16(x); },
                      [](double x) { return fp64_to_fp16(x); }};
const Format kBf16 = {GSC_BF16, [](uint16_t h) { return bf16_to_fp32(h); }, [](float x) { return fp32_to_bf16(x); },
                      [](double x) { return fp64_to_bf16(x); }};

void expect_narrows(const Format &f, float x) {
  const uint16_t expected = f.nearest(x);
  ASSERT_EQ(f.narrow(x), expected) << f.name() << " of " << std::hexfloat << x;
  ASSERT_EQ(f.narrow64(x), expected) << f.name() << " of the double " << std::hexfloat << x;
}

void expect_narrows64(const Format &f, double x) {
  ASSERT_EQ(f.narrow64(x), f.nearest(x)) << f.name() << " of " << std::hexfloat << x;
}

class Convert : public testing::TestWithParam<const Format *> {};
INSTANTIATE_TEST_SUITE_P(Formats, Convert, testing::Values(&kFp16, &kBf16),
                         [](const auto &info) { return info.param->name(); });

TEST_P(Convert, EveryPatternThereAndBack) {
  const Format &f = *GetParam();
  for (uint32_t h = 0; h <= 0xffff; ++h) {
    SCOPED_TRACE(h);
    const bool is_nan = (h & 0x7fff) > f.infinity();
    const uint32_t mantissa = h & ((1U << f.mantissa_bits()) - 1);
    const uint32_t nan = (h & 0x8000U) << 16 | 0x7f800000U | (mantissa | f.quiet_bit()) << (23 - f.mantissa_bits());
    const float wide = f.widen(h);
    ASSERT_EQ(to_bits(wide), is_nan ? nan : to_bits(float(f.value_of(h))));
    const uint32_t back = is_nan ? h | f.quiet_bit() : h;
    ASSERT_EQ(f.narrow(wide), back);
    ASSERT_EQ(f.narrow64(wide), back);
  }
}

TEST_P(Convert, RoundsToNearestEvenAroundEveryMidpoint) {
  const Format &f = *GetParam();
  constexpr float kUp = std::numeric_limits<float>::infinity();
  for (uint32_t h = 0; h < f.infinity(); ++h) {
    const double low = f.value_of(h);
    // The value after the largest is where the next binade would begin.
    const double high = h + 1U == f.infinity() ? std::ldexp(1.0, f.max_exponent() + 1) : f.value_of(h + 1);
    const double middle = (low + high) / 2;
    for (const double sign : {1.0, -1.0}) {
      for (const double x : {low, middle}) {
        const float single = sign * x;
        ASSERT_EQ(single, sign * x);
        expect_narrows(f, single);
        expect_narrows(f, std::nextafter(single, kUp));
        expect_narrows(f, std::nextafter(single, -kUp));
        // Far below the last place of fp32: rounding through fp32 would see a tie here.
        expect_narrows64(f, sign * x);
        expect_narrows64(f, std::nextafter(sign * x, kInf));
        expect_narrows64(f, std::nextafter(sign * x, -kInf));
        expect_narrows64(f, sign * x * (1 + 0x1p-40));
        expect_narrows64(f, sign * x * (1 - 0x1p-40));
      }
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(Convert, RandomPatterns) {
  const Format &f = *GetParam();
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const uint64_t bits = random();
    const float single = from_bits(uint32_t(bits));
    if (!std::isnan(single)) expect_narrows(f, single);
    // Exponents of doubles around the range of the format, where rounding has something to do.
    const int reach = 2 * f.max_exponent() + 31;
    const int exponent = static_cast<int>(random() % (2 * reach)) - reach;
    expect_narrows64(f, std::ldexp(bits, exponent - 64) * ((bits & 1) != 0 ? 1 : -1));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(Convert, ExtremesOfFp64) {
  const Format &f = *GetParam();
  using Limits = std::numeric_limits<double>;
  for (const double x : {0.0, Limits::denorm_min(), Limits::min(), 0x1p-150, 0x1.8p-150, 0x1p-149, 0x1p-134, 0x1.1p-134,
                         0x1p-25, 0x1.0000000000001p-25, double{std::numeric_limits<float>::max()}, 65519.999999999993,
                         65520.0, 0x1.fefffffffffffp127, 0x1.ffp127, Limits::max(), Limits::infinity()}) {
    expect_narrows64(f, x);
    expect_narrows64(f, -x);
  }
}

TEST_P(Convert, NanKeepsSignAndTopOfPayload) {
  const Format &f = *GetParam();
  const int shift = 23 - f.mantissa_bits();
  for (uint32_t mantissa = 1; mantissa < 1U << 23; mantissa += 127) {
    for (const uint32_t sign : {0U, 0x80000000U}) {
      const uint16_t expected = sign >> 16 | f.infinity() | f.quiet_bit() | mantissa >> shift;
      const float nan = from_bits(sign | 0x7f800000U | mantissa);
      ASSERT_EQ(f.narrow(nan), expected) << f.name() << " " << std::hex << mantissa;
      const double wide = from_bits(uint64_t{sign} << 32 | 0x7ff0000000000001U | uint64_t{mantissa} << 29);
      ASSERT_EQ(f.narrow64(wide), expected) << f.name() << " " << std::hex << mantissa;
    }
  }
}

#if defined(__x86_64__)
#define GSC_F16C __attribute__((target("f16c")))
GSC_F16C uint32_t hardware_widen(uint16_t h) { return to_bits(_cvtsh_ss(h)); }
GSC_F16C uint16_t hardware_narrow(uint32_t bits) {
  // _cvtss_sh is not C++ in Clang 14.
  const __m128i narrow = _mm_cvtps_ph(_mm_set_ss(from_bits(bits)), _MM_FROUND_TO_NEAREST_INT);
  return _mm_cvtsi128_si32(narrow);
}

TEST(ConvertFp16, EqualsTheProcessorsConversions) {
  // The AVX2 kernels are offered only where there is F16C.
  if (find_kernels(GSC_CPU_AVX2) == nullptr) GTEST_SKIP() << "this processor or build has no F16C";
  for (uint32_t h = 0; h <= 0xffff; ++h) {
    ASSERT_EQ(to_bits(fp16_to_fp32(h)), hardware_widen(h)) << std::hex << h;
  }
  // A step prime to 2^32 visits all exponents with ever different mantissas.
  uint32_t bits = 0;
  for (int i = 0; i < 1 << 23; ++i, bits += 2654435761U) {
    ASSERT_EQ(fp32_to_fp16(from_bits(bits)), hardware_narrow(bits)) << std::hex << bits;
  }
}
#endif

TEST(ConvertBytes, PerDtype) {
  EXPECT_EQ(dtype_bytes(GSC_FP16), 2);
  EXPECT_EQ(dtype_bytes(GSC_BF16), 2);
  EXPECT_EQ(dtype_bytes(GSC_FP32), 4);
  EXPECT_EQ(dtype_bytes(GSC_FP64), 8);
}

}  // namespace
}  // namespace gsc::cpu
