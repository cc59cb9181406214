// SPDX-License-Identifier: Apache-2.0
// State of frameworks that keep it themselves: gsc_ops_convert_state against the rules of core/rules, and shards of
// an optimizer, which draw the random bits of the whole by gsc_optimizer_set_offsets.
#include "core/rules/state_conversion.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "core/rules/split.h"
#include "tests/support/objects.h"
#include "tests/support/oracle.h"

namespace gsc_test {
namespace {

/// A tensor of state with its memory.
struct Stored {
  std::vector<unsigned char> data, scales;
  gsc_tensor tensor;
  Stored(int32_t dtype, int64_t count)
      : data(static_cast<size_t>(count * gsc::dtype_bytes(dtype))), tensor(GSC_TENSOR_INIT(data.data(), count, dtype)) {
    tensor.scale_dtype = gsc::scale_dtype_of(dtype);
    if (tensor.scale_dtype == 0) return;
    scales.resize(static_cast<size_t>(gsc::state_groups(count) * gsc::dtype_bytes(tensor.scale_dtype)));
    tensor.scale = count > 0 ? scales.data() : nullptr;
    tensor.scale_block_rows = 1;
    tensor.scale_block_columns = 32;
  }
  template <typename T>
  T *as() {
    return reinterpret_cast<T *>(data.data());
  }
};

std::vector<float> decoded(Stored &s) {
  std::vector<float> values(static_cast<size_t>(s.tensor.count));
  gsc::with_state_code(s.tensor.dtype, [&](auto code) {
    using C = decltype(code);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = C::decode(s.as<typename C::Stored>()[i], C::kGrouped ? s.scales[i / 32] : 0);
    }
  });
  return values;
}

/// Expects the codes to be the nearest ones of `x`.
void expect_nearest(Stored &s, const std::vector<float> &x) {
  gsc::with_state_code(s.tensor.dtype, [&](auto code) {
    using C = decltype(code);
    for (size_t i = 0; i < x.size(); ++i) {
      uint32_t largest = 0;
      for (size_t k = i / 32 * 32; k < std::min(i / 32 * 32 + 32, x.size()); ++k) {
        largest = std::max(largest, gsc::to_bits(std::fabs(x[k])));
      }
      uint32_t scale = 0;
      if constexpr (C::kGrouped) {
        scale = C::scale_for(largest);
        ASSERT_EQ(s.scales[i / 32], scale);
      }
      ASSERT_EQ(s.as<typename C::Stored>()[i], C::encode(x[i], scale, gsc::kToNearest)) << i;
    }
  });
}

gsc_status convert(const Context &context, const Stored &from, const gsc_tensor *weights, const Stored &to) {
  return gsc_ops_convert_state(context.get(), &from.tensor, weights, &to.tensor, 1, nullptr);
}

std::vector<float> magnitudes(int64_t count) {
  Random random(5);
  std::vector<float> x(static_cast<size_t>(count));
  for (float &v : x)
    v = static_cast<float>(std::ldexp(random.uniform(0.0, 1.0), static_cast<int>(random.below(24)) - 30));
  return x;
}

TEST(StateConversion, EveryCodeFromFp32AndBack) {
  const Context context = make_context();
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{33}, int64_t{1000}, (int64_t{1} << 20) + 40}) {
    const std::vector<float> x = magnitudes(count);
    Stored full(GSC_FP32, count), back(GSC_FP32, count);
    if (count > 0) std::memcpy(full.data.data(), x.data(), full.data.size());
    for (const int32_t dtype : {GSC_BF16, GSC_FP8_E4M3, GSC_UFP8_E4M4, GSC_UFP16_E5M11}) {
      Stored code(dtype, count);
      ASSERT_GSC_OK(convert(context, full, nullptr, code));
      expect_nearest(code, x);
      ASSERT_GSC_OK(convert(context, code, nullptr, back));
      const std::vector<float> values = decoded(code);
      ASSERT_TRUE(std::equal(values.begin(), values.end(), back.as<float>()));
    }
  }
}

