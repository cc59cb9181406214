// SPDX-License-Identifier: Apache-2.0
// State of frameworks that keep it themselves: gsc_ops_convert_state against the rules of core/rules. tests/oracle has
// the random bits of shards.
#include "core/rules/state_conversion.h"

#include "core/rules/split.h"
#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {

/// A tensor of state with its memory.
struct Stored {
  Image data, scales;
  gsc_tensor tensor;
  Stored(int32_t dtype, int64_t count)
      : data(count * gsc::dtype_bytes(dtype)), tensor(GSC_TENSOR_INIT(data.data(), count, dtype)) {
    tensor.scale_dtype = gsc::scale_dtype_of(dtype);
    if (tensor.scale_dtype == 0) return;
    scales.resize(gsc::state_groups(count) * gsc::dtype_bytes(tensor.scale_dtype));
    tensor.scale = count > 0 ? scales.data() : nullptr;
    tensor.scale_block_rows = 1;
    tensor.scale_block_columns = 32;
  }
  template <typename T>
  T *as() {
    return reinterpret_cast<T *>(data.data());
  }
};

gsc_status convert(const Context &context, const Stored &from, const gsc_tensor *weights, const Stored &to) {
  return gsc_ops_convert_state(context, &from.tensor, weights, &to.tensor, 1, nullptr);
}

std::vector<float> magnitudes(int64_t count) {
  Random random(5);
  std::vector<float> x(count);
  for (float &v : x) v = std::ldexp(random.uniform(0.0, 1.0), random.below(24) - 30);
  return x;
}
class StateConversion : public OnCpu {};

TEST_F(StateConversion, EveryCodeFromFp32AndBack) {
  for (const int64_t count : {0, 1, 33, 1000, (1 << 20) + 40}) {
    const std::vector<float> x = magnitudes(count);
    Stored full(GSC_FP32, count), back(GSC_FP32, count);
    if (count > 0) std::memcpy(full.data.data(), x.data(), full.data.size());
    for (const int32_t dtype : {GSC_BF16, GSC_FP8_E4M3, GSC_UINT8_LOG, GSC_UFP16_E6M10}) {
      Stored code(dtype, count);
      ASSERT_GSC_OK(convert(context, full, nullptr, code));
      expect_nearest(code.tensor, x.data());
      ASSERT_GSC_OK(convert(context, code, nullptr, back));
      const std::vector<float> values = decode(code.tensor);
      ASSERT_TRUE(std::equal(values.begin(), values.end(), back.as<float>()));
    }
  }
}

TEST_F(StateConversion, CodesOfOneSlotIntoEachOther) {
  const std::vector<float> x = magnitudes(100);
  for (const auto &[first, second] :
       {std::pair(GSC_BF16, GSC_FP8_E4M3), std::pair(GSC_UFP16_E6M10, GSC_UINT8_LOG),
        std::pair(GSC_INT8_SOFTSIGN, GSC_BF16), std::pair(GSC_UINT8_SQRT, GSC_UINT8_LOG)}) {
    Stored full(GSC_FP32, 100), from(first, 100), to(second, 100);
    std::memcpy(full.data.data(), x.data(), full.data.size());
    ASSERT_GSC_OK(convert(context, full, nullptr, from));
    ASSERT_GSC_OK(convert(context, from, nullptr, full));
    ASSERT_GSC_OK(convert(context, from, nullptr, to));
    expect_nearest(to.tensor, full.as<float>());
  }
}

constexpr uint16_t kFp16Nan = 0x7e00;

/// A group of FlashOptim's codes from values, with its scale and what it decodes to.
struct FlashGroup {
  Stored codes, full, back;
  uint16_t scale = 0;
  FlashGroup(const Context &context, int32_t dtype, const std::vector<float> &x)
      : codes(dtype, 32), full(GSC_FP32, 32), back(GSC_FP32, 32) {
    for (size_t i = 0; i < x.size(); ++i) full.as<float>()[i] = x[i];
    EXPECT_GSC_OK(convert(context, full, nullptr, codes));
    EXPECT_GSC_OK(convert(context, codes, nullptr, back));
    std::memcpy(&scale, codes.scales.data(), sizeof scale);
  }
};

class FlashCodes : public OnCpu {};

