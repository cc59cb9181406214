// SPDX-License-Identifier: Apache-2.0
//
// Element-wise operations on lists against the double-precision oracle, in every pair of dtypes, over sizes around the
// vector and chunk boundaries, at misaligned addresses, with special values. These operations are correctly rounded, so
// all comparisons are exact. Every operation on a span is in tests/core/kernels_linear_test.cpp.
#include "tests/support/objects.h"
#include "tests/support/oracle.h"

namespace gsc_test {
namespace {

/// Sizes around vectors (1..17), rows and tiles, and around the smallest chunk.
const std::vector<int64_t> kSizes = {0,  1,  2,  3,   5,   7,   8,   9,    15,   16,   17,   31,   33,
                                     63, 64, 65, 127, 129, 255, 257, 1023, 1025, 4095, 4096, 4097, 8193};

/// Values that make rounding hard: ties, subnormals, limits of every dtype, zeros of both signs, inf.
std::vector<double> special_values() {
  std::vector<double> result = {0.0,
                                -0.0,
                                1.0,
                                -1.0,
                                kInf,
                                -kInf,
                                1.0 + std::ldexp(1.0, -11),
                                1.0 + 3 * std::ldexp(1.0, -11),
                                1.0 + std::ldexp(1.0, -8),
                                1.0 + 3 * std::ldexp(1.0, -8),
                                65504.0,
                                65519.0,
                                65520.0,
                                -65520.0,
                                1e-30,
                                -1e30};
  for (const int32_t dtype : kAllDtypes) {
    const Format format = format_of(dtype);
    for (const double value : {format.max(), format.min_normal(), format.min_subnormal()}) {
      result.insert(result.end(), {value, -value, value * 0.5, value * 0.75, value * 1.5});
    }
  }
  return result;
}

void fill_mixed(Buffer &buffer, Random &random) {
  static const std::vector<double> specials = special_values();
  for (int64_t i = 0; i < buffer.count(); ++i) {
    const int64_t kind = random.below(8);
    if (kind == 0) {
      buffer.set(i, specials[random.below(std::ssize(specials))]);
    } else {
      buffer.set(i, random.uniform(-1.0, 1.0) * std::ldexp(1.0, random.below(40) - 24));
    }
  }
}

/// Equal as numbers, or both NaN; zeros must have the same sign.
::testing::AssertionResult same(double got, double expected) {
  if (std::isnan(expected) ? std::isnan(got) : got == expected && std::signbit(got) == std::signbit(expected)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "got " << got << ", expected " << expected;
}

class DtypePair : public ::testing::TestWithParam<std::tuple<int32_t, int32_t>> {
 protected:
  const int32_t src_dtype = std::get<0>(GetParam()), dst_dtype = std::get<1>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(All, DtypePair,
                         ::testing::Combine(::testing::ValuesIn(kAllDtypes), ::testing::ValuesIn(kAllDtypes)),
                         [](const auto &info) {
                           return text(dtype_name(std::get<0>(info.param)), "_to_",
                                       dtype_name(std::get<1>(info.param)));
                         });

TEST_P(DtypePair, ScaleIsCorrectlyRounded) {
  const Context context = make_context(2);
  Random random(11);
  for (const int64_t offset : {0, 1, 3}) {
    std::vector<Buffer> src = make_buffers(src_dtype, kSizes, offset);
    std::vector<Buffer> dst = make_buffers(dst_dtype, kSizes, (offset * 5) % 7);
    for (Buffer &buffer : src) fill_mixed(buffer, random);
    for (const float factor : {4.0f, 0.25f, 3.7f, 65536.0f, std::ldexp(1.0f, -20)}) {
      ASSERT_GSC_OK(
          gsc_ops_scale(context, tensors_of(src).data(), tensors_of(dst).data(), std::ssize(src), &factor, nullptr));
      for (size_t t = 0; t < src.size(); ++t) {
        ASSERT_TRUE(dst[t].guards_intact() && src[t].guards_intact());
        for (int64_t i = 0; i < src[t].count(); ++i) {
          ASSERT_TRUE(same(dst[t].get(i), ref_scale(src[t].get(i), src_dtype, factor, dst_dtype)))
              << "factor " << factor << " count " << src[t].count() << " element " << i;
        }
      }
    }
  }
}

/// Long tensors are cut into pieces where that is faster, and divided among threads.
TEST_P(DtypePair, LongTensorsEqualTheirParts) {
  constexpr int64_t kCount = (1 << 21) + 4321;
  constexpr int64_t kPart = 4096;
  const Context context = make_context(2);
  Buffer x(src_dtype, kCount, 3), scaled(dst_dtype, kCount, 1), sum(dst_dtype, kCount, 1);
  Random random(14);
  x.fill_random(random, -4.0, 4.0);
  sum.fill_random(random, -4.0, 4.0);
  Buffer scaled_parts(dst_dtype, kCount, 1), sum_parts(dst_dtype, kCount, 1);
  sum_parts.restore(sum.image());
  const auto run = [&](const gsc_tensor &src, const gsc_tensor &to, const gsc_tensor &onto) {
    const float factor = 1.25F;
    ASSERT_GSC_OK(gsc_ops_scale(context, &src, &to, 1, &factor, nullptr));
    ASSERT_GSC_OK(gsc_ops_axpby(context, 0.5, &src, -2.0, &onto, 1, nullptr));
  };
  run(x.tensor(), scaled.tensor(), sum.tensor());
  for (int64_t i = 0; i < kCount; i += kPart) {
    const auto part = [&](Buffer &buffer) {
      return gsc_tensor GSC_TENSOR_INIT(static_cast<char *>(buffer.data()) + i * dtype_size(buffer.dtype()),
                                        std::min(kPart, kCount - i), buffer.dtype());
    };
    run(part(x), part(scaled_parts), part(sum_parts));
  }
  EXPECT_TRUE(scaled.image() == scaled_parts.image());
  EXPECT_TRUE(sum.image() == sum_parts.image());
  EXPECT_TRUE(x.guards_intact() && scaled.guards_intact() && sum.guards_intact());
}

TEST_P(DtypePair, AxpbyWithZeroBOnlyWrites) {
  const Context context = make_context();
  Buffer x(src_dtype, 100), y(dst_dtype, 100);
  x.fill(3.0);
  y.fill(kNan);
  const gsc_tensor tx = x.tensor(), ty = y.tensor();
  ASSERT_GSC_OK(gsc_ops_axpby(context, 2.0, &tx, 0.0, &ty, 1, nullptr));
  for (const double value : y.values()) ASSERT_EQ(value, 6.0);
}

class Elementwise : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, Elementwise, ::testing::ValuesIn(kAllDtypes), name_of_dtype);

TEST_P(Elementwise, StatelessUnscaleCheck) {
  const Context context = make_context();
  Buffer grads(GetParam(), 400);
  grads.fill(4.0);
  const gsc_tensor tensor = grads.tensor();
  const float inverse = 0.25f;
  float found_inf = 0.0f;
  ASSERT_GSC_OK(gsc_ops_unscale_check(context, &tensor, 1, &found_inf, &inverse, nullptr));
  for (const double value : grads.values()) ASSERT_EQ(value, 1.0);
  EXPECT_EQ(found_inf, 0.0f);
  for (const double planted : {kInf, -kInf, kNan}) {
    for (const int64_t i : {0, 1, 199, 398, 399}) {
      grads.fill(4.0);
      grads.set(i, planted);
      found_inf = 0.0f;
      ASSERT_GSC_OK(gsc_ops_unscale_check(context, &tensor, 1, &found_inf, &inverse, nullptr));
      EXPECT_EQ(found_inf, 1.0f) << planted << " at " << i;
    }
  }
  // It is only ever set, so that several calls can share the word.
  grads.fill(4.0);
  ASSERT_GSC_OK(gsc_ops_unscale_check(context, &tensor, 1, &found_inf, &inverse, nullptr));
  EXPECT_EQ(found_inf, 1.0f);
}

TEST_P(Elementwise, UnscaleCheckSeesWhatUnscalingMakesInfinite) {
  const Context context = make_context();
  Buffer grads(GetParam(), 9);
  grads.fill(1.0);
  grads.set(4, format_of(GetParam()).max());
  const gsc_tensor tensor = grads.tensor();
  const float inverse = 2.0f;
  float found_inf = 0.0f;
  ASSERT_GSC_OK(gsc_ops_unscale_check(context, &tensor, 1, &found_inf, &inverse, nullptr));
  EXPECT_EQ(found_inf, 1.0f);
  EXPECT_EQ(grads.get(4), kInf);
}

TEST(Cast, ManyTensorsOfMixedDtypesInOneCall) {
  const Context context = make_context(3);
  std::vector<Buffer> src, dst;
  Random random(23);
  for (int64_t i = 0; i < 300; ++i) {
    src.emplace_back(kAllDtypes[random.below(4)], random.below(200), random.below(8));
    dst.emplace_back(kAllDtypes[random.below(4)], src.back().count(), random.below(8));
    src.back().fill_random(random, -100.0, 100.0);
  }
  ASSERT_GSC_OK(gsc_ops_cast(context, tensors_of(src).data(), tensors_of(dst).data(), 300, nullptr));
  for (size_t t = 0; t < src.size(); ++t) {
    ASSERT_TRUE(dst[t].guards_intact());
    for (int64_t i = 0; i < src[t].count(); ++i) {
      ASSERT_EQ(dst[t].get(i), round_to(src[t].get(i), dst[t].dtype())) << "tensor " << t << " element " << i;
    }
  }
}

TEST(StatelessUpdateScale, PyTorchTrajectory) {
  const Context context = make_context();
  float scale = 4.0f, found_inf = 0.0f;
  int32_t tracker = 0;
  const auto update = [&] {
    EXPECT_GSC_OK(gsc_ops_update_scale(context, &scale, &tracker, &found_inf, 2.0, 0.25, 2, nullptr));
  };
  update();
  EXPECT_EQ(tracker, 1);
  EXPECT_EQ(scale, 4.0f);
  update();
  EXPECT_EQ(tracker, 0);
  EXPECT_EQ(scale, 8.0f);
  for (const float found : {1.0f, 2.0f, 0.5f}) {
    scale = 8.0f;
    tracker = 1;
    found_inf = found;
    update();
    EXPECT_EQ(tracker, 0) << found;
    EXPECT_EQ(scale, 2.0f) << found;
  }
  scale = 1e38f;
  found_inf = 0.0f;
  EXPECT_GSC_OK(gsc_ops_update_scale(context, &scale, &tracker, &found_inf, 16.0, 0.5, 1, nullptr));
  EXPECT_EQ(scale, 1e38f) << "a growth that is not finite is not stored";
  EXPECT_EQ(tracker, 0);
}

}  // namespace
}  // namespace gsc_test
