// SPDX-License-Identifier: Apache-2.0
//
// Ranges of parameters and cautious updates: what equations do not show. The equations are compared in
// optimizer_test.cpp, every format in tests/oracle, and every instruction set in bits_test.cpp.
#include <algorithm>

#include "core/rules/split.h"
#include "tests/support/kinds.h"
#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {
class Restraints : public OnCpu {
 protected:
  /// Values of a tensor of `count` elements after a step with these options from `params` with `grads`, in turn.
  std::vector<double> after_step(const gsc_optimizer_options &o, const std::vector<double> &params,
                                 const std::vector<double> &grads, int32_t dtype = GSC_FP32, int steps = 1) {
    Buffer p(dtype, kCount), g(GSC_FP32, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      p.set(i, params[i % params.size()]);
      g.set(i, grads[i % grads.size()]);
    }
    const List param_list = make_list(context, p), grad_list = make_list(context, g);
    const Optimizer optimizer = make_optimizer(context, o, param_list, grad_list);
    for (int step = 0; step < steps; ++step) EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
    const std::vector<double> values = p.values();
    for (size_t i = params.size(); i < values.size(); ++i) {
      const double expected = values[i % params.size()];
      EXPECT_TRUE(values[i] == expected || std::isnan(expected)) << "element " << i;
    }
    return {values.begin(), values.begin() + params.size()};
  }
  static gsc_optimizer_options sgd(double low, double high) {
    gsc_optimizer_options o = optimizer_options(GSC_SGD);
    o.lr = 1.0;
    o.param_min = low;
    o.param_max = high;
    return o;
  }
  /// A count that fills vectors and batches, and leaves a rest.
  static constexpr int64_t kCount = 8 * 41;
};

TEST_F(Restraints, InfGoesToTheBoundAndNanStays) {
  for (const int32_t dtype : {GSC_FP32, GSC_FP64, GSC_FP16, GSC_BF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const std::vector<double> after =
        after_step(sgd(-0.5, 0.25), {kInf, -kInf, kNan, -0.0, 0.125, 3.0, -3.0, 0.25}, {0.0}, dtype);
    const std::vector<double> expected = {0.25, -0.5, kNan, -0.0, 0.125, 0.25, -0.5, 0.25};
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(after[i]) : after[i] == expected[i]) << after[i];
    }
    EXPECT_TRUE(std::signbit(after[3]));
  }
}