// FlashOptim, quantize and dequantize: y = 2x / (1 + |x|) of x = m / scale, code = floor(127 y + 0.5); back y / (2 - |y|)
// times the scale. Of v the root, code = floor(255 x + 0.5), and the square.
TEST_F(FlashCodes, AreFlashOptims) {
  for (const float scale : {1.0f, 0.37109375f, 65504.0f, 0x1p-14f, 0x1.8p-20f}) {
    for (const int32_t dtype : {GSC_INT8_SOFTSIGN, GSC_UINT8_SQRT}) {
      const bool is_moment = dtype == GSC_INT8_SOFTSIGN;
      const int smallest = is_moment ? -127 : 0, largest = is_moment ? 127 : 255;
      Stored codes(dtype, 256), back(GSC_FP32, 256);
      const auto code_of = [&](int i) { return i % 32 == 0 ? largest : std::min(smallest + i, largest); };
      for (int i = 0; i < 256; ++i) codes.data[i] = static_cast<unsigned char>(code_of(i));
      for (int g = 0; g < 8; ++g) {
        const uint16_t stored = gsc::fp32_to_fp16(scale);
        std::memcpy(codes.scales.data() + 2 * g, &stored, sizeof stored);
      }
      ASSERT_GSC_OK(convert(context, codes, nullptr, back));
      for (int i = 0; i < 256; ++i) {
        const double y = code_of(i) / (is_moment ? 127.0 : 255.0);
        const double value = is_moment ? y / (2.0 - std::fabs(y)) * scale : y * scale * (y * scale);
        ASSERT_NEAR(back.as<float>()[i], value, std::fabs(value) * 0x1p-21) << i << " " << scale;
      }
    }
  }
}

TEST_F(FlashCodes, AreTheNearestOfTheStoredScale) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> x(32);
    const int exponent = random.below(24) - 20;
    for (float &v : x) v = std::ldexp(random.uniform(-1.0, 1.0), exponent);
    FlashGroup moments(context, GSC_INT8_SOFTSIGN, x);
    for (float &v : x) v = v * v;
    const FlashGroup squares(context, GSC_UINT8_SQRT, x);
    const double m_scale = gsc::fp16_to_fp32(moments.scale), v_scale = gsc::fp16_to_fp32(squares.scale);
    for (size_t i = 0; i < 32; ++i) {
      const double m = moments.full.as<float>()[i];
      const double share = std::min(std::fabs(m) / m_scale, 1.0);
      const auto code = static_cast<int8_t>(moments.codes.data[i]);
      ASSERT_LE(std::fabs(254.0 * share / (1.0 + share) - std::abs(int{code})), 0.5 + 1e-4) << m;
      ASSERT_TRUE(code == 0 || std::signbit(m) == (code < 0));
      const double root = 255.0 * std::min(std::sqrt(double{x[i]}) / v_scale, 1.0);
      ASSERT_LE(std::fabs(root - squares.codes.data[i]), root < 0.5 ? 1.0 : 0.5 + 1e-4);
      ASSERT_TRUE(x[i] == 0.0f || squares.codes.data[i] > 0);
    }
  }
}

TEST_F(FlashCodes, OfGroupsWithoutAnOrdinaryScale) {
  for (const int32_t dtype : {GSC_INT8_SOFTSIGN, GSC_UINT8_SQRT}) {
    const bool is_moment = dtype == GSC_INT8_SOFTSIGN;
    FlashGroup zero(context, dtype, {0.0f, -0.0f});
    EXPECT_EQ(zero.scale, 0);
    FlashGroup tiny(context, dtype, {is_moment ? 0x1p-26f : 0x1p-52f});  // the scale is half of fp16's smallest
    EXPECT_EQ(tiny.scale, 0);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(zero.back.as<float>()[i], 0.0f);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(tiny.back.as<float>()[i], 0.0f);
    for (const float large : {1e30f, INFINITY}) {
      FlashGroup huge(context, dtype, {large, 1.0f});
      EXPECT_EQ(huge.back.as<float>()[0], is_moment ? 65504.0f : 65504.0f * 65504.0f);
    }
    FlashGroup lost(context, dtype, {1.0f, NAN, INFINITY});
    EXPECT_EQ(lost.scale, kFp16Nan);
    for (int i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(lost.back.as<float>()[i])) << i;
  }
}

