// SPDX-License-Identifier: Apache-2.0
//
// Conversions between dtypes in lists: fp64 to fp32, copies of equal dtypes bit for bit, NaN payloads included, and mixed
// dtypes. Every 16-bit pattern and every midpoint is in tests/core/convert_test.cpp, and through the kernels in
// tests/core/kernels_linear_test.cpp.
#include "tests/support/objects.h"
#include "tests/support/oracle.h"

namespace gsc_test {
namespace {

void cast(const Context &context, Buffer &src, Buffer &dst) {
  const gsc_tensor s = src.tensor(), d = dst.tensor();
  ASSERT_GSC_OK(gsc_ops_cast(context, &s, &d, 1, nullptr));
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

}  // namespace
}  // namespace gsc_test
