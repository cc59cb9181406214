// SPDX-License-Identifier: Apache-2.0
// State in codes between steps: its first values, its bytes, its checkpoints, which load into every format, and lists
// of it that a caller passes. tests/oracle has the steps, to the bit, bits_test.cpp the instruction sets.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "core/rules/state_conversion.h"
#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {

std::string page(const char *name) {
  std::ifstream file(std::string(GSC_PAGES "/") + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Bytes of the state of a parameter, its remainder included, in the lists that an optimizer makes.
double state_bytes(const Context &context, gsc_optimizer_options options, int32_t state, int32_t master) {
  options.state_format = state;
  options.master_format = master;
  const Small small(context, options, GSC_BF16, {3200});
  const Slots slots(small.optimizer);
  double bytes = 0.0;
  for (const std::vector<gsc_tensor> &slot : slots.slots) {
    bytes += gsc::dtype_bytes(slot[0].dtype) + gsc::dtype_bytes(slot[0].scale_dtype) / 32.0;
  }
  return bytes;
}

/// The gradient twice, with that of the check; the weight and the state there and back.
double moved_bytes(double state) { return 2 * 2 + 2 * 2 + 2 * state; }

std::string digits(double value) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%.3g", value);
  return digits;
}

/// Of docs/state.md and docs/performance.md.
constexpr struct {
  const char *name;
  int32_t state, master;
} kColumns[] = {{"`SPLIT16`, fp32 state", GSC_STATE_FULL, GSC_MASTER_SPLIT16},
                {"`SPLIT16`, `BITS16`", GSC_STATE_BITS16, GSC_MASTER_SPLIT16},
                {"`SPLIT16`, `BITS8`", GSC_STATE_BITS8, GSC_MASTER_SPLIT16},
                {"`SPLIT8`, `BITS8`", GSC_STATE_BITS8, GSC_MASTER_SPLIT8},
                {"`STOCHASTIC`, `BITS8`", GSC_STATE_BITS8, GSC_MASTER_STOCHASTIC}};
class StateFormats : public OnCpu {};

TEST_F(StateFormats, ThePagesHaveTheBytesOfTheLists) {
  const std::string state_page = page("state.md");
  for (const auto &c : kColumns) {
    const double bytes = state_bytes(context, optimizer_options(GSC_ADAMW), c.state, c.master);
    const std::string row = text("| ", c.name, " | ", digits(moved_bytes(bytes)), " | ", digits(bytes), " |\n");
    EXPECT_NE(state_page.find(row), std::string::npos) << row;
  }
  const std::string performance = page("performance.md");
  const auto expect_row = [&](const char *name, const std::vector<gsc_optimizer_options> &kinds) {
    for (const gsc_optimizer_options &options : kinds) {
      std::string row = text("| ", name, " |");
      for (const auto &c : kColumns) {
        row += text(' ', digits(moved_bytes(state_bytes(context, options, c.state, c.master))), " |");
      }
      EXPECT_NE(performance.find(row + '\n'), std::string::npos)
          << "docs/performance.md has no row " << row << " of kind " << options.kind
          << "; if the page names more kinds in it, this test must, too";
    }
  };
  gsc_optimizer_options momentum = optimizer_options(GSC_SGD), amsgrad = optimizer_options(GSC_ADAMW);
  momentum.momentum = 0.9;
  amsgrad.flags = GSC_OPTIMIZER_AMSGRAD;
  expect_row("SGD with momentum, Lion", {momentum, optimizer_options(GSC_LION)});
  expect_row("Adagrad, RMSprop", {optimizer_options(GSC_ADAGRAD), optimizer_options(GSC_RMSPROP)});
  expect_row("Adam, AdamW", {optimizer_options(GSC_ADAM), optimizer_options(GSC_ADAMW)});
  expect_row("Adam, AdamW with AMSGrad", {amsgrad});
}

/// A mean that moves too little in a step for 8 bits has 16 in the 8-bit format, and so have squares with a maximum.
TEST_F(StateFormats, SlowMeansAndMaximaHave16Bits) {
  const auto dtype_of = [&](gsc_optimizer_options options, size_t slot) {
    options.state_format = GSC_STATE_BITS8;
    const Small small(context, options, GSC_BF16);
    return Slots(small.optimizer).slots[slot][0].dtype;
  };
  gsc_optimizer_options o = optimizer_options(GSC_ADAMW);
  for (const double beta1 : {0.0, 0.9, 0.99}) {
    o.beta1 = beta1;
    EXPECT_EQ(dtype_of(o, 0), GSC_FP8_E4M3) << beta1;
  }
  o.beta1 = 0.991;
  EXPECT_EQ(dtype_of(o, 0), GSC_BF16);
  o.beta2 = 0.9999;
  EXPECT_EQ(dtype_of(o, 1), GSC_UINT8_LOG);
  o.flags = GSC_OPTIMIZER_AMSGRAD;
  EXPECT_EQ(dtype_of(o, 1), GSC_UFP16_E6M10);
  EXPECT_EQ(dtype_of(o, 2), GSC_UFP16_E6M10);
  o = optimizer_options(GSC_SGD);
  o.momentum = 0.999;
  EXPECT_EQ(dtype_of(o, 0), GSC_BF16);
  EXPECT_EQ(dtype_of(optimizer_options(GSC_LION), 0), GSC_FP8_E4M3);
  o = optimizer_options(GSC_ADEMAMIX);
  o.beta3_warmup = 1000;  // what counts is where beta3 ends
  EXPECT_EQ(dtype_of(o, 0), GSC_FP8_E4M3);
  EXPECT_EQ(dtype_of(o, 2), GSC_BF16);
  o.beta3 = 0.95;
  EXPECT_EQ(dtype_of(o, 2), GSC_FP8_E4M3);
}

TEST_F(StateFormats, AdagradsSumBeginsWhereItIsTold) {
  for (const int32_t format : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    gsc_optimizer_options o = optimizer_options(GSC_ADAGRAD);
    o.state_format = format;
    o.initial_accumulator_value = 0.5;
    const Small small(context, o, GSC_FP32);
    const Slots slots(small.optimizer);
    for (const gsc_tensor &t : slots.slots[0]) {
      for (const float x : decode(t)) EXPECT_EQ(x, 0.5f);
    }
  }
}

TEST_F(StateFormats, CheckpointsLoadIntoEveryFormat) {
  for (const int32_t from : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    for (const int32_t to : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      Small a(context, adamw(from, GSC_MASTER_SPLIT16), GSC_BF16), b(context, adamw(to, GSC_MASTER_SPLIT16), GSC_BF16);
      Random random(1);
      for (int i = 0; i < 3; ++i) a.step(random);
      ASSERT_GSC_OK(b.load(a.save())) << from << ' ' << to;
      EXPECT_EQ(applied_steps(b.optimizer), 3);
      const Slots source(a.optimizer), target(b.optimizer);
      for (size_t slot = 0; slot < 2; ++slot) {
        for (size_t t = 0; t < a.params.size(); ++t) {
          const gsc_tensor &x = source.slots[slot][t], &y = target.slots[slot][t];
          const auto *full = static_cast<const float *>(x.data);
          const std::vector<float> values =
              from == GSC_STATE_FULL ? std::vector<float>(full, full + x.count) : decode(x);
          if (to == GSC_STATE_FULL) {
            ASSERT_TRUE(std::equal(values.begin(), values.end(), static_cast<const float *>(y.data)));
          } else if (from != to) {
            expect_nearest(y, values.data());
          }
        }
      }
      for (size_t t = 0; t < a.params.size(); ++t) {
        EXPECT_EQ(std::memcmp(source.slots[2][t].data, target.slots[2][t].data, a.params[t].bytes()), 0);
      }
      if (from == to) {
        EXPECT_EQ(b.save(), a.save());
      }
    }
  }
}

TEST_F(StateFormats, CheckpointsWithoutMastersBeginThemAndMastersAreNotDropped) {
  Small none(context, adamw(GSC_STATE_BITS8, GSC_MASTER_NONE), GSC_BF16);
  Small split16(context, adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT16), GSC_BF16);
  Small split8(context, adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT8), GSC_BF16);
  Random random(1);
  none.step(random);
  split16.step(random);
  ASSERT_GSC_OK(split8.load(split16.save()));
  const auto remainders = [](const Small &small) { return Slots(small.optimizer).slots[2][0].data; };
  for (int64_t i = 0; i < split8.params[0].count(); ++i) {
    const int exact = static_cast<const int16_t *>(remainders(split16))[i];
    const int kept = static_cast<const int8_t *>(remainders(split8))[i];
    ASSERT_LE(std::abs(exact - kept * 256), kept == 127 ? 255 : 128);
  }
  EXPECT_INVALID(none.load(split16.save()), "remainders");
  ASSERT_GSC_OK(split16.load(none.save()));
  for (int64_t i = 0; i < split16.params[0].count(); ++i) {
    ASSERT_EQ(static_cast<const int16_t *>(remainders(split16))[i], 0);
  }
}