TEST_F(FlashCodes, AreForConversionAlone) {
  const Stored full(GSC_FP32, 64), moments(GSC_INT8_SOFTSIGN, 64), squares(GSC_UINT8_SQRT, 64);
  gsc_tensor_list *list = nullptr;
  EXPECT_INVALID(gsc_tensor_list_create(context, &moments.tensor, 1, nullptr, &list), "tensors[0].dtype",
                 "gsc_ops_convert_state");
  EXPECT_INVALID(convert(context, moments, nullptr, squares), "dst[0]");
  Stored wrong(GSC_INT8_SOFTSIGN, 64);
  wrong.tensor.scale_dtype = GSC_FP8_E8M0;
  EXPECT_INVALID(convert(context, full, nullptr, wrong), "dst[0].scale_dtype");
  wrong = Stored(GSC_INT8_SOFTSIGN, 64);
  wrong.tensor.scale = wrong.scales.data() + 1;
  EXPECT_INVALID(convert(context, full, nullptr, wrong), "dst[0].scale", "aligned");
}

TEST_F(StateConversion, MastersIntoRemaindersOfTheirWeightsAndBack) {
  const int64_t count = 5000;
  Random random(9);
  for (const int32_t dtype : {GSC_BF16, GSC_FP16}) {
    Stored masters(GSC_FP32, count), back(GSC_FP32, count), rounded(GSC_FP32, count), weights(dtype, count);
    for (int64_t i = 0; i < count; ++i) masters.as<float>()[i] = random.uniform(-2.0, 2.0);
    masters.as<float>()[0] = 1.0f + 0x1p-8f;   // a tie in bf16 ...
    masters.as<float>()[1] = 1.0f + 0x1p-11f;  // ... and in fp16: weights are rounded to even, and so down
    ASSERT_GSC_OK(gsc_ops_cast(context, &masters.tensor, &weights.tensor, 1, nullptr));
    ASSERT_GSC_OK(gsc_ops_cast(context, &weights.tensor, &rounded.tensor, 1, nullptr));
    for (const int32_t kept : {GSC_INT16, GSC_INT8}) {
      Stored remainders(kept, count), other(kept == GSC_INT16 ? GSC_INT8 : GSC_INT16, count);
      ASSERT_GSC_OK(convert(context, masters, &weights.tensor, remainders));
      ASSERT_GSC_OK(convert(context, remainders, &weights.tensor, back));
      for (int64_t i = 0; i < count; ++i) {
        const float master = masters.as<float>()[i], found = back.as<float>()[i];
        const float unit = std::ldexp(1.0f, std::ilogb(master) - (dtype == GSC_BF16 ? 7 : 10));
        const bool is_tie = std::fabs(rounded.as<float>()[i] - master) == unit / 2;
        ASSERT_TRUE(is_tie || i != (dtype == GSC_BF16 ? 0 : 1));
        const bool is_exact = kept == GSC_INT16 && !is_tie && std::fabs(master) >= 0x1p-17f;
        ASSERT_LE(std::fabs(found - master), is_exact ? 0.0f : unit / (kept == GSC_INT16 ? 8192.0f : 256.0f)) << i;
      }
      ASSERT_GSC_OK(convert(context, remainders, nullptr, other));
    }
  }
}

/// Every remainder of 16 bits in 8, and back. Its weight is only read, so nothing is carried into it: a remainder that
/// would round to half a unit has the largest number below.
TEST_F(StateConversion, RemaindersOfOneSizeIntoTheOther) {
  Stored wide(GSC_INT16, 65536), small(GSC_INT8, 65536), back(GSC_INT16, 65536);
  for (int i = 0; i < 65536; ++i) wide.as<int16_t>()[i] = static_cast<int16_t>(i - 32768);
  ASSERT_GSC_OK(convert(context, wide, nullptr, small));
  ASSERT_GSC_OK(convert(context, small, nullptr, back));
  for (int i = 0; i < 65536; ++i) {
    const int remainder = i - 32768, nearest = static_cast<int>(std::floor((remainder + 128) / 256.0));
    ASSERT_EQ(small.as<int8_t>()[i], std::min(nearest, 127)) << remainder;
    ASSERT_EQ(back.as<int16_t>()[i], 256 * small.as<int8_t>()[i]) << remainder;
    // 2^-9 and 2^-8 of the weight's spacing, as semantics.md says.
    ASSERT_LE(std::abs(back.as<int16_t>()[i] - remainder), nearest <= 127 ? 128 : 255) << remainder;
  }
}

