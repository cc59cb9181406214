// SPDX-License-Identifier: Apache-2.0
//
// Conversions between dtypes: all 65536 patterns of the 16-bit formats to wider ones and back, rounding to nearest
// even at every 16-bit value and at its midpoints, limits and subnormals, fp64 to 16 bits in one rounding, and copies
// of equal dtypes bit for bit, NaN payloads included.
#include "tests/support/objects.h"
#include "tests/support/oracle.h"

namespace gsc_test {
namespace {

void cast(const Context &context, Buffer &src, Buffer &dst) {
  const gsc_tensor s = src.tensor(), d = dst.tensor();
  ASSERT_GSC_OK(gsc_ops_cast(context.get(), &s, &d, 1, nullptr));
}

Buffer all_patterns(int32_t dtype) {
  Buffer result(dtype, 65536);
  for (int64_t i = 0; i < 65536; ++i) result.as<uint16_t>()[i] = static_cast<uint16_t>(i);
  return result;
}

struct Case {
  int32_t dtype;
  int32_t target;
};
void PrintTo(const Case &c, std::ostream *stream) { *stream << dtype_name(c.dtype) << " on target " << c.target; }
class Narrow : public ::testing::TestWithParam<Case> {
 protected:
  Narrow() : context_(make_context(1, GetParam().target)) {}
  Context context_;
};

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const int32_t target : usable_cpu_targets()) {
    for (const int32_t dtype : {GSC_FP16, GSC_BF16}) result.push_back({dtype, target});
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(All, Narrow, ::testing::ValuesIn(cases()), [](const auto &info) {
  return text(dtype_name(info.param.dtype), "_target", info.param.target);
});

TEST_P(Narrow, EveryPatternToWiderAndBack) {
  Buffer patterns = all_patterns(GetParam().dtype);
  for (const int32_t wide_dtype : {GSC_FP32, GSC_FP64}) {
    Buffer wide(wide_dtype, 65536), back(GetParam().dtype, 65536);
    cast(context_, patterns, wide);
    cast(context_, wide, back);
    for (int64_t i = 0; i < 65536; ++i) {
      const double value = decode(static_cast<uint16_t>(i), GetParam().dtype);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(wide.get(i))) << std::hex << i;
        ASSERT_TRUE(std::isnan(back.get(i))) << std::hex << i;
      } else {
        ASSERT_EQ(wide.get(i), value) << std::hex << i;
        ASSERT_EQ(std::signbit(wide.get(i)), std::signbit(value)) << std::hex << i;
        ASSERT_EQ(back.as<uint16_t>()[i], i) << std::hex << i;
      }
    }
  }
}

/// The midpoint above every finite value, and its neighbours in the wide type on both sides.
TEST_P(Narrow, EveryMidpointRoundsToEven) {
  const int32_t dtype = GetParam().dtype;
  const Format format = format_of(dtype);
  for (const int32_t wide_dtype : {GSC_FP32, GSC_FP64}) {
    std::vector<double> inputs;
    for (int64_t i = 0; i < 65536; ++i) {
      const double value = decode(static_cast<uint16_t>(i), dtype);
      if (!std::isfinite(value)) continue;
      const double step = std::copysign(std::max(ulp(value, dtype), format.min_subnormal()), value);
      const double middle = value + step / 2.0;
      if (round_to(middle, wide_dtype) != middle) continue;
      const double nudge = ulp(middle, wide_dtype);
      inputs.insert(inputs.end(), {middle, middle - nudge, middle + nudge});
    }
    ASSERT_GT(inputs.size(), 100000u);
    const int64_t count = static_cast<int64_t>(inputs.size());
    Buffer wide(wide_dtype, count), narrow(dtype, count);
    for (int64_t i = 0; i < count; ++i) wide.set(i, inputs[static_cast<size_t>(i)]);
    cast(context_, wide, narrow);
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(narrow.as<uint16_t>()[i], encode(round_to(wide.get(i), dtype), dtype))
          << wide.get(i) << " from " << dtype_name(wide_dtype);
    }
  }
}

