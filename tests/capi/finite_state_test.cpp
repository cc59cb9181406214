// SPDX-License-Identifier: Apache-2.0
// State in codes makes no weight inf or NaN that fp32 state leaves finite: every kind with every format of state and
// masters, on every instruction set, takes gradients from the smallest to the largest number of fp32, and steps on.
#include <cmath>
#include <limits>

#include "tests/support/kinds.h"
#include "tests/support/repetition.h"
#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();
constexpr int kExponents = kSanitized ? 25 : 5;

struct Variant {
  const char *name;
  gsc_optimizer_options options;
};

/// Every kind, and every formula that a flag or momentum picks.
std::vector<Variant> variants() {
  std::vector<Variant> result;
  for (const int32_t kind : optimizer_kinds()) {
    gsc_optimizer_options plain = optimizer_options(kind);
    if (kind == GSC_SGD_SCHEDULE_FREE) plain.lr = 1e-3;  // with 1, a weight may become the largest number
    const auto add = [&](const char *name, double momentum, uint32_t flags) {
      gsc_optimizer_options o = plain;
      o.momentum = momentum;
      o.flags |= flags;
      result.push_back({name, o});
    };
    add("", plain.momentum, 0);
    if (kind == GSC_SGD) add("momentum", 0.9, 0), add("Nesterov", 0.9, GSC_OPTIMIZER_NESTEROV);
    if (kind == GSC_ADAM || kind == GSC_ADAMW) add("AMSGrad", 0.0, GSC_OPTIMIZER_AMSGRAD);
    if (kind == GSC_RMSPROP) {
      add("momentum", 0.9, 0);
      add("centered", 0.0, GSC_OPTIMIZER_CENTERED), add("centered, momentum", 0.9, GSC_OPTIMIZER_CENTERED);
    }
  }
  return result;
}

/// Magnitudes of fp32 from end to end, with either sign.
std::vector<float> gradients() {
  std::vector<float> result = {0x1p-149F, 0x1.2p61F, 0x1.fep127F, 0x1.ffp127F, kMost};
  for (int e = -146; e < 128; e += kExponents) result.push_back(std::ldexp(1.5F, e));
  const size_t count = result.size();
  for (size_t i = 0; i < count; ++i) result.push_back(-result[i]);
  return result;
}

/// The first gradient of each element: large and small ones alone in a group of ordinary ones, then groups of them.
std::vector<float> first_gradients() {
  const std::vector<float> all = gradients();
  std::vector<float> result;
  Random random(4);
  for (size_t k = 0; k < all.size(); ++k) {
    for (size_t i = 0; i < 32; ++i) result.push_back(i == k % 32 ? all[k] : float(random.uniform(-1.0, 1.0)));
  }
  result.insert(result.end(), all.begin(), all.end());
  return result;
}

/// The weights after an ordinary step, if `late`, one on `first`, and more on gradients of `later`.
std::vector<double> train(const Context &context, gsc_optimizer_options options, int32_t state, int32_t master,
                          int32_t dtype, int32_t grad_dtype, const std::vector<float> &first, bool late,
                          float later = 1.0F) {
  options.state_format = state;
  options.master_format = master;
  const auto count = std::ssize(first);
  Buffer params(dtype, count), grads(grad_dtype, count);
  params.fill(1.0);
  const List p = make_list(context, params), g = make_list(context, grads);
  const Optimizer optimizer = make_optimizer(context, options, p, g);
  const auto step = [&](const auto &gradient) {
    for (int64_t i = 0; i < count; ++i) grads.set(i, gradient(i));
    EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  };
  const auto one = [](int64_t /*i*/) { return 1.0F; };
  if (late) step(one);
  // bf16 gradients end below kMost.
  step([&](int64_t i) { return grad_dtype == GSC_BF16 ? std::clamp(first[i], -0x1.fep127F, 0x1.fep127F) : first[i]; });
  for (int i = 0; i < 8; ++i) step([&](int64_t /*i*/) { return later; });
  return params.values();
}