/// NaN and inf in moments stay where they are, groups of zeros stay zero, and the largest of a group may change by 2^40.
TEST_F(StateFormats, HostileGroups) {
  for (const int32_t format : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    Small small(context, adamw(format, GSC_MASTER_SPLIT16), GSC_BF16, {96});
    const auto step_with = [&](float first, float others) {
      for (int64_t i = 0; i < 96; ++i) small.grads[0].as<float>()[i] = i < 64 ? others : 0.0f;
      small.grads[0].as<float>()[0] = first;
      ASSERT_GSC_OK(gsc_optimizer_step(small.optimizer, nullptr));
    };
    for (const float size : {1.0f, 0x1p40f, 1.0f, 0x1p-60f, 0x1p-100f, 1e-42f}) step_with(size, size);
    step_with(INFINITY, 1.0f);  // a step without a scaler does not check
    const Slots slots(small.optimizer);
    for (size_t slot = 0; slot < 2; ++slot) {
      const std::vector<float> values = decode(slots.slots[slot][0]);
      // The mean has the largest number of its code, the square stays inf.
      const float largest = format == GSC_STATE_BITS16 ? 0x1.fep127f : 0x1.ep127f;
      EXPECT_EQ(values[0], slot == 0 ? largest : INFINITY) << slot;
      for (size_t i = 1; i < 64; ++i) EXPECT_TRUE(std::isfinite(values[i])) << slot << ' ' << i;
      for (size_t i = 64; i < 96; ++i) EXPECT_EQ(values[i], 0.0f) << slot << ' ' << i;
      for (size_t i = 1; slot == 1 && i < 64; ++i) EXPECT_GT(values[i], 0.0f) << i;
    }
    for (int64_t i = 1; i < 96; ++i) EXPECT_TRUE(std::isfinite(small.params[0].get(i))) << i;
  }
}