/// Every kind and format: nothing leaves the range, whose bounds all dtypes have.
TEST_F(Restraints, NothingLeavesTheRange) {
  for (const int32_t kind : optimizer_kinds()) {
    if (is_schedule_free(kind)) continue;
    for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
        for (const int32_t dtype : {GSC_FP32, GSC_FP16, GSC_BF16}) {
          if (dtype == GSC_FP32 && master != GSC_MASTER_NONE) continue;
          SCOPED_TRACE(text(kind_of(kind).name, " state ", state, " master ", master, ' ', dtype_name(dtype)));
          gsc_optimizer_options o = optimizer_options(kind);
          o.lr = 0.25;
          o.state_format = state;
          o.master_format = master;
          o.param_min = -0.375;
          o.param_max = 0.5;
          o.ema_decay = 0.5;
          Small small(context, o, dtype, {kCount, 7});
          Random random(9);
          bool reaches_bound = false;
          for (int step = 0; step < 3; ++step) {
            small.step(random, 4.0);
            for (const Buffer &p : small.params) {
              const std::vector<double> values = p.values();
              const auto [low, high] = std::ranges::minmax(values);
              EXPECT_GE(low, o.param_min);
              EXPECT_LE(high, o.param_max);
              reaches_bound |= low == o.param_min && high == o.param_max;
            }
          }
          EXPECT_TRUE(reaches_bound);
          // The average is of parameters as they are stored.
          const gsc_tensor ema = Slots(small.optimizer)
                                     .slots[master == GSC_MASTER_SPLIT16 || master == GSC_MASTER_SPLIT8
                                                ? Slots(small.optimizer).slots.size() - 2
                                                : Slots(small.optimizer).slots.size() - 1][0];
          ASSERT_EQ(ema.dtype, GSC_FP32);
          for (int64_t i = 0; i < ema.count; ++i) {
            EXPECT_GE(static_cast<const float *>(ema.data)[i], -0.375f);
            EXPECT_LE(static_cast<const float *>(ema.data)[i], 0.5f);
          }
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

/// Before rounding: 1.01 is 1.0078 in bf16. A remainder keeps the bound.
TEST_F(Restraints, ABoundIsRoundedAsParametersAre) {
  EXPECT_EQ(after_step(sgd(-1.0, 1.01), {2.0, -2.0}, {0.0}, GSC_BF16), (std::vector{1.0078125, -1.0}));
  EXPECT_EQ(after_step(sgd(-1.0, 0.1), {2.0}, {0.0}), std::vector<double>{0.1f});
  EXPECT_EQ(after_step(sgd(-1.0, 0.1), {2.0}, {0.0}, GSC_FP64), std::vector{0.1});

  gsc_optimizer_options o = sgd(-1.0, 1.01);
  o.master_format = GSC_MASTER_SPLIT16;
  Small small(context, o, GSC_BF16);
  small.params[0].fill(2.0);
  Random random(1);
  small.step(random, 0.0);
  const gsc_tensor rest = Slots(small.optimizer).slots.back()[0];
  for (int64_t i = 0; i < rest.count; ++i) {
    const float master = gsc::Split<gsc::Bf16, int16_t>::join(small.params[0].as<uint16_t>()[i],
                                                              static_cast<const int16_t *>(rest.data)[i]);
    ASSERT_EQ(master, 1.01f);
  }
}

TEST_F(Restraints, TheModelCopyIsInTheRange) {
  Buffer p(GSC_FP32, kCount), g(GSC_FP32, kCount), copy(GSC_FP16, kCount);
  p.fill(2.0);
  g.fill(0.0);
  const List params = make_list(context, p), grads = make_list(context, g), copies = make_list(context, copy);
  const Optimizer optimizer = make_optimizer(context, sgd(-1.0, 1.0), params, grads, copies);
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  EXPECT_EQ(copy.values(), std::vector<double>(kCount, 1.0));
}

/// A group has its own range, or none, and it can change.
TEST_F(Restraints, RangesOfGroups) {
  const auto run = [&](int32_t dtype, int32_t state) {
    SCOPED_TRACE(dtype_name(dtype));
    gsc_optimizer_options first = optimizer_options(GSC_ADAMW), second = first, third = first;
    first.state_format = second.state_format = third.state_format = state;
    first.param_min = -1.0, first.param_max = 1.0;
    second.param_max = 0.5;
    Small small(context, first, dtype, {300, 300, 300});
    ASSERT_GSC_OK(gsc_optimizer_add_group(small.optimizer, 1, 1, &second, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_add_group(small.optimizer, 2, 1, &third, nullptr));
    const auto step = [&] {
      for (Buffer &p : small.params) {
        for (int64_t i = 0; i < p.count(); ++i) p.set(i, i % 2 == 0 ? 4.0 : -4.0);
      }
      for (Buffer &g : small.grads) g.fill(0.0);
      ASSERT_GSC_OK(gsc_optimizer_step(small.optimizer, nullptr));
    };
    const auto pair = [&](int t) { return std::pair(small.params[t].get(298), small.params[t].get(299)); };
    step();
    EXPECT_EQ(pair(0), std::pair(1.0, -1.0));
    EXPECT_EQ(pair(1), std::pair(0.5, 0.0));
    EXPECT_GT(pair(2).first, 3.0);
    EXPECT_LT(pair(2).second, -3.0);
    first.param_min = first.param_max = 0.0;
    third.param_min = third.param_max = -2.0;
    ASSERT_GSC_OK(gsc_optimizer_set_options(small.optimizer, 0, &first, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_set_options(small.optimizer, 2, &third, nullptr));
    step();
    EXPECT_GT(pair(0).first, 3.0);
    EXPECT_EQ(pair(2), std::pair(-2.0, -2.0));
  };
  for (const int32_t dtype : {GSC_FP32, GSC_FP64, GSC_BF16}) run(dtype, GSC_STATE_FULL);
  run(GSC_FP32, GSC_STATE_BITS8);
}

TEST_F(Restraints, RangesThatAreRefused) {
  Buffer p(GSC_FP32, 2), g(GSC_FP32, 2);
  const List params = make_list(context, p), grads = make_list(context, g);
  gsc_optimizer_options o = sgd(0.5, 0.25);
  EXPECT_INVALID(status_of_optimizer(context, &o, params, grads),
                 "options.param_min is 0.5, which is above param_max, 0.25");
  const Optimizer optimizer = make_optimizer(context, sgd(0.0, 0.25), params, grads);
  EXPECT_INVALID(gsc_optimizer_set_options(optimizer, 0, &o, nullptr), "options.param_min is 0.5");
  for (const int32_t kind : {GSC_ADAMW_SCHEDULE_FREE, GSC_SGD_SCHEDULE_FREE}) {
    o = optimizer_options(kind);
    o.param_max = 1.0;
    EXPECT_INVALID(status_of_optimizer(context, &o, params, grads), "options.param_max is 1",
                   "takes no range of parameters");
    o.param_min = -1.0;
    EXPECT_INVALID(status_of_optimizer(context, &o, params, grads), "options.param_min is -1",
                   "takes no range of parameters");
  }
}

gsc_optimizer_options cautious(int32_t kind, uint32_t flags) {
  gsc_optimizer_options o = optimizer_options(kind);
  o.lr = 0.5;
  o.beta1 = 0.5;
  o.beta2 = 0.75;
  o.weight_decay = 0.0;
  o.flags = flags;
  return o;
}

/// With a mean of 1 from the step before, of every sign of the gradient.
TEST_F(Restraints, AnUpdateAgainstItsGradientIsLeftOut) {
  for (const int32_t kind : {GSC_ADAM, GSC_ADAMW, GSC_LION}) {
    for (const int32_t dtype : {GSC_FP32, GSC_FP64, GSC_FP16}) {
      for (const uint32_t maximize : std::vector<uint32_t>{0, GSC_OPTIMIZER_MAXIMIZE}) {
        SCOPED_TRACE(text(kind_of(kind).name, ' ', dtype_name(dtype), " maximize ", maximize));
        const auto moved = [&](uint32_t flags) {
          Buffer p(dtype, kCount), g(GSC_FP32, kCount);
          p.fill(0.0);
          const List params = make_list(context, p), grads = make_list(context, g);
          const Optimizer optimizer = make_optimizer(context, cautious(kind, flags | maximize), params, grads);
          g.fill(1.0);
          EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
          p.fill(0.0);
          // Some so small that a product with the update would be 0.
          const double grad[] = {0.25, 0.0, -0.0, -0.125, kNan, 1e-44, -1e-44, -3.0};
          for (int64_t i = 0; i < kCount; ++i) g.set(i, grad[i % 8]);
          EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
          const Image state = Slots(optimizer).image();
          return std::pair(p.values(), state);
        };
        const auto [before, state_before] = moved(0);
        const auto [after, state_after] = moved(GSC_OPTIMIZER_CAUTIOUS);
        EXPECT_EQ(state_after, state_before);
        for (int64_t i = 0; i < kCount; ++i) {
          const bool stands[] = {false, true, true, true, false, false, true, false};
          if (i % 8 == 4) {
            EXPECT_TRUE(std::isnan(after[i]) && std::isnan(before[i]));
          } else {
            EXPECT_EQ(after[i], stands[i % 8] ? 0.0 : before[i]) << "element " << i;
            EXPECT_NE(before[i], 0.0);
          }
        }
      }
    }
  }
}

TEST_F(Restraints, DecayOfWhatGrowsIsLeftOut) {
  for (const int32_t kind : {GSC_ADAMW, GSC_LION}) {
    for (const int32_t dtype : {GSC_FP32, GSC_FP64, GSC_BF16}) {
      SCOPED_TRACE(text(kind_of(kind).name, ' ', dtype_name(dtype)));
      gsc_optimizer_options o = cautious(kind, 0);
      // Gradients and parameters of all signs. The update takes the sign of the gradient.
      const std::vector<double> params = {8.0, 8.0, 8.0, 0.0, -8.0, -8.0, -8.0, 0.0},
                                grads = {1, -1, 0, 1, 1, -1, 0, -1};
      const std::vector<double> without = after_step(o, params, grads, dtype);
      o.weight_decay = 0.5;
      const std::vector<double> with = after_step(o, params, grads, dtype);
      for (const uint32_t cautious_too : std::vector<uint32_t>{0, GSC_OPTIMIZER_CAUTIOUS}) {
        o.flags = GSC_OPTIMIZER_CAUTIOUS_DECAY | cautious_too;
        const std::vector<double> after = after_step(o, params, grads, dtype);
        EXPECT_EQ(after, (std::vector{with[0], without[1], with[2], with[3], without[4], with[5], with[6], with[7]}));
      }
      EXPECT_NE(with[1], without[1]);
    }
  }
}

/// An update that is left out still decides what decays.
TEST_F(Restraints, DecayGoesByTheUpdateThatIsLeftOut) {
  gsc_optimizer_options o = cautious(GSC_ADAMW, GSC_OPTIMIZER_CAUTIOUS | GSC_OPTIMIZER_CAUTIOUS_DECAY);
  o.weight_decay = 0.5;
  Buffer p(GSC_FP32, 2), g(GSC_FP32, 2);
  const List params = make_list(context, p), grads = make_list(context, g);
  const Optimizer optimizer = make_optimizer(context, o, params, grads);
  g.fill(1.0);
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  p.set(0, 8.0);
  p.set(1, -8.0);
  g.fill(-0.25);
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  EXPECT_EQ(p.values(), (std::vector{6.0, -8.0}));
}

TEST_F(Restraints, FlagsOfOtherKindsAreRefused) {
  Buffer p(GSC_FP32, 2), g(GSC_FP32, 2);
  const List params = make_list(context, p), grads = make_list(context, g);
  for (const int32_t kind : optimizer_kinds()) {
    for (const uint32_t flag : {GSC_OPTIMIZER_CAUTIOUS, GSC_OPTIMIZER_CAUTIOUS_DECAY}) {
      const bool decouples = kind == GSC_ADAMW || kind == GSC_LION;
      if (decouples || (kind == GSC_ADAM && flag == GSC_OPTIMIZER_CAUTIOUS)) continue;
      gsc_optimizer_options o = optimizer_options(kind);
      o.flags = flag;
      EXPECT_INVALID(status_of_optimizer(context, &o, params, grads), "options.flags has bits", "does not take");
    }
  }
}

}  // namespace
}  // namespace gsc_test