/// Where the formula itself leaves fp32, whatever the state is in: Nesterov's momentum adds 0.9 of the gradient to it.
bool overflows_itself(const gsc_optimizer_options &o, float gradient) {
  return (o.flags & GSC_OPTIMIZER_NESTEROV) != 0 && std::fabs(gradient) > 0x1p126F;
}

struct Weights {
  int32_t dtype, grad_dtype, master;
};
constexpr Weights kWeights[] = {
    {GSC_FP32, GSC_FP32, GSC_MASTER_NONE},       {GSC_BF16, GSC_FP32, GSC_MASTER_NONE},
    {GSC_FP16, GSC_FP32, GSC_MASTER_NONE},       {GSC_BF16, GSC_BF16, GSC_MASTER_SPLIT16},
    {GSC_FP16, GSC_FP32, GSC_MASTER_SPLIT16},    {GSC_BF16, GSC_BF16, GSC_MASTER_SPLIT8},
    {GSC_BF16, GSC_BF16, GSC_MASTER_STOCHASTIC}, {GSC_FP16, GSC_FP32, GSC_MASTER_STOCHASTIC}};

class FiniteState : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, FiniteState, ::testing::ValuesIn(usable_cpu_targets()),
                         [](const auto &info) { return text("target", info.param); });

TEST_P(FiniteState, FiniteGradientsLeaveFiniteWeights) {
  const Context context = make_context(1, GetParam());
  const std::vector<float> first = first_gradients();
  for (const Variant &v : variants()) {
    for (const Weights &w : kWeights) {
      for (const bool late : {false, true}) {
        SCOPED_TRACE(text("kind ", v.options.kind, ' ', v.name, ", weights of dtype ", w.dtype, ", master ", w.master,
                          late ? ", second step" : ", first step"));
        const auto run = [&](int32_t state) {
          return train(context, v.options, state, w.master, w.dtype, w.grad_dtype, first, late);
        };
        const std::vector<double> full = run(GSC_STATE_FULL);
        for (size_t i = 0; i < first.size(); ++i) {
          // fp16 ends at 65504, which large steps leave.
          const bool may = w.dtype == GSC_FP16 || overflows_itself(v.options, first[i]);
          ASSERT_TRUE(std::isfinite(full[i]) || may) << "fp32 state, first gradient " << first[i];
        }
        for (const int32_t state : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
          const std::vector<double> coded = run(state);
          for (size_t i = 0; i < first.size(); ++i) {
            if (!std::isfinite(full[i])) continue;
            ASSERT_TRUE(std::isfinite(coded[i])) << "state format " << state << ", first gradient " << first[i];
          }
        }
      }
    }
  }
}

/// Means and squares of a gradient that does not change contradict each other once they are rounded: a variance that
/// comes out below 0 has no root.
TEST_P(FiniteState, ConstantGradientsLeaveFiniteWeights) {
  const Context context = make_context(1, GetParam());
  for (const Variant &v : variants()) {
    for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      SCOPED_TRACE(text("kind ", v.options.kind, ' ', v.name, ", state format ", state));
      gsc_optimizer_options options = v.options;
      options.state_format = state;
      Buffer params(GSC_FP32, 96), grads(GSC_FP32, 96);
      Random random(6);
      grads.fill_random(random, -1.0, 1.0);
      for (int i = 0; i < 8; ++i) grads.set(i, 1.0);
      const List p = make_list(context, params), g = make_list(context, grads);
      const Optimizer optimizer = make_optimizer(context, options, p, g);
      for (int step = 0; step < 1500; ++step) ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
      for (const double weight : params.values()) ASSERT_TRUE(std::isfinite(weight));
    }
  }
}