TEST_F(StateConversion, AMasterOfAnotherWeightHasTheRemainderOfItsOwn) {
  Stored masters(GSC_FP32, 3), weights(GSC_BF16, 3), remainders(GSC_INT16, 3);
  const float values[3] = {1.001f, -1.001f, NAN};
  std::memcpy(masters.data.data(), values, sizeof values);
  for (int i = 0; i < 3; ++i) weights.as<uint16_t>()[i] = 0x4080;  // 4
  ASSERT_GSC_OK(convert(context, masters, &weights.tensor, remainders));
  for (int i = 0; i < 3; ++i) {
    const auto remainder = static_cast<int16_t>(gsc::Split<gsc::Bf16, int16_t>::divide(values[i]).remainder);
    EXPECT_EQ(remainders.as<int16_t>()[i], remainder) << i;
  }
}

TEST_F(StateConversion, WhatDoesNotFitIsRefusedByName) {
  const Stored full(GSC_FP32, 64), moments(GSC_FP8_E4M3, 64), squares(GSC_UINT8_LOG, 64), remainders(GSC_INT16, 64),
      wide(GSC_FP64, 64), few(GSC_FP32, 32), weights(GSC_BF16, 64);
  const auto refused = [&](const Stored &from, const gsc_tensor *weight, const Stored &to, const char *argument) {
    EXPECT_INVALID(convert(context, from, weight, to), argument);
  };
  refused(moments, nullptr, squares, "dst[0]");
  refused(moments, &weights.tensor, remainders, "dst[0]");
  refused(wide, nullptr, full, "dst[0]");
  refused(few, nullptr, moments, "dst[0]");
  refused(full, nullptr, full, "src[0]");
  refused(full, nullptr, remainders, "weights");
  refused(full, &few.tensor, remainders, "weights[0]");
  refused(remainders, &full.tensor, full, "weights[0]");
  // All that it takes, and nothing else, is named to whoever gives another.
  Stored unknown(GSC_FP32, 64);
  unknown.tensor.dtype = 99;
  for (const gsc_status status : {convert(context, unknown, nullptr, full), convert(context, full, nullptr, unknown)}) {
    EXPECT_INVALID(status, "[0].dtype is 99; it must be",
                   "GSC_BF16, GSC_FP32, GSC_FP8_E4M3, GSC_UINT8_LOG, GSC_UFP16_E6M10, GSC_INT8, GSC_INT16, "
                   "GSC_INT8_SOFTSIGN or GSC_UINT8_SQRT");
  }
  Stored without(GSC_FP8_E4M3, 64);
  without.tensor.scale = nullptr;
  refused(full, nullptr, without, "dst[0].scale");
}

TEST(StateShards, OffsetsAreChecked) {
  const Context context = make_context();
  for (const int32_t format : {GSC_STATE_BITS8, GSC_STATE_FULL}) {
    const Small small(context, adamw(format, GSC_MASTER_NONE), GSC_BF16);
    gsc_optimizer *o = small.optimizer.get();
    for (const int64_t wrong : {int64_t{16}, int64_t{-32}, (int64_t{1} << 53) + 32}) {
      const int64_t offsets[] = {0, wrong};
      EXPECT_INVALID(gsc_optimizer_set_offsets(o, offsets, 2, nullptr), "offsets[1]", "multiple of 32");
    }
    const int64_t offsets[] = {64, 32};
    EXPECT_INVALID(gsc_optimizer_set_offsets(o, offsets, 1, nullptr), "count");
    EXPECT_INVALID(gsc_optimizer_set_offsets(o, nullptr, 2, nullptr), "offsets");
    EXPECT_GSC_OK(gsc_optimizer_set_offsets(o, offsets, 2, nullptr));
  }
}

}  // namespace
}  // namespace gsc_test
