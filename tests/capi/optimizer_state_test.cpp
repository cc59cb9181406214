// SPDX-License-Identifier: Apache-2.0
//
// The state that an optimizer keeps: averaged weights, where sums begin, and counts. Names and shapes of state, and
// that state of the caller, skipped steps and checkpoints continue to the bit, are in tests/oracle, for every kind.
#include <cfloat>

#include "tests/support/state_slots.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

class EachKind : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, EachKind, testing::ValuesIn(optimizer_kinds()));

/// x = y + (1 - 1 / beta) (z - y), and back; state, counts and tensors without a step stay as they are.
TEST_P(EachKind, EvaluatesWithAveragedWeights) {
  const Context context = make_context(2);
  const TrainerSpec s = {.options = optimizer_options(GetParam()),
                         .counts = {1, 0, 70, 5000},
                         .grad_dtypes = {GSC_FP16, GSC_FP32},
                         .copy_dtype = GSC_BF16};
  Trainer trainer(context, s);
  int32_t evaluating = -1;
  ASSERT_GSC_OK(gsc_optimizer_get_evaluating(trainer, &evaluating));
  EXPECT_EQ(evaluating, 0);
  if (!is_schedule_free(GetParam())) {
    EXPECT_INVALID(gsc_optimizer_set_evaluating(trainer, 1, nullptr), "optimizer is", "does not average");
    return;
  }
  const Snapshot start = trainer.snapshot();
  ASSERT_GSC_OK(gsc_optimizer_set_evaluating(trainer, 1, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_set_evaluating(trainer, 0, nullptr));
  EXPECT_EQ(trainer.snapshot().params, start.params);  // no step yet
  Random random(85);
  const uint8_t present[] = {1, 1, 0, 1};
  for (int step = 0; step < 4; ++step) {
    trainer.fill_grads(random, 1.0);
    // Gradients of the switch must not matter.
    ASSERT_GSC_OK(gsc_tensor_list_set_present(trainer.grad_list(), step == 3 ? present : nullptr, nullptr, 4, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  }
  trainer.grads()[3].fill(kNan);
  const Snapshot training = trainer.snapshot();
  const double beta = GetParam() == GSC_SGD_SCHEDULE_FREE ? s.options.momentum : s.options.beta1;
  std::vector<std::vector<double>> y, z;
  for (size_t t = 0; t < s.counts.size(); ++t) {
    y.push_back(trainer.params()[t].values());
    const gsc_tensor state = trainer.state_tensor(0, t);
    const float *first = static_cast<const float *>(state.data);
    z.emplace_back(first, first + state.count);
  }
  ASSERT_GSC_OK(gsc_optimizer_set_evaluating(trainer, 1, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_set_evaluating(trainer, 1, nullptr));  // is there
  for (size_t t = 0; t < s.counts.size(); ++t) {
    for (int64_t i = 0; i < s.counts[t]; ++i) {
      const double x = y[t][i] + (1.0 - 1.0 / beta) * (z[t][i] - y[t][i]);
      ASSERT_NEAR(trainer.params()[t].get(i), x, 1e-6);
      ASSERT_EQ(trainer.copies()[t].get(i), round_to(trainer.params()[t].get(i), GSC_BF16));
    }
  }
  EXPECT_EQ(trainer.snapshot().state, training.state);
  EXPECT_EQ(trainer.snapshot().applied, training.applied);
  EXPECT_BAD_STATE(gsc_optimizer_step(trainer, nullptr), "averaged weights");
  // A checkpoint remembers which weights the parameters were.
  const Image saved = saved_image(trainer);
  Trainer restored(context, s);
  for (size_t t = 0; t < s.counts.size(); ++t) restored.params()[t].restore(trainer.params()[t].image());
  ASSERT_GSC_OK(load_image(restored, saved));
  ASSERT_GSC_OK(gsc_optimizer_get_evaluating(restored, &evaluating));
  EXPECT_EQ(evaluating, 1);
  for (Trainer *each : {&trainer, &restored}) {
    ASSERT_GSC_OK(gsc_optimizer_set_evaluating(each->get(), 0, nullptr));
    for (size_t t = 0; t < s.counts.size(); ++t) {
      for (int64_t i = 0; i < s.counts[t]; ++i) {
        ASSERT_NEAR(each->params()[t].get(i), y[t][i], 1e-6);
      }
    }
  }
  EXPECT_EQ(trainer.snapshot().params, restored.snapshot().params);
  EXPECT_INVALID(gsc_optimizer_set_evaluating(trainer, 2, nullptr), "evaluating is 2");
}

/// What evaluating must leave alone in every format, with weights that no average is of.
struct Evaluated {
  std::vector<Image> state;  ///< of all slots but the remainders, which are part of the weights
  std::vector<double> weights;
  std::vector<Image> params;
};

class Evaluating : public ::testing::TestWithParam<std::tuple<int32_t, int32_t, int32_t, int32_t>> {
 protected:
  Evaluating() : context_(make_context(1)) {
    const auto [kind, dtype, state, master] = GetParam();
    options_ = optimizer_options(kind);
    options_.lr = 1e-2;
    options_.state_format = state;
    options_.master_format = master;
    for (const int64_t count : {1000, 40, 7}) {
      params_.emplace_back(dtype, count);
      grads_.emplace_back(GSC_FP32, count);
    }
    Random random(11);
    for (Buffer &p : params_) p.fill_random(random, -1.0, 1.0);
    for (Buffer &g : grads_) g.fill_random(random, -1.0, 1.0);
    param_list_ = make_list(context_, params_);
    grad_list_ = make_list(context_, grads_);
    optimizer_ = make_optimizer(context_, options_, param_list_, grad_list_);
    // The last tensor takes no step.
    const uint8_t present[] = {1, 1, 0};
    EXPECT_GSC_OK(gsc_tensor_list_set_present(grad_list_, present, nullptr, 3, nullptr));
    for (int step = 0; step < 5; ++step) {
      for (Buffer &g : grads_) g.fill_random(random, -1.0, 1.0);
      EXPECT_GSC_OK(gsc_optimizer_step(optimizer_, nullptr));
    }
  }
  void evaluate(int32_t evaluating) { ASSERT_GSC_OK(gsc_optimizer_set_evaluating(optimizer_, evaluating, nullptr)); }
  Evaluated seen() const {
    Evaluated result;
    const Slots slots(optimizer_);
    const size_t state_slots = slots.slots.size() - (remainders().empty() ? 0 : 1);
    for (size_t slot = 0; slot < state_slots; ++slot) {
      for (const gsc_tensor &t : slots.slots[slot]) {
        result.state.push_back(image_of(t));
        const auto *scales = static_cast<const unsigned char *>(t.scale);
        if (scales != nullptr) result.state.emplace_back(scales, scales + gsc::state_groups(t.count));
      }
    }
    for (const Buffer &p : params_) {
      for (const double weight : p.values()) result.weights.push_back(weight);
    }
    result.params = images_of(params_);
    return result;
  }
  /// The list of remainders, if the masters are split.
  std::vector<gsc_tensor> remainders() const {
    const bool splits = options_.master_format == GSC_MASTER_SPLIT16 || options_.master_format == GSC_MASTER_SPLIT8;
    return splits ? Slots(optimizer_).slots.back() : std::vector<gsc_tensor>();
  }
  void set_weight(int64_t i, double value) {
    params_[0].set(i, value);
    const std::vector<gsc_tensor> rest = remainders();
    if (rest.empty()) return;
    if (rest[0].dtype == GSC_INT16) static_cast<int16_t *>(rest[0].data)[i] = 0;
    if (rest[0].dtype == GSC_INT8) static_cast<int8_t *>(rest[0].data)[i] = 0;
  }

  Context context_;
  gsc_optimizer_options options_;
  std::vector<Buffer> params_, grads_;
  List param_list_, grad_list_;
  Optimizer optimizer_;
};

std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t>> evaluations() {
  std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t>> result;
  for (const int32_t kind : optimizer_kinds()) {
    if (!is_schedule_free(kind)) continue;
    result.emplace_back(kind, GSC_FP64, GSC_STATE_FULL, GSC_MASTER_NONE);
    for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      result.emplace_back(kind, GSC_FP32, state, GSC_MASTER_NONE);
      for (const int32_t dtype : {GSC_FP16, GSC_BF16}) {
        for (int32_t master = GSC_MASTER_NONE; master <= GSC_MASTER_STOCHASTIC; ++master) {
          result.emplace_back(kind, dtype, state, master);
        }
      }
    }
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(All, Evaluating, ::testing::ValuesIn(evaluations()));

/// Evaluating reads z and writes weights. It is no step: state, weights without an average, and tensors without a step
/// keep their bits.
TEST_P(Evaluating, WritesWeightsAlone) {
  set_weight(1, kNan);
  set_weight(2, kInf);
  set_weight(3, -kInf);
  auto *const z = static_cast<unsigned char *>(Slots(optimizer_).slots[0][0].data);
  const bool is_wide = params_[0].dtype() == GSC_FP64;
  const auto set_z = [&](int64_t i, double value) {
    if (is_wide) reinterpret_cast<double *>(z)[i] = value;
    if (!is_wide) reinterpret_cast<float *>(z)[i] = static_cast<float>(value);
  };
  set_z(4, kNan);
  set_z(5, -kInf);
  for (const int64_t i : {6, 7}) set_weight(i, -0.0);
  set_z(6, 0.0);
  set_z(7, -0.0);
  const Evaluated before = seen();
  for (const int32_t evaluating : {1, 0}) {
    evaluate(evaluating);
    const Evaluated after = seen();
    EXPECT_EQ(after.state, before.state) << evaluating;
    EXPECT_TRUE(std::isnan(after.weights[1]));
    EXPECT_EQ(after.weights[2], kInf);
    EXPECT_EQ(after.weights[3], -kInf);
    for (const int64_t i : {4, 5}) EXPECT_EQ(after.weights[i], before.weights[i]) << i;
    for (const int64_t i : {6, 7}) EXPECT_TRUE(after.weights[i] == 0.0 && std::signbit(after.weights[i])) << i;
    EXPECT_EQ(after.params[2], before.params[2]);
  }
}

/// There and back, and again: each way rounds once to nearest, so that weights do not wander.
TEST_P(Evaluating, ComesBackToTheWeightsOfTraining) {
  const int32_t dtype = params_[0].dtype();
  const Evaluated before = seen();
  for (int round = 0; round < 50; ++round) {
    evaluate(1);
    evaluate(0);
  }
  const std::vector<double> after = seen().weights;
  // Half a unit each way of the weight, whose average may be twice as large; and in each round what the rounded
  // coefficients make of z - p.
  const double unit = dtype == GSC_FP64 ? 0x1p-52 : dtype == GSC_FP32 ? 0x1p-23 : dtype == GSC_BF16 ? 0x1p-7 : 0x1p-10;
  const double drift = 50 * (dtype == GSC_FP64 ? 0x1p-52 : 0x1p-23);
  size_t i = 0;
  const Slots slots(optimizer_);
  for (const gsc_tensor &z : slots.slots[0]) {
    for (int64_t k = 0; k < z.count; ++k, ++i) {
      const double to = dtype == GSC_FP64 ? static_cast<double *>(z.data)[k] : static_cast<float *>(z.data)[k];
      const double weight = before.weights[i];
      ASSERT_NEAR(after[i], weight, 2 * unit * std::max(std::fabs(weight), 0x1p-14) + drift * std::fabs(to - weight));
    }
  }
}

class OptimizerState : public OnCpu {};

/// torch.lerp goes from the nearer end: the weight 1 - 1 / beta is below -0.5 for a beta below 2 / 3.
TEST_F(OptimizerState, EvaluatesWithTheBitsOfTorchLerp) {
  for (const int32_t kind : optimizer_kinds()) {
    if (!is_schedule_free(kind)) continue;
    for (const double beta : {0.9, 0.7, 0.67, 0.66, 0.6, 0.5, 0.3}) {
      gsc_optimizer_options options = optimizer_options(kind);
      options.lr = 0.1;
      (kind == GSC_SGD_SCHEDULE_FREE ? options.momentum : options.beta1) = beta;
      Trainer trainer(context, {.options = options, .counts = {2000}});
      Random random(3);
      for (int step = 0; step < 3; ++step) {
        trainer.fill_grads(random, 1.0);
        ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
      }
      const auto *z = static_cast<const float *>(trainer.state_tensor(0, 0).data);
      for (const int32_t evaluating : {1, 0}) {
        const std::vector<double> from = trainer.params()[0].values();
        ASSERT_GSC_OK(gsc_optimizer_set_evaluating(trainer, evaluating, nullptr));
        const auto w = static_cast<float>(evaluating != 0 ? 1.0 - 1.0 / beta : 1.0 - beta);
        for (int64_t i = 0; i < 2000; ++i) {
          const auto p = static_cast<float>(from[i]);
          const bool near = std::fabs(w) < 0.5f;
          const float x = near ? reference_fma(w, z[i] - p, p) : reference_fma(w - 1.0f, z[i] - p, z[i]);
          ASSERT_EQ(trainer.params()[0].get(i), p == z[i] ? p : x) << "beta " << beta << ", evaluating " << evaluating;
        }
      }
    }
  }
}

/// set_options changes no sums, so a group is told from what they began with, not from the options of today.
TEST_F(OptimizerState, AdagradKnowsWhatItBeganWith) {
  gsc_optimizer_options options = optimizer_options(GSC_ADAGRAD);
  options.initial_accumulator_value = 0.25;
  Trainer trainer(context, {.options = options, .counts = {3, 5}});
  options.initial_accumulator_value = 4.0;
  ASSERT_GSC_OK(gsc_optimizer_set_options(trainer, 0, &options, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_add_group(trainer, 0, 1, &options, nullptr));
  EXPECT_EQ(static_cast<float *>(trainer.state_tensor(0, 0).data)[2], 4.0f);
  EXPECT_EQ(static_cast<float *>(trainer.state_tensor(0, 1).data)[4], 0.25f);
  ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  EXPECT_INVALID(gsc_optimizer_add_group(trainer, 1, 1, &options, nullptr), "options.initial_accumulator_value is 4",
                 "began at 0.25");
  options.initial_accumulator_value = 0.25;
  EXPECT_GSC_OK(gsc_optimizer_add_group(trainer, 1, 1, &options, nullptr));
}

/// Steps that a caller restores mean that the state is restored too.
TEST_F(OptimizerState, AdagradsStateIsInUseAfterItsStepsAreSet) {
  const int64_t steps[] = {2, 1};
  for (const bool of_tensors : {false, true}) {
    gsc_optimizer_options options = optimizer_options(GSC_ADAGRAD);
    Trainer trainer(context, {.options = options, .counts = {3, 5}});
    if (of_tensors) {
      ASSERT_GSC_OK(gsc_optimizer_set_tensor_steps(trainer, steps, 2, nullptr));
    } else {
      ASSERT_GSC_OK(gsc_optimizer_set_steps(trainer, 1, 0, nullptr));
    }
    options.initial_accumulator_value = 4.0;
    EXPECT_INVALID(gsc_optimizer_add_group(trainer, 1, 1, &options, nullptr), "has been used since");
  }
}

TEST_F(OptimizerState, AdagradLeavesTheCallersStateAsItIs) {
  Buffer params(GSC_FP32, 4), grads(GSC_FP32, 4), sums(GSC_FP32, 4);
  sums.fill(2.0);
  const List p = make_list(context, params), g = make_list(context, grads), s = make_list(context, sums);
  gsc_optimizer_options options = optimizer_options(GSC_ADAGRAD);
  const Optimizer optimizer = make_optimizer(context, options, p, g, nullptr, {s});
  options.initial_accumulator_value = 4.0;
  ASSERT_GSC_OK(gsc_optimizer_add_group(optimizer, 0, 1, &options, nullptr));
  for (const double sum : sums.values()) EXPECT_EQ(sum, 2.0);
}

TEST_F(OptimizerState, CountsEndWhereACheckpointCanHoldThem) {
  Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {3}});
  constexpr int64_t kMost = int64_t{1} << 53;
  const float overflow = 1.0f;
  ASSERT_GSC_OK(gsc_optimizer_set_steps(trainer, kMost, kMost, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(trainer, nullptr, &overflow, nullptr));
  EXPECT_EQ(applied_steps(trainer), kMost);
  EXPECT_EQ(skipped_steps(trainer), kMost);
  EXPECT_GSC_OK(load_image(trainer, saved_image(trainer)));
}

/// A step with the caller's inverse scale, which on the CPU is refused if it is none, unless the step is skipped.
TEST_F(OptimizerState, AnInvalidInverseScaleIsRefused) {
  Trainer trainer(context, {.options = sgd_options(), .counts = {3}, .grad_dtypes = {GSC_FP16}});
  trainer.fill_grads(4.0);
  const float found = 1.0f, none = 0.0f;
  for (const float inverse : {-1.0f, -1e-45f, float(kNan), float(kInf), float(-kInf)}) {
    const Snapshot before = trainer.snapshot();
    const int64_t skipped = skipped_steps(trainer);
    for (const float *found_inf : {static_cast<const float *>(nullptr), &none}) {
      EXPECT_INVALID(gsc_optimizer_step_scaled(trainer, &inverse, found_inf, nullptr), "inv_scale is",
                     "finite and >= 0");
      EXPECT_TRUE(trainer.snapshot().same_with_grads(before)) << inverse;
      EXPECT_EQ(skipped_steps(trainer), skipped);
    }
    ASSERT_GSC_OK(gsc_optimizer_step_scaled(trainer, &inverse, &found, nullptr));
    EXPECT_TRUE(trainer.snapshot().same_with_grads(before)) << inverse;
    EXPECT_EQ(skipped_steps(trainer), skipped + 1);
  }
  for (const float inverse : {0.0f, 0.25f, FLT_MAX}) {
    trainer.params()[0].fill(0.0);
    ASSERT_GSC_OK(gsc_optimizer_step_scaled(trainer, &inverse, &none, nullptr));
    const float gradient = 4.0f * inverse;
    for (const double p : trainer.params()[0].values()) EXPECT_EQ(p, -gradient) << inverse;
  }
}

TEST_F(OptimizerState, ReboundParametersAndGradients) {
  Buffer params(GSC_FP32, 8), grads(GSC_FP16, 8), new_params(GSC_FP32, 8), new_grads(GSC_FP16, 8);
  const List p = make_list(context, params), g = make_list(context, grads);
  const Optimizer optimizer = make_optimizer(context, sgd_options(), p, g);
  ASSERT_GSC_OK(set_pointers(p, {new_params.data()}));
  ASSERT_GSC_OK(set_pointers(g, {new_grads.data()}));
  grads.fill(1.0);
  new_grads.fill(2.0);
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  for (const double value : params.values()) EXPECT_EQ(value, 0.0);
  for (const double value : new_params.values()) EXPECT_EQ(value, -2.0);
}

}  // namespace
}  // namespace gsc_test