/// A second moment of inf is kept: the weight stands still, as with fp32 state, and its group learns on.
TEST_P(FiniteState, AnElementWhoseSquareOverflowsStandsStill) {
  const Context context = make_context(1, GetParam());
  std::vector<float> first(64, 1.0F);
  first[5] = 1e21F;
  first[40] = -kMost;
  gsc_optimizer_options options = adamw(GSC_STATE_FULL, GSC_MASTER_NONE);
  options.weight_decay = 0.0;
  for (const int32_t dtype : {GSC_FP32, GSC_FP16}) {
    const auto run = [&](int32_t state) {
      return train(context, options, state, GSC_MASTER_NONE, dtype, GSC_FP32, first, false);
    };
    const std::vector<double> full = run(GSC_STATE_FULL);
    for (const int32_t state : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      const std::vector<double> coded = run(state);
      for (const int i : {5, 40}) {
        EXPECT_EQ(full[i], 1.0);
        EXPECT_EQ(coded[i], 1.0) << state;
      }
      if (state == GSC_STATE_BITS8) continue;  // their means share its scale
      for (const int i : {4, 6, 39, 41}) EXPECT_NEAR(coded[i], full[i], 1e-4) << i;
    }
  }
}

/// Ratios of norms are unbounded where gradients are tiny, and inf times 0 would make NaN of weights without a gradient.
TEST_P(FiniteState, ATinyGradientLeavesTheOtherWeightsAlone) {
  const Context context = make_context(1, GetParam());
  std::vector<float> first(1000, 0.0F);
  for (const int32_t kind : optimizer_kinds()) {
    for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      for (const double lr : {1e-3, 100.0}) {
        for (const float tiny : {0x1p-149F, 0x1p-126F}) {
          SCOPED_TRACE(text("kind ", kind, ", state format ", state, ", lr ", lr, ", gradient ", tiny));
          gsc_optimizer_options options = optimizer_options(kind);
          options.lr = lr;
          options.weight_decay = 0.0;
          if (has_number_slot(kind)) options.eps = 0.0;
          first[7] = tiny;
          for (const Weights &w : kWeights) {
            const std::vector<double> weights =
                train(context, options, state, w.master, w.dtype, w.grad_dtype, first, false, 0.0F);
            // fp16 ends at 65504.
            ASSERT_TRUE(std::isfinite(weights[7]) || w.dtype == GSC_FP16) << "weights of dtype " << w.dtype;
            for (size_t i = 0; i < weights.size(); ++i) {
              if (i == 7) continue;
              ASSERT_EQ(weights[i], 1.0) << i << ", weights of dtype " << w.dtype;
            }
          }
        }
      }
    }
  }
}

/// Centered RMSprop divides by the root of a difference of two means: if they were rounded, it would often be 0, and
/// steps of gradients that hardly change a million times too large.
TEST_P(FiniteState, ADifferenceOfMeansKeepsItsSize) {
  const Context context = make_context(1, GetParam());
  for (const double momentum : {0.0, 0.9}) {
    for (const int32_t state : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      SCOPED_TRACE(text("momentum ", momentum, ", state format ", state));
      const auto run = [&](int32_t format) {
        gsc_optimizer_options options = optimizer_options(GSC_RMSPROP);
        options.flags |= GSC_OPTIMIZER_CENTERED;
        options.momentum = momentum;
        options.state_format = format;
        Buffer params(GSC_FP32, 256), grads(GSC_FP32, 256);
        Random random(8);
        const List p = make_list(context, params), g = make_list(context, grads);
        const Optimizer optimizer = make_optimizer(context, options, p, g);
        for (int step = 0; step < 100; ++step) {
          for (int64_t i = 0; i < 256; ++i) grads.set(i, random.uniform(0.9, 1.1));
          EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
        }
        return params.values();
      };
      const std::vector<double> full = run(GSC_STATE_FULL), coded = run(state);
      for (size_t i = 0; i < full.size(); ++i)
        ASSERT_NEAR(coded[i], full[i], 0.25 * std::fabs(full[i])) << i;  // of 8-bit momentum
    }
  }
}

}  // namespace
}  // namespace gsc_test