/// Between a midpoint and its next fp32 neighbour an fp64 value must not be rounded twice.
TEST_P(Narrow, DoublesAreRoundedOnce) {
  const int32_t dtype = GetParam().dtype;
  const double middle = 1.0 + std::ldexp(1.0, -format_of(dtype).precision);
  const double tiny = std::ldexp(1.0, -50);
  Buffer wide(GSC_FP64, 4), narrow(dtype, 4);
  const double inputs[] = {middle + tiny, middle - tiny, -middle - tiny, middle};
  for (int64_t i = 0; i < 4; ++i) wide.set(i, inputs[i]);
  cast(context_, wide, narrow);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(narrow.get(i), round_to(inputs[i], dtype)) << i;
}

TEST_P(Narrow, BetweenThe16BitFormats) {
  const int32_t dtype = GetParam().dtype;
  const int32_t other = dtype == GSC_FP16 ? GSC_BF16 : GSC_FP16;
  Buffer patterns = all_patterns(dtype), converted(other, 65536);
  cast(context_, patterns, converted);
  for (int64_t i = 0; i < 65536; ++i) {
    const double value = decode(static_cast<uint16_t>(i), dtype);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(converted.get(i))) << std::hex << i;
    } else {
      ASSERT_EQ(converted.as<uint16_t>()[i], encode(round_to(value, other), other)) << std::hex << i;
    }
  }
}

TEST(Cast, Fp64ToFp32) {
  const Context context = make_context();
  Random random(21);
  Buffer wide(GSC_FP64, 20000), narrow(GSC_FP32, 20000);
  for (int64_t i = 0; i < wide.count(); ++i) {
    wide.set(i, random.uniform(-2.0, 2.0) * std::ldexp(1.0, static_cast<int>(random.below(400)) - 200));
  }
  const float largest = std::numeric_limits<float>::max();
  wide.set(0, static_cast<double>(largest) * (1.0 + std::ldexp(1.0, -25)));
  wide.set(1, static_cast<double>(largest) * (1.0 + std::ldexp(1.0, -24)));
  wide.set(2, 1.0 + std::ldexp(1.0, -24));
  wide.set(3, 1.0 + 3 * std::ldexp(1.0, -24));
  cast(context, wide, narrow);
  for (int64_t i = 0; i < wide.count(); ++i)
    ASSERT_EQ(narrow.get(i), static_cast<double>(static_cast<float>(wide.get(i)))) << i;
}

TEST(Cast, EqualDtypesAreCopiedBitForBit) {
  const Context context = make_context();
  for (const int32_t dtype : kAllDtypes) {
    Buffer src(dtype, 1001, 1), dst(dtype, 1001, 3);
    Random random(22);
    // Random bytes: among them NaNs with payloads, quiet and signalling.
    for (int64_t i = 0; i < src.bytes(); ++i) src.as<unsigned char>()[i] = static_cast<unsigned char>(random.bits());
    cast(context, src, dst);
    EXPECT_EQ(src.image(), dst.image()) << dtype_name(dtype);
    EXPECT_TRUE(dst.guards_intact());
  }
}

TEST(Cast, ManyTensorsOfMixedDtypesInOneCall) {
  const Context context = make_context(3);
  std::vector<Buffer> src, dst;
  Random random(23);
  for (int64_t i = 0; i < 300; ++i) {
    src.emplace_back(kAllDtypes[static_cast<size_t>(random.below(4))], random.below(200), random.below(8));
    dst.emplace_back(kAllDtypes[static_cast<size_t>(random.below(4))], src.back().count(), random.below(8));
    src.back().fill_random(random, -100.0, 100.0);
  }
  ASSERT_GSC_OK(gsc_ops_cast(context.get(), tensors_of(src).data(), tensors_of(dst).data(), 300, nullptr));
  for (size_t t = 0; t < src.size(); ++t) {
    ASSERT_TRUE(dst[t].guards_intact());
    for (int64_t i = 0; i < src[t].count(); ++i) {
      ASSERT_EQ(dst[t].get(i), round_to(src[t].get(i), dst[t].dtype())) << "tensor " << t << " element " << i;
    }
  }
}

}  // namespace
}  // namespace gsc_test