class StateLists : public testing::Test {
 protected:
  StateLists() : context_(make_context()), params_(GSC_BF16, 100), grads_(GSC_BF16, 100) {
    params_list_ = make_list(context_, params_);
    grads_list_ = make_list(context_, grads_);
  }
  gsc_tensor grouped(int32_t dtype) {
    gsc_tensor t = GSC_TENSOR_INIT(codes_, 100, dtype);
    t.scale_dtype = gsc::scale_dtype_of(dtype);
    t.scale = scales_;
    t.scale_block_rows = 1;
    t.scale_block_columns = 32;
    return t;
  }
  gsc_status create(const gsc_optimizer_options &o, const std::vector<gsc_tensor_list *> &state) {
    gsc_optimizer *optimizer = nullptr;
    const gsc_status status = gsc_optimizer_create(context_, &o, params_list_, grads_list_, nullptr, state.data(),
                                                   std::ssize(state), &optimizer);
    optimizer_.reset(optimizer);
    return status;
  }
  Context context_;
  Buffer params_, grads_;
  List params_list_, grads_list_;
  Optimizer optimizer_;
  alignas(64) unsigned char codes_[400] = {};
  alignas(64) unsigned char scales_[64] = {};
  alignas(64) unsigned char more_[400] = {};
};

TEST_F(StateLists, TheCallersOwnSayTheirFormat) {
  const gsc_tensor m = GSC_TENSOR_INIT(more_, 100, GSC_BF16);
  const List first = make_list(context_, {m});
  const List second = make_list(context_, {grouped(GSC_UINT8_LOG)});
  ASSERT_GSC_OK(create(optimizer_options(GSC_ADAMW), {first, second}));
  grads_.fill(1.0);
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer_, nullptr));
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(reinterpret_cast<const uint16_t *>(more_)[i], 0);
    EXPECT_NE(codes_[i], 0);
  }
  EXPECT_EQ(codes_[100], 0);
  EXPECT_NE(reinterpret_cast<const uint16_t *>(scales_)[3], 0);
  EXPECT_EQ(reinterpret_cast<const uint16_t *>(scales_)[4], 0);
}

