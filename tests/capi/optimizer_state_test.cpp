// SPDX-License-Identifier: Apache-2.0
//
// What an optimizer keeps: names and shapes of its state, averaged weights, where sums begin, and counts. That state of
// the caller, skipped steps and checkpoints continue to the bit is in tests/oracle, for every kind.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

struct Kind {
  const char *name;
  int32_t kind;
  uint32_t flags;
  std::vector<const char *> slots;
};
void PrintTo(const Kind &kind, std::ostream *stream) { *stream << kind.name; }

std::vector<Kind> kinds() {
  return {{"Sgd", GSC_SGD, 0, {"momentum_buffer"}},
          {"Adam", GSC_ADAM, 0, {"exp_avg", "exp_avg_sq"}},
          {"AdamW", GSC_ADAMW, 0, {"exp_avg", "exp_avg_sq"}},
          {"Amsgrad", GSC_ADAMW, GSC_OPTIMIZER_AMSGRAD, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
          {"Adagrad", GSC_ADAGRAD, 0, {"sum"}},
          {"Lion", GSC_LION, 0, {"exp_avg"}},
          {"Lamb", GSC_LAMB, 0, {"exp_avg", "exp_avg_sq"}},
          {"Rmsprop", GSC_RMSPROP, 0, {"square_avg", "momentum_buffer"}},
          {"RmspropCentered", GSC_RMSPROP, GSC_OPTIMIZER_CENTERED, {"square_avg", "momentum_buffer", "grad_avg"}},
          {"Adadelta", GSC_ADADELTA, 0, {"square_avg", "acc_delta"}},
          {"Adamax", GSC_ADAMAX, 0, {"exp_avg", "exp_inf"}},
          {"Nadam", GSC_NADAM, 0, {"exp_avg", "exp_avg_sq"}},
          {"Radam", GSC_RADAM, 0, {"exp_avg", "exp_avg_sq"}},
          {"AdaBelief", GSC_ADABELIEF, 0, {"exp_avg", "exp_avg_var"}},
          {"AdEMAMix", GSC_ADEMAMIX, 0, {"exp_avg", "exp_avg_sq", "exp_avg_slow"}},
          {"AdamWScheduleFree", GSC_ADAMW_SCHEDULE_FREE, 0, {"z", "exp_avg_sq", "average"}},
          {"SgdScheduleFree", GSC_SGD_SCHEDULE_FREE, 0, {"z", "average"}},
          {"Lars", GSC_LARS, 0, {"momentum_buffer"}},
          {"NovoGrad", GSC_NOVOGRAD, 0, {"exp_avg", "exp_avg_sq"}}};
}

gsc_optimizer_options options_of(const Kind &kind) {
  gsc_optimizer_options options = optimizer_options(kind.kind);
  options.lr = 0.01;
  options.flags = kind.flags;
  if (kind.kind == GSC_SGD || kind.kind == GSC_RMSPROP) options.momentum = 0.9;
  return options;
}

class EachKind : public ::testing::TestWithParam<Kind> {
 protected:
  TrainerSpec spec() const {
    return {.options = options_of(GetParam()),
            .counts = {1, 0, 70, 5000},
            .grad_dtypes = {GSC_FP16, GSC_FP32},
            .copy_dtype = GSC_BF16};
  }
};
INSTANTIATE_TEST_SUITE_P(All, EachKind, ::testing::ValuesIn(kinds()),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(EachKind, SlotsHaveNamesAndShapes) {
  const Context context = make_context();
  for (const int32_t dtype : kAllDtypes) {
    TrainerSpec s = spec();
    s.param_dtype = dtype;
    Trainer trainer(context, s);
    ASSERT_EQ(trainer.slots(), static_cast<int32_t>(GetParam().slots.size()));
    for (int32_t slot = 0; slot < trainer.slots(); ++slot) {
      const char *name = nullptr;
      gsc_tensor_list *list = nullptr;
      ASSERT_GSC_OK(gsc_optimizer_get_state(trainer, slot, &list, &name));
      EXPECT_STREQ(name, GetParam().slots[slot]);
      int64_t count = 0;
      ASSERT_GSC_OK(gsc_tensor_list_get_count(list, &count));
      ASSERT_EQ(count, static_cast<int64_t>(s.counts.size()));
      for (size_t i = 0; i < s.counts.size(); ++i) {
        const gsc_tensor tensor = trainer.state_tensor(slot, i);
        EXPECT_EQ(tensor.count, slot_count(GetParam().kind, slot, s.counts[i]));
        const bool is_wide = dtype == GSC_FP64 || numbers_of(GetParam().kind, slot) > 0;
        EXPECT_EQ(tensor.dtype, is_wide ? GSC_FP64 : GSC_FP32);
        for (int64_t j = 0; j < tensor.count; ++j) {
          ASSERT_EQ(load(static_cast<unsigned char *>(tensor.data) + j * dtype_size(tensor.dtype), tensor.dtype), 0.0);
        }
      }
    }
  }
}

/// x = y + (1 - 1 / beta) (z - y), and back; state, counts and tensors without a step stay as they are.
TEST_P(EachKind, EvaluatesWithAveragedWeights) {
  const Context context = make_context(2);
  TrainerSpec s = spec();
  Trainer trainer(context, s);
  int32_t evaluating = -1;
  ASSERT_GSC_OK(gsc_optimizer_get_evaluating(trainer, &evaluating));
  EXPECT_EQ(evaluating, 0);
  if (!is_schedule_free(GetParam().kind)) {
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
  const double beta = GetParam().kind == GSC_SGD_SCHEDULE_FREE ? s.options.momentum : s.options.beta1;
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
      const auto at = static_cast<size_t>(i);
      const double x = y[t][at] + (1.0 - 1.0 / beta) * (z[t][at] - y[t][at]);
      ASSERT_NEAR(trainer.params()[t].get(i), x, 1e-6);
      ASSERT_EQ(trainer.copies()[t].get(i), round_to(trainer.params()[t].get(i), GSC_BF16));
    }
  }
  EXPECT_EQ(trainer.snapshot().state, training.state);
  EXPECT_EQ(trainer.snapshot().applied, training.applied);
  EXPECT_BAD_STATE(gsc_optimizer_step(trainer, nullptr), "averaged weights");
  // A checkpoint remembers which weights the parameters were.
  const std::vector<unsigned char> saved = saved_image(trainer);
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

TEST(OptimizerState, AdagradStartsAtTheInitialValueOfTheGroup) {
  const Context context = make_context();
  gsc_optimizer_options options = optimizer_options(GSC_ADAGRAD);
  options.initial_accumulator_value = 0.25;
  Trainer trainer(context, {.options = options, .counts = {3, 5000, 0, 20}});
  gsc_optimizer_options other = options;
  const auto expect_sums = [&](std::initializer_list<float> wanted) {
    size_t i = 0;
    for (const float want : wanted) {
      const gsc_tensor tensor = trainer.state_tensor(0, i++);
      for (int64_t j = 0; j < tensor.count; ++j) ASSERT_EQ(static_cast<float *>(tensor.data)[j], want);
    }
  };
  other.initial_accumulator_value = 4.0;
  ASSERT_GSC_OK(gsc_optimizer_add_group(trainer, 1, 2, &other, nullptr));
  expect_sums({0.25f, 4.0f, 0.0f, 0.25f});
  // Once there are sums, another beginning would throw them away.
  ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  EXPECT_INVALID(gsc_optimizer_add_group(trainer, 3, 1, &other, nullptr), "options.initial_accumulator_value is 4",
                 "0.25");
  other.initial_accumulator_value = 0.25;
  ASSERT_GSC_OK(gsc_optimizer_add_group(trainer, 3, 1, &other, nullptr));
  expect_sums({0.25f, 4.0f, 0.0f, 0.25f});
}

/// set_options changes no sums, so a group is told from what they began with, not from the options of today.
TEST(OptimizerState, AdagradKnowsWhatItBeganWith) {
  const Context context = make_context();
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

TEST(OptimizerState, AdagradLeavesTheCallersStateAsItIs) {
  const Context context = make_context();
  Buffer params(GSC_FP32, 4), grads(GSC_FP32, 4), sums(GSC_FP32, 4);
  sums.fill(2.0);
  const List p = make_list(context, params), g = make_list(context, grads), s = make_list(context, sums);
  gsc_tensor_list *state[] = {s};
  gsc_optimizer_options options = optimizer_options(GSC_ADAGRAD);
  gsc_optimizer *made = nullptr;
  ASSERT_GSC_OK(gsc_optimizer_create(context, &options, p, g, nullptr, state, 1, &made));
  const Optimizer optimizer(made);
  options.initial_accumulator_value = 4.0;
  ASSERT_GSC_OK(gsc_optimizer_add_group(made, 0, 1, &options, nullptr));
  for (const double sum : sums.values()) EXPECT_EQ(sum, 2.0);
}

TEST(OptimizerState, SgdWithoutMomentumHasNone) {
  const Context context = make_context();
  Trainer trainer(context, {.options = optimizer_options(GSC_SGD), .counts = {3}});
  EXPECT_EQ(trainer.slots(), 0);
  int64_t size = 0;
  ASSERT_GSC_OK(gsc_optimizer_get_save_size(trainer, &size));
  std::vector<unsigned char> saved(static_cast<size_t>(size));
  ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_save_sync(trainer, saved.data(), size, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_set_steps(trainer, 7, 0, nullptr));
  ASSERT_GSC_OK(load_image(trainer, saved));
  EXPECT_EQ(applied_steps(trainer.optimizer()), 1);
}

TEST(OptimizerState, CountsEndWhereACheckpointCanHoldThem) {
  const Context context = make_context();
  Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {3}});
  constexpr int64_t kMost = int64_t{1} << 53;
  const float overflow = 1.0f;
  ASSERT_GSC_OK(gsc_optimizer_set_steps(trainer, kMost, kMost, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(trainer, nullptr, &overflow, nullptr));
  EXPECT_EQ(applied_steps(trainer.optimizer()), kMost);
  EXPECT_EQ(skipped_steps(trainer.optimizer()), kMost);
  const std::vector<unsigned char> saved = saved_image(trainer);
  EXPECT_GSC_OK(load_image(trainer, saved));
}

TEST(OptimizerState, ReboundParametersAndGradients) {
  const Context context = make_context();
  std::vector<Buffer> params = make_buffers(GSC_FP32, {8}), grads = make_buffers(GSC_FP16, {8});
  std::vector<Buffer> new_params = make_buffers(GSC_FP32, {8}), new_grads = make_buffers(GSC_FP16, {8});
  const List p = make_list(context, params), g = make_list(context, grads);
  const Optimizer optimizer = make_optimizer(context, sgd_options(), p, g);
  void *param = new_params[0].data();
  void *grad = new_grads[0].data();
  ASSERT_GSC_OK(gsc_tensor_list_set_pointers(p, &param, 1, nullptr));
  ASSERT_GSC_OK(gsc_tensor_list_set_pointers(g, &grad, 1, nullptr));
  grads[0].fill(1.0);
  new_grads[0].fill(2.0);
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  for (const double value : params[0].values()) EXPECT_EQ(value, 0.0);
  for (const double value : new_params[0].values()) EXPECT_EQ(value, -2.0);
}

}  // namespace
}  // namespace gsc_test
