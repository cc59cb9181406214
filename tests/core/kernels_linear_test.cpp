// SPDX-License-Identifier: Apache-2.0
// The element-wise kernels outside the optimizer, linear and diagnose, for every instruction set this processor has,
// against references of one element at a time. Casting every 16-bit pattern also tests the block conversions of
// core/cpu/convert.h in each instruction set; convert_test.cpp has shown the scalar ones right.
#include "tests/core/kernel_testing.h"

namespace gsc::cpu {
namespace {

using namespace gsc::cpu::testing;
using enum Elementwise;

template <typename T>
T reference_linear(Elementwise op, T a, T b, T x, T y) {
  switch (op) {
    case kCast:
      return x;
    case kScale:
      return a * x;
    case kAxpby:
      return a * x + b * y;
    case kFill:
      return a;
    case kClamp:
      break;
  }
  return std::isnan(x) ? x : std::clamp(x, -a, a);
}

Buffer reference_linear(Elementwise op, double a, double b, const Buffer &src, const Buffer &dst) {
  Buffer result = dst;
  for (int64_t i = 0; i < src.size(); ++i) {
    if (op == kCast && src.dtype() == dst.dtype()) {
      std::memcpy(result.data(i), src.data(i), dtype_bytes(src.dtype()));
    } else if (src.dtype() == GSC_FP64 || dst.dtype() == GSC_FP64 || op == kFill) {
      result.set(i, reference_linear<double>(op, a, b, src.get(i), dst.get(i)));
    } else {
      result.set(i, reference_linear<float>(op, a, b, src.get(i), dst.get(i)));
    }
  }
  return result;
}

void expect_linear(Elementwise op, double a, double b, const Buffer &src, const Buffer &dst, bool in_place = false) {
  const Buffer expected = reference_linear(op, a, b, src, dst);
  for (const Kernels *kernels : usable_kernels()) {
    for (const int way : {0, 1, 2, 3}) {
      const bool streaming = (way & 1) != 0, in_places = (way & 2) != 0;
      Buffer result = dst;
      kernels->elementwise({in_place ? result.data() : src.data(), result.data(), src.size(), src.dtype(), dst.dtype(),
                            op, a, b, streaming, in_places});
      const int64_t i = result.first_difference(expected);
      ASSERT_EQ(i, -1) << kernels->name << " op " << static_cast<int>(op) << (streaming ? " streaming " : " ")
                       << (in_places ? "in places " : "") << dtype_name(src.dtype()) << " to "
                       << dtype_name(dst.dtype()) << " n=" << src.size() << ": " << src.get(i) << " gave "
                       << result.get(i) << " instead of " << expected.get(i);
    }
  }
}

/// Ordinary values, with special ones strewn in.
Buffer mixed(int32_t dtype, int64_t n, int shift, std::mt19937_64 &random) {
  Buffer buffer(dtype, n, shift);
  fill(buffer, kAnyFinite, random);
  const double special[] = {kInf, -kInf, kNan,    -kNan,   0.0,     -0.0,     1.0,
                            -1.0, 0.5,   65504.0, 65519.0, 65520.0, 0x1p-133, 3e38};
  for (int64_t i = 0; i < n; i += 3) buffer.set(i, special[random() % std::size(special)]);
  return buffer;
}

class KernelLinear : public ::testing::TestWithParam<std::tuple<int32_t, int32_t>> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, KernelLinear,
                         ::testing::Combine(::testing::ValuesIn(kDtypes), ::testing::ValuesIn(kDtypes)),
                         [](const auto &info) {
                           return dtype_name(std::get<0>(info.param)) + "_to_" + dtype_name(std::get<1>(info.param));
                         });

/// Every operation but axpby.
void expect_operations(const Buffer &src, const Buffer &dst, bool in_place = false) {
  expect_linear(kCast, 0, 0, src, dst, in_place);
  for (const double a : {1.7, 0x1p16, -0.0}) expect_linear(kScale, a, 0, src, dst, in_place);
  for (const double a : {0.3, kInf}) expect_linear(kClamp, a, 0, src, dst, in_place);
  for (const double a : {0.3, 0.0}) expect_linear(kFill, a, 0, src, dst, in_place);
}

TEST_P(KernelLinear, EveryOperationAndLength) {
  const auto [from, to] = GetParam();
  std::mt19937_64 random(9);
  for (int64_t n = 0; n <= 600; ++n) {
    expect_operations(mixed(from, n, n % 7, random), mixed(to, n, n % 3, random));
    if (HasFatalFailure()) return;
  }
}

// Long enough to be worked on at four places in turn, with a rest behind them.
TEST_P(KernelLinear, LongSpans) {
  const auto [from, to] = GetParam();
  std::mt19937_64 random(12);
  for (const int64_t n : {16383, 16384, 20001, 65536}) {
    expect_operations(mixed(from, n, 1, random), mixed(to, n, n % 5, random));
    if (HasFatalFailure()) return;
  }
}

TEST_P(KernelLinear, Axpby) {
  const auto [from, to] = GetParam();
  std::mt19937_64 random(10);
  for (const int64_t n : lengths(from, false)) {
    Buffer src(from, n, 1);
    Buffer dst(to, n, 2);
    // Of all kinds, but without two NaN in one sum: which of them comes out is the compiler's choice.
    fill(src, kAnyFinite, random);
    fill(dst, kAnyFinite, random);
    for (int64_t i = 0; i < n; i += 17) src.set(i, i % 2 == 0 ? kNan : kInf);
    expect_linear(kAxpby, 0.1, -2.5, src, dst);
    expect_linear(kAxpby, 1.0, 1.0, src, dst);
    expect_linear(kAxpby, -0.0, -0.0, src, dst);
    if (HasFatalFailure()) return;
  }
}

class KernelLinearInPlace : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, KernelLinearInPlace, ::testing::ValuesIn(kDtypes),
                         [](const auto &info) { return dtype_name(info.param); });