TEST(StateConversion, CodesOfOneSlotIntoEachOther) {
  const Context context = make_context();
  const std::vector<float> x = magnitudes(100);
  for (const auto &[first, second] :
       {std::pair(GSC_BF16, GSC_FP8_E4M3), std::pair(GSC_UFP16_E5M11, GSC_UFP8_E4M4),
        std::pair(GSC_INT8_SOFTSIGN, GSC_BF16), std::pair(GSC_UINT8_SQRT, GSC_UFP8_E4M4)}) {
    Stored full(GSC_FP32, 100), from(first, 100), to(second, 100);
    std::memcpy(full.data.data(), x.data(), full.data.size());
    ASSERT_GSC_OK(convert(context, full, nullptr, from));
    ASSERT_GSC_OK(convert(context, from, nullptr, full));
    ASSERT_GSC_OK(convert(context, from, nullptr, to));
    expect_nearest(to, {full.as<float>(), full.as<float>() + 100});
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

// FlashOptim, quantize and dequantize: y = 2x / (1 + |x|) of x = m / scale, code = floor(127 y + 0.5); back y / (2 - |y|)
// times the scale. Of v the root, code = floor(255 x + 0.5), and the square.
TEST(FlashCodes, AreFlashOptims) {
  const Context context = make_context();
  for (const float scale : {1.0f, 0.37109375f, 65504.0f, 0x1p-14f, 0x1.8p-20f}) {
    for (const int32_t dtype : {GSC_INT8_SOFTSIGN, GSC_UINT8_SQRT}) {
      const bool is_moment = dtype == GSC_INT8_SOFTSIGN;
      const int smallest = is_moment ? -127 : 0, largest = is_moment ? 127 : 255;
      Stored codes(dtype, 256), back(GSC_FP32, 256);
      const auto code_of = [&](int i) { return i % 32 == 0 ? largest : std::min(smallest + i, largest); };
      for (int i = 0; i < 256; ++i) codes.data[static_cast<size_t>(i)] = static_cast<unsigned char>(code_of(i));
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

TEST(FlashCodes, AreTheNearestOfTheStoredScale) {
  const Context context = make_context();
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> x(32);
    const int exponent = static_cast<int>(random.below(24)) - 20;
    for (float &v : x) v = static_cast<float>(std::ldexp(random.uniform(-1.0, 1.0), exponent));
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

TEST(FlashCodes, OfGroupsWithoutAnOrdinaryScale) {
  const Context context = make_context();
  for (const int32_t dtype : {GSC_INT8_SOFTSIGN, GSC_UINT8_SQRT}) {
    const bool is_moment = dtype == GSC_INT8_SOFTSIGN;
    FlashGroup zero(context, dtype, {0.0f, -0.0f});
    EXPECT_EQ(zero.scale, 0);
    FlashGroup tiny(context, dtype, {is_moment ? 0x1p-26f : 0x1p-52f});  // the scale is half of fp16's smallest
    EXPECT_EQ(tiny.scale, 0);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(zero.back.as<float>()[i], 0.0f);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(tiny.back.as<float>()[i], 0.0f);
    FlashGroup huge(context, dtype, {1e30f, 1.0f});
    EXPECT_EQ(huge.back.as<float>()[0], is_moment ? 65504.0f : 65504.0f * 65504.0f);
    for (const float bad : {NAN, INFINITY}) {
      FlashGroup lost(context, dtype, {1.0f, bad, 2.0f});
      EXPECT_EQ(lost.scale, kFp16Nan);
      for (int i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(lost.back.as<float>()[i])) << i;
    }
  }
}

TEST(FlashCodes, AreForConversionAlone) {
  const Context context = make_context();
  const Stored full(GSC_FP32, 64), moments(GSC_INT8_SOFTSIGN, 64), squares(GSC_UINT8_SQRT, 64);
  gsc_tensor_list *list = nullptr;
  EXPECT_GSC_ERROR(gsc_tensor_list_create(context.get(), &moments.tensor, 1, nullptr, &list),
                   GSC_ERROR_INVALID_ARGUMENT, "tensors[0].dtype", "gsc_ops_convert_state");
  EXPECT_GSC_ERROR(convert(context, moments, nullptr, squares), GSC_ERROR_INVALID_ARGUMENT, "dst[0]");
  Stored wrong(GSC_INT8_SOFTSIGN, 64);
  wrong.tensor.scale_dtype = GSC_FP8_E8M0;
  EXPECT_GSC_ERROR(convert(context, full, nullptr, wrong), GSC_ERROR_INVALID_ARGUMENT, "dst[0].scale_dtype");
  wrong = Stored(GSC_INT8_SOFTSIGN, 64);
  wrong.tensor.scale = wrong.scales.data() + 1;
  EXPECT_GSC_ERROR(convert(context, full, nullptr, wrong), GSC_ERROR_INVALID_ARGUMENT, "dst[0].scale", "aligned");
}

TEST(StateConversion, MastersIntoRemaindersOfTheirWeightsAndBack) {
  const Context context = make_context();
  const int64_t count = 5000;
  Random random(9);
  for (const int32_t dtype : {GSC_BF16, GSC_FP16}) {
    Stored masters(GSC_FP32, count), back(GSC_FP32, count), rounded(GSC_FP32, count), weights(dtype, count);
    for (int64_t i = 0; i < count; ++i) masters.as<float>()[i] = static_cast<float>(random.uniform(-2.0, 2.0));
    masters.as<float>()[0] = 1.0f + 0x1p-8f;   // a tie in bf16 ...
    masters.as<float>()[1] = 1.0f + 0x1p-11f;  // ... and in fp16: weights are rounded to even, and so down
    ASSERT_GSC_OK(gsc_ops_cast(context.get(), &masters.tensor, &weights.tensor, 1, nullptr));
    ASSERT_GSC_OK(gsc_ops_cast(context.get(), &weights.tensor, &rounded.tensor, 1, nullptr));
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

TEST(StateConversion, AMasterOfAnotherWeightHasTheRemainderOfItsOwn) {
  const Context context = make_context();
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

TEST(StateConversion, WhatDoesNotFitIsRefusedByName) {
  const Context context = make_context();
  const Stored full(GSC_FP32, 64), moments(GSC_FP8_E4M3, 64), squares(GSC_UFP8_E4M4, 64), remainders(GSC_INT16, 64),
      wide(GSC_FP64, 64), few(GSC_FP32, 32), weights(GSC_BF16, 64);
  const auto refused = [&](const Stored &from, const gsc_tensor *weight, const Stored &to, const char *argument) {
    EXPECT_GSC_ERROR(convert(context, from, weight, to), GSC_ERROR_INVALID_ARGUMENT, argument);
  };
  refused(moments, nullptr, squares, "dst[0]");
  refused(moments, &weights.tensor, remainders, "dst[0]");
  refused(wide, nullptr, full, "dst[0]");
  refused(few, nullptr, moments, "dst[0]");
  refused(full, nullptr, full, "src[0]");
  refused(full, nullptr, remainders, "weights");
  refused(full, &few.tensor, remainders, "weights[0]");
  refused(remainders, &full.tensor, full, "weights[0]");
  Stored without(GSC_FP8_E4M3, 64);
  without.tensor.scale = nullptr;
  refused(full, nullptr, without, "dst[0].scale");
}

/// An optimizer over parts [first, last) of the parameters and gradients of a whole.
struct Part {
  std::vector<gsc_tensor> params, grads;
  List param_list, grad_list;
  Optimizer optimizer;
  Part(const Context &context, const gsc_optimizer_options &options, std::vector<Buffer> &param_buffers,
       std::vector<Buffer> &grad_buffers, const std::vector<std::pair<int64_t, int64_t>> &parts) {
    for (size_t t = 0; t < parts.size(); ++t) {
      const auto [first, last] = parts[t];
      params.push_back(GSC_TENSOR_INIT(param_buffers[t].as<uint16_t>() + first, last - first, GSC_BF16));
      grads.push_back(GSC_TENSOR_INIT(grad_buffers[t].as<float>() + first, last - first, GSC_FP32));
    }
    param_list = make_list(context, params);
    grad_list = make_list(context, grads);
    optimizer = make_optimizer(context, options, param_list, grad_list);
  }
  void step() { ASSERT_GSC_OK(gsc_optimizer_step(optimizer.get(), nullptr)); }
  /// Codes, scales and weights of tensor t, each appended.
  void append(size_t t, std::vector<std::vector<unsigned char>> &out) const {
    const auto add = [&](size_t place, const void *data, int64_t size) {
      out.resize(std::max(out.size(), place + 1));
      const auto *bytes = static_cast<const unsigned char *>(data);
      out[place].insert(out[place].end(), bytes, bytes + size);
    };
    add(0, params[t].data, params[t].count * 2);
    for (int32_t slot = 0; slot < 2; ++slot) {
      gsc_tensor_list *list = nullptr;
      gsc_tensor state;
      ASSERT_GSC_OK(gsc_optimizer_get_state(optimizer.get(), slot, &list, nullptr));
      ASSERT_GSC_OK(gsc_tensor_list_get_tensor(list, static_cast<int64_t>(t), &state));
      add(static_cast<size_t>(1 + 2 * slot), state.data, state.count);
      add(static_cast<size_t>(2 + 2 * slot), state.scale, gsc::state_groups(state.count));
    }
  }
};

TEST(StateShards, HaveTheBitsOfTheWhole) {
  const std::vector<int64_t> counts = {1000, 70, 17000};
  gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  options.state_format = GSC_STATE_BITS8;
  options.master_format = GSC_MASTER_STOCHASTIC;
  options.seed = 77;
  for (const int32_t target : usable_cpu_targets()) {
    const Context context = make_context(2, target);
    std::vector<Buffer> params = make_buffers(GSC_BF16, counts), same = make_buffers(GSC_BF16, counts),
                        grads = make_buffers(GSC_FP32, counts);
    Random random(2);
    for (size_t t = 0; t < counts.size(); ++t) {
      params[t].fill_random(random, -1.0, 1.0);
      same[t].restore(params[t].image());
    }
    Part whole(context, options, params, grads, {{0, 1000}, {0, 70}, {0, 17000}});
    Part first(context, options, same, grads, {{0, 320}, {0, 64}, {0, 9024}});
    Part second(context, options, same, grads, {{320, 1000}, {64, 70}, {9024, 17000}});
    const int64_t of_first[] = {0, 1024, 1120}, of_second[] = {320, 1024 + 64, 1120 + 9024};
    ASSERT_GSC_OK(gsc_optimizer_set_offsets(first.optimizer.get(), of_first, 3, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_set_offsets(second.optimizer.get(), of_second, 3, nullptr));
    for (int step = 0; step < 4; ++step) {
      for (Buffer &g : grads) g.fill_random(random, -1.0, 1.0);
      for (Part *part : {&whole, &first, &second}) part->step();
    }
    for (size_t t = 0; t < counts.size(); ++t) {
      std::vector<std::vector<unsigned char>> expected, found;
      whole.append(t, expected);
      first.append(t, found);
      second.append(t, found);
      ASSERT_EQ(found, expected) << "tensor " << t << " target " << target;
    }
  }
}

TEST(StateShards, OffsetsAreChecked) {
  const Context context = make_context();
  std::vector<Buffer> params = make_buffers(GSC_BF16, {100, 100}), grads = make_buffers(GSC_FP32, {100, 100});
  gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  for (const int32_t format : {GSC_STATE_BITS8, GSC_STATE_FULL}) {
    options.state_format = format;
    const Part part(context, options, params, grads, {{0, 100}, {0, 100}});
    gsc_optimizer *o = part.optimizer.get();
    for (const int64_t wrong : {int64_t{16}, int64_t{-32}, (int64_t{1} << 53) + 32}) {
      const int64_t offsets[] = {0, wrong};
      EXPECT_GSC_ERROR(gsc_optimizer_set_offsets(o, offsets, 2, nullptr), GSC_ERROR_INVALID_ARGUMENT, "offsets[1]",
                       "multiple of 32");
    }
    const int64_t offsets[] = {64, 32};
    EXPECT_GSC_ERROR(gsc_optimizer_set_offsets(o, offsets, 1, nullptr), GSC_ERROR_INVALID_ARGUMENT, "count");
    EXPECT_GSC_ERROR(gsc_optimizer_set_offsets(o, nullptr, 2, nullptr), GSC_ERROR_INVALID_ARGUMENT, "offsets");
    EXPECT_GSC_OK(gsc_optimizer_set_offsets(o, offsets, 2, nullptr));
  }
}

}  // namespace
}  // namespace gsc_test