TEST_F(StateLists, WhatDoesNotFitIsRefusedByName) {
  const List moments = make_list(context_, {grouped(GSC_FP8_E4M3)});
  const List squares = make_list(context_, {GSC_TENSOR_INIT(more_, 100, GSC_FP32)});
  const gsc_optimizer_options o = optimizer_options(GSC_ADAMW);
  EXPECT_INVALID(create(o, {squares, moments}), "state[1][0]", "fp8_e4m3", "uint8_log");
  gsc_optimizer_options split = o;
  split.master_format = GSC_MASTER_SPLIT8;
  EXPECT_INVALID(create(split, {moments, squares}), "state_count");
  EXPECT_INVALID(create(split, {moments, squares, squares}), "state[2][0] is fp32", "int8");
  // In the place of parameters, gradients, and by a scaler.
  const Scaler scaler = make_scaler(context_, 1.0f);
  EXPECT_INVALID(gsc_scaler_unscale(scaler, moments, nullptr), "grads[0]", "fp8_e4m3");
  gsc_tensor_diagnosis diagnosis;
  EXPECT_INVALID(gsc_tensor_list_diagnose_sync(moments, &diagnosis, nullptr, 1, nullptr), "list[0]");
  for (const bool as_params : {true, false}) {
    EXPECT_INVALID(
        status_of_optimizer(context_, &o, as_params ? moments : params_list_, as_params ? grads_list_ : moments),
        as_params ? "params[0]" : "grads[0]");
  }
}

TEST_F(StateLists, ScalesAreChecked) {
  const auto expect_refused = [&](auto edit, const char *field) {
    gsc_tensor t = grouped(GSC_FP8_E4M3);
    edit(t);
    EXPECT_INVALID(status_of_list(context_, {t}), "tensors[0]", field);
  };
  expect_refused([](auto &t) { t.scale = nullptr; }, "scale");
  expect_refused([](auto &t) { t.scale_dtype = GSC_FP32; }, "scale_dtype");
  expect_refused([](auto &t) { t.scale_block_rows = 2; }, "scale_block_rows");
  expect_refused([](auto &t) { t.scale_block_columns = 64; }, "scale_block_columns");
  expect_refused([](auto &t) { t.dtype = GSC_BF16; }, "scale");
  expect_refused([](auto &t) { t.scale = static_cast<const char *>(t.data) + 98; }, "overlaps");
}

TEST_F(StateLists, FormatsNeedTheirParameters) {
  Buffer wide(GSC_FP64, 100), full(GSC_FP32, 100);
  const List wide_list = make_list(context_, wide), full_list = make_list(context_, full);
  gsc_optimizer_options o = adamw(GSC_STATE_BITS8, GSC_MASTER_NONE);
  EXPECT_INVALID(status_of_optimizer(context_, &o, wide_list, grads_list_), "state_format", "params[0]", "fp64");
  o = adamw(GSC_STATE_FULL, GSC_MASTER_SPLIT16);
  EXPECT_INVALID(status_of_optimizer(context_, &o, full_list, grads_list_), "master_format", "params[0]", "fp32");
  ASSERT_GSC_OK(create(adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT16), {}));
  for (const auto &[edit, field] :
       {std::pair<void (*)(gsc_optimizer_options &), const char *>{[](auto &g) { g.state_format = 0; }, "state_format"},
        {[](auto &g) { g.master_format = 0; }, "master_format"},
        {[](auto &g) { g.seed = 1; }, "seed"}}) {
    gsc_optimizer_options group = adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT16);
    edit(group);
    EXPECT_INVALID(gsc_optimizer_add_group(optimizer_, 0, 1, &group, nullptr), field);
    EXPECT_INVALID(gsc_optimizer_set_options(optimizer_, 0, &group, nullptr), field);
  }
}

}  // namespace
}  // namespace gsc_test