TEST_P(KernelLinearInPlace, EveryOperation) {
  std::mt19937_64 random(11);
  for (const int64_t n : lengths(GetParam(), false)) {
    const Buffer data = mixed(GetParam(), n, 1, random);
    expect_operations(data, data, true);
    if (HasFatalFailure()) return;
  }
}

TEST(KernelCast, EveryPatternOf16Bits) {
  for (const int32_t from : {GSC_FP16, GSC_BF16}) {
    Buffer src(from, 65536);
    for (int64_t i = 0; i < src.size(); ++i) {
      gsc_test::write_at<uint16_t>(src.data(i), i);
    }
    for (const int32_t to : kDtypes) expect_linear(kCast, 0, 0, src, Buffer(to, 65536));
  }
}

TEST(KernelCast, RandomPatternsTo16Bits) {
  std::mt19937_64 random(12);
  for (const int32_t from : {GSC_FP32, GSC_FP64}) {
    Buffer src(from, 200000);
    for (int64_t i = 0; i < src.size(); ++i) {
      const uint64_t bits = random();
      std::memcpy(src.data(i), &bits, dtype_bytes(from));
      if (i % 2 == 0 && from == GSC_FP64) src.set(i, std::ldexp(1.0 + (bits >> 11), -53 - i % 40));
    }
    for (const int32_t to : kDtypes) expect_linear(kCast, 0, 0, src, Buffer(to, src.size()));
  }
}

// --- diagnose --------------------------------------------------------------------------------------------------------

struct Diagnosis {
  ChunkDiagnosis found{};
  std::vector<int64_t> histogram = std::vector<int64_t>(GSC_EXPONENT_BINS, 0);
};

Diagnosis reference_diagnosis(const Buffer &data) {
  Diagnosis d;
  d.found.first_nonfinite = -1;
  const double normal = format_of(data.dtype()).min_normal();
  const size_t columns = kRowBytes / dtype_bytes(data.dtype());
  std::vector<double> tile;  // what is not finite counts as 0
  for (int64_t i = 0; i < data.size(); ++i) {
    const double x = std::fabs(data.get(i));
    tile.push_back(std::isfinite(x) ? x : 0.0);
    if (tile.size() == columns * kRows || i + 1 == data.size()) {
      d.found.sum_sq += reference_tile<double>(tile, columns);
      tile.clear();
    }
    if (!std::isfinite(x)) {
      (std::isnan(x) ? d.found.nan_count : d.found.inf_count) += 1;
      if (d.found.first_nonfinite < 0) d.found.first_nonfinite = i;
    } else if (x == 0.0) {
      ++d.found.zero_count;
    } else {
      d.found.subnormal_count += x < normal ? 1 : 0;
      d.found.amax = std::max(d.found.amax, x);
      d.found.amin = d.found.amin == 0.0 ? x : std::min(d.found.amin, x);
      const int bin = std::ilogb(x) - GSC_EXPONENT_MIN;
      ++d.histogram[std::clamp(bin, 0, GSC_EXPONENT_BINS - 1)];
    }
  }
  return d;
}

void expect_diagnosis(const Buffer &data) {
  const Diagnosis expected = reference_diagnosis(data);
  for (const Kernels *kernels : usable_kernels()) {
    SCOPED_TRACE(::testing::Message() << kernels->name << ' ' << dtype_name(data.dtype()) << " n=" << data.size());
    for (const ReadAhead ahead : kReadAheads) {
      const bool with_histogram = ahead != ReadAhead::kPageStarts;
      std::vector<int64_t> histogram(GSC_EXPONENT_BINS, 1);  // the kernel adds
      ChunkDiagnosis found;
      std::memset(&found, 77, sizeof found);
      kernels->diagnose(data.dtype(), data.data(), data.size(), ahead, with_histogram ? histogram.data() : nullptr,
                        &found);
      EXPECT_EQ(found.inf_count, expected.found.inf_count);
      EXPECT_EQ(found.nan_count, expected.found.nan_count);
      EXPECT_EQ(found.zero_count, expected.found.zero_count);
      EXPECT_EQ(found.subnormal_count, expected.found.subnormal_count);
      EXPECT_EQ(found.first_nonfinite, expected.found.first_nonfinite);
      EXPECT_TRUE(same_bits(found.amax, expected.found.amax)) << found.amax;
      EXPECT_TRUE(same_bits(found.amin, expected.found.amin)) << found.amin;
      EXPECT_TRUE(same_bits(found.sum_sq, expected.found.sum_sq)) << found.sum_sq;
      for (size_t b = 0; b < histogram.size(); ++b) {
        ASSERT_EQ(histogram[b], 1 + (with_histogram ? expected.histogram[b] : 0)) << "bin " << b;
      }
    }
  }
}

class KernelDiagnose : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, KernelDiagnose, ::testing::ValuesIn(kDtypes),
                         [](const auto &info) { return dtype_name(info.param); });

TEST_P(KernelDiagnose, CountsEverything) {
  std::mt19937_64 random(13);
  for (const Fill kind : kFills) {
    for (const int64_t n : lengths(GetParam(), false)) {
      Buffer data(GetParam(), n, n % 4);
      fill(data, kind, random);
      expect_diagnosis(data);
      for (int64_t i = n / 2; i < n; i += 61) data.set(i, i % 3 == 0 ? kNan : (i % 3 == 1 ? -kInf : -0.0));
      expect_diagnosis(data);
      if (HasFailure()) return;
    }
  }
}

TEST_P(KernelDiagnose, ExtremesOfTheDtype) {
  Buffer data(GetParam(), 8);
  const gsc_test::Format format = format_of(GetParam());
  const double largest = GetParam() == GSC_FP64 ? 1e150 : format.max();  // whose square is finite
  const double normal = format.min_normal(), smallest = format.min_subnormal();
  const double values[] = {largest, -largest, normal, -normal / 2, smallest, 0.0, -0.0, 1.0};
  for (int i = 0; i < 8; ++i) {
    data.set(i, values[i]);
    ASSERT_EQ(data.get(i), values[i]);
  }
  expect_diagnosis(data);
}

}  // namespace
}  // namespace gsc::cpu
