// SPDX-License-Identifier: Apache-2.0
//
// Every optimizer against the equations of docs/reference/semantics.md, step by step and to the bit
// (reference_formulas.h): all kinds with their options, all dtypes of gradients and parameters, model copies, averages
// of the weights, and long tensors. Groups, learning rates, clipping, absent tensors, steps without a scaler and the
// flags for gradients are in tests/oracle.
#include "tests/support/kinds.h"
#include "tests/support/planted.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

struct Variant {
  std::string name;
  gsc_optimizer_options options;
};
void PrintTo(const Variant &variant, std::ostream *stream) { *stream << variant.name; }

gsc_optimizer_options with(int32_t kind, uint32_t flags = 0, void (*change)(gsc_optimizer_options &) = nullptr) {
  gsc_optimizer_options options = optimizer_options(kind);
  options.lr = 0.05;
  options.flags = flags;
  if (change != nullptr) change(options);
  return options;
}

/// Every kind of the table: with its defaults, going up with weight decay, with each of its flags, and with
/// a range of parameters.
std::vector<Variant> variants_of_the_table() {
  std::vector<Variant> found;
  for (const gsc::Kind *kind : gsc::kKinds) {
    const std::string name = kind->name;
    found.push_back({"Default" + name, with(kind->code)});
    found.push_back({"Maximize" + name, with(kind->code, GSC_OPTIMIZER_MAXIMIZE)});
    if (uses(kind->code, gsc::Option::weight_decay)) found.back().options.weight_decay = 0.1;
    for (uint32_t bits = kind->flags; bits != 0; bits &= bits - 1) {
      const uint32_t flag = bits & ~(bits - 1);
      found.push_back({text("Flag", flag, name), with(kind->code, flag)});
      if (flag == GSC_OPTIMIZER_NESTEROV) found.back().options.momentum = 0.9;
    }
    if (is_schedule_free(kind->code)) continue;
    found.push_back({"Range" + name, with(kind->code)});
    found.back().options.param_min = -0.3;
    found.back().options.param_max = 0.7;
  }
  return found;
}

/// Other values of options.
std::vector<Variant> variants() {
  using O = gsc_optimizer_options;
  constexpr uint32_t kMaximize = GSC_OPTIMIZER_MAXIMIZE, kDecoupled = GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY,
                     kCautious = GSC_OPTIMIZER_CAUTIOUS, kCautiousDecay = GSC_OPTIMIZER_CAUTIOUS_DECAY;
  const auto decay = [](O &o) { o.weight_decay = 0.1; };
  return {
      {"SgdWeightDecay", with(GSC_SGD, 0, decay)},
      {"SgdMomentum", with(GSC_SGD, 0, [](O &o) { o.momentum = 0.9; })},
      {"SgdDampening", with(GSC_SGD, 0, [](O &o) { o.momentum = 0.9, o.dampening = 0.3, o.weight_decay = 0.01; })},
      {"SgdNesterov", with(GSC_SGD, GSC_OPTIMIZER_NESTEROV, [](O &o) { o.momentum = 0.8, o.weight_decay = 0.01; })},
      {"AdamWeightDecay", with(GSC_ADAM, 0, decay)},
      {"AdamAmsgradMaximize", with(GSC_ADAM, GSC_OPTIMIZER_AMSGRAD | kMaximize)},
      {"AdamWAmsgrad", with(GSC_ADAMW, GSC_OPTIMIZER_AMSGRAD, [](O &o) { o.beta2 = 0.9; })},
      {"AdamWMaximize", with(GSC_ADAMW, kMaximize, [](O &o) { o.weight_decay = 0.3; })},
      {"AdamWZeroBetas", with(GSC_ADAMW, 0, [](O &o) { o.beta1 = 0.0, o.beta2 = 0.0; })},
      {"AdagradDecays",
       with(GSC_ADAGRAD, 0, [](O &o) { o.lr_decay = 0.1, o.weight_decay = 0.05, o.initial_accumulator_value = 0.1; })},
      {"AdagradMaximize", with(GSC_ADAGRAD, kMaximize, [](O &o) { o.initial_accumulator_value = 1.0; })},
      {"LionWeightDecay", with(GSC_LION, 0, decay)},
      {"LionMaximize", with(GSC_LION, kMaximize)},
      {"LambNoDecay", with(GSC_LAMB, 0, [](O &o) { o.weight_decay = 0.0; })},
      {"LambMaximize", with(GSC_LAMB, kMaximize)},
      {"RmspropInsideRoot", with(GSC_RMSPROP, 0, [](O &o) { o.eps = 0.0, o.eps_root = 1e-3, o.weight_decay = 0.1; })},
      {"RmspropMomentum", with(GSC_RMSPROP, kMaximize, [](O &o) { o.momentum = 0.9, o.alpha = 0.4; })},
      {"RmspropCentered", with(GSC_RMSPROP, GSC_OPTIMIZER_CENTERED, decay)},
      {"RmspropCenteredMomentum",
       with(GSC_RMSPROP, GSC_OPTIMIZER_CENTERED, [](O &o) { o.momentum = 0.8, o.eps_root = 1e-4; })},
      {"Adadelta", with(GSC_ADADELTA, 0, decay)},
      {"AdadeltaMaximize", with(GSC_ADADELTA, kMaximize, [](O &o) { o.rho = 0.5; })},
      {"Adamax", with(GSC_ADAMAX, 0, decay)},
      {"AdamaxMaximize", with(GSC_ADAMAX, kMaximize, [](O &o) { o.beta2 = 0.5; })},
      {"Nadam", with(GSC_NADAM, 0, decay)},
      {"NadamDecoupled", with(GSC_NADAM, kDecoupled | kMaximize,
                              [](O &o) { o.weight_decay = 0.1, o.momentum_decay = 0.3, o.beta1 = 0.4; })},
      {"Radam", with(GSC_RADAM, 0, decay)},
      {"RadamRectified", with(GSC_RADAM, kDecoupled | kMaximize, decay)},
      {"AdaBelief", with(GSC_ADABELIEF, 0, decay)},
      {"AdaBeliefDecoupled", with(GSC_ADABELIEF, kDecoupled | kMaximize,
                                  [](O &o) { o.weight_decay = 0.1, o.eps = 1e-8, o.eps_root = 1e-6; })},
      {"AdEMAMix", with(GSC_ADEMAMIX, 0, decay)},
      {"AdamWScheduleFreeWarmUp",
       with(GSC_ADAMW_SCHEDULE_FREE, kMaximize,
            [](O &o) { o.warmup_steps = 3, o.weight_decay = 0.1, o.weight_step_power = 2.0; })},
      {"SgdScheduleFree", with(GSC_SGD_SCHEDULE_FREE, 0, decay)},
      {"SgdScheduleFreeUniform",
       with(GSC_SGD_SCHEDULE_FREE, 0, [](O &o) { o.momentum = 0.5, o.weight_lr_power = 0.0, o.warmup_steps = 2; })},
      {"Lars", with(GSC_LARS, 0, [](O &o) { o.weight_decay = 0.1, o.trust_coefficient = 0.5; })},
      {"LarsWithoutMomentum", with(GSC_LARS, 0, [](O &o) { o.momentum = 0.0, o.weight_decay = 0.1; })},
      {"LarsNesterov", with(GSC_LARS, GSC_OPTIMIZER_NESTEROV | kMaximize, [](O &o) { o.eps = 1e-3; })},
      {"NovoGrad", with(GSC_NOVOGRAD, 0, decay)},
      {"NovoGradDecoupled", with(GSC_NOVOGRAD, kDecoupled | GSC_OPTIMIZER_BIAS_CORRECTION,
                                 [](O &o) { o.weight_decay = 0.1, o.dampening = 0.95; })},
      {"NovoGradCorrected", with(GSC_NOVOGRAD, kMaximize | GSC_OPTIMIZER_BIAS_CORRECTION)},
      {"AdEMAMixWarmUp",
       with(GSC_ADEMAMIX, kMaximize, [](O &o) { o.warmup_steps = 3, o.beta3_warmup = 30, o.beta1 = 0.4; })},
      {"AdamCautious", with(GSC_ADAM, kCautious | kMaximize, decay)},
      {"AdamWCautious",
       with(GSC_ADAMW, kCautious | kCautiousDecay | GSC_OPTIMIZER_AMSGRAD, [](O &o) { o.weight_decay = 2.0; })},
      {"AdamWCautiousInRange",
       with(GSC_ADAMW, kCautious | kCautiousDecay | kMaximize,
            [](O &o) { o.weight_decay = 2.0, o.param_min = -1.0, o.param_max = 0.25, o.ema_decay = 0.75; })},
      {"LionCautious", with(GSC_LION, kCautious | kCautiousDecay | kMaximize, [](O &o) { o.weight_decay = 2.0; })},
      {"RangeAboveZero", with(GSC_SGD, 0, [](O &o) { o.param_max = 1.0; })},
      {"RangeBelowZero", with(GSC_ADAGRAD, 0, [](O &o) { o.param_min = -1.0; })},
      {"RangeOfANumber", with(GSC_LAMB, kMaximize, [](O &o) { o.param_min = o.param_max = 0.1; })},
      {"AveragedSgd", with(GSC_SGD, 0, [](O &o) { o.ema_decay = 0.75; })},
      {"AveragedAdamW", with(GSC_ADAMW, GSC_OPTIMIZER_EMA_WARMUP, [](O &o) { o.ema_decay = 0.75; })},
      {"AveragedLamb", with(GSC_LAMB, GSC_OPTIMIZER_EMA_WARMUP, [](O &o) { o.ema_decay = 0.4; })},
      {"AveragedScheduleFree", with(GSC_ADAMW_SCHEDULE_FREE, 0, [](O &o) { o.ema_decay = 0.9; })},
  };
}

class EachVariant : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(All, EachVariant, testing::ValuesIn(variants()),
                         [](const auto &info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Table, EachVariant, testing::ValuesIn(variants_of_the_table()),
                         [](const auto &info) { return info.param.name; });

/// Runs a few fused steps at a power-of-two scale and judges each.
void expect_steps(const TrainerSpec &spec, float scale, int steps = 4, int64_t before = 0) {
  const Context context = make_context(2);
  Trainer trainer(context, spec);
  ASSERT_GSC_OK(gsc_optimizer_set_steps(trainer, before, 0, nullptr));
  const Scaler scaler = make_scaler(context, scale);
  Random random(spec.seed + 1);
  for (int step = 0; step < steps; ++step) {
    trainer.fill_grads(random, std::ldexp(1.0, -step), scale);
    trainer.expect_step_matches([&] { return gsc_scaler_step(scaler, trainer, nullptr); }, 1.0f / scale);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "step " << step;
      return;
    }
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  }
}

TEST_P(EachVariant, Fp32WithEveryGradientDtype) {
  expect_steps(
      {.options = GetParam().options, .grad_dtypes = {GSC_FP16, GSC_BF16, GSC_FP32, GSC_FP64, GSC_FP16}, .offset = 1},
      128.0f);
  expect_steps({.options = GetParam().options, .grad_dtypes = {GSC_FP64, GSC_FP32, GSC_BF16, GSC_FP16, GSC_FP32}}, 3.0f,
               2, 20);
}

TEST_P(EachVariant, ModelCopies) {
  for (const int32_t copy : kAllDtypes) {
    expect_steps({.options = GetParam().options, .grad_dtypes = {copy}, .copy_dtype = copy, .offset = 3}, 1024.0f, 2);
  }
}

TEST_P(EachVariant, OtherParameterDtypes) {
  for (const int32_t dtype : {GSC_FP64, GSC_FP16, GSC_BF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    expect_steps({.options = GetParam().options, .param_dtype = dtype, .grad_dtypes = {dtype, GSC_FP32}, .offset = 1},
                 64.0f, 3);
  }
}

/// An entry of -inf, as in a mask, is moved by its gradient alone: 0 * inf would make it NaN. PyTorch leaves the decay
/// out, too.
TEST(OptimizerWeightDecay, OfZeroDoesNotReadTheParameter) {
  const Context context = make_context();
  for (const auto &[name, given] : variants()) {
    SCOPED_TRACE(name);
    gsc_optimizer_options options = given;
    options.weight_decay = 0.0;
    if (options.kind == GSC_LAMB || options.kind == GSC_LARS) continue;  // whose norms are of all parameters
    if (is_schedule_free(options.kind)) continue;                        // which takes differences of weights
    if (options.param_min != 0.0 || options.param_max != 0.0) continue;  // which has no inf
    for (const int32_t dtype : {GSC_FP32, GSC_FP64, GSC_FP16}) {
      Trainer trainer(context, {.options = options, .counts = {130}, .param_dtype = dtype});
      trainer.params()[0].set(0, -kInf);
      trainer.params()[0].set(129, kInf);
      trainer.grads()[0].fill(1.0);
      for (const int64_t i : {0, 129}) trainer.grads()[0].set(i, 0.0);
      for (int step = 0; step < 2; ++step) ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
      EXPECT_EQ(trainer.params()[0].get(0), -kInf) << dtype_name(dtype);
      EXPECT_EQ(trainer.params()[0].get(129), kInf) << dtype_name(dtype);
    }
  }
}

/// The largest of what is seen is NaN if a NaN is, as torch.maximum has it.
TEST(OptimizerAmsgrad, KeepsANan) {
  const Context context = make_context();
  for (const int32_t kind : {GSC_ADAM, GSC_ADAMW}) {
    gsc_optimizer_options options = optimizer_options(kind);
    options.flags = GSC_OPTIMIZER_AMSGRAD;
    Trainer trainer(context, {.options = options, .counts = {70}});
    trainer.grads()[0].fill(1.0);
    ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
    trainer.grads()[0].set(69, kNan);
    ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
    const auto *largest = static_cast<const float *>(trainer.state_tensor(2, 0).data);
    EXPECT_TRUE(std::isnan(largest[69]));
    EXPECT_GT(largest[68], 0.0f);
  }
}

/// An average is taken of 65536 elements at a time.
TEST(OptimizerAverage, OfLongTensors) {
  gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  options.ema_decay = 0.75;
  for (const int32_t dtype : kAllDtypes) {
    expect_steps({.options = options, .counts = {70000, 3, 8193}, .param_dtype = dtype}, 64.0f, 3);
  }
}

/// Chunks that differ in what they add to either norm, so that none can be left out.
TEST(OptimizerLamb, NormsOfManyChunks) {
  const Context context = make_context(2);
  Random random(71);
  for (const int32_t dtype : {GSC_FP32, GSC_FP64}) {
    gsc_optimizer_options options = optimizer_options(GSC_LAMB);
    options.weight_decay = 0.1;
    Trainer trainer(context, {.options = options,
                              .counts = {kChunk, kChunk + 1, 3 * kChunk - 1, 2 * kChunk, 2 * kChunk + 2},
                              .param_dtype = dtype,
                              .grad_dtypes = {GSC_FP32, GSC_FP16}});
    for (int step = 0; step < 4; ++step) {
      for (size_t t = 0; t < trainer.params().size(); ++t) {
        Buffer &param = trainer.params()[t], &grad = trainer.grads()[t];
        grad.fill(0.0);
        // The parameters are large in one chunk, the update in another: in one of both of one or two elements, too.
        const int64_t chunks = (param.count() + kChunk - 1) / kChunk;
        fill_chunks(random, param);
        const int64_t first = step % chunks * kChunk, other = (chunks - 1 - step % chunks) * kChunk;
        for (int64_t i = first; i < std::min(first + kChunk, param.count()); ++i) param.set(i, 300.0);
        for (int64_t i = other; i < std::min(other + kChunk, param.count()); ++i) grad.set(i, random.uniform(1.0, 2.0));
      }
      trainer.expect_step_matches([&] { return gsc_optimizer_step(trainer, nullptr); });
      ASSERT_FALSE(testing::Test::HasFailure()) << dtype_name(dtype) << " step " << step;
    }
  }
}

/// The trust ratio of a tensor of zeros is 1, as documented: it must be able to leave zero. So is that of a tensor with a
/// NaN, whose norm is not > 0: the others move.
TEST(OptimizerLamb, MovesZerosAndWhatIsNotNan) {
  const Context context = make_context();
  for (const double weight_decay : {0.0, 0.01}) {  // with decay the direction has a NaN, too
    gsc_optimizer_options options = optimizer_options(GSC_LAMB);
    options.weight_decay = weight_decay;
    for (const double first : {0.0, kNan}) {
      Trainer trainer(context, {.options = options, .counts = {3}});
      Buffer &params = trainer.params()[0];
      params.fill(0.0);
      params.set(0, first);
      if (std::isnan(first)) params.set(1, 1.0), params.set(2, -2.0);
      const std::vector<double> before = params.values();
      trainer.grads()[0].fill(2.0);
      ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
      EXPECT_EQ(std::isnan(params.get(0)), std::isnan(first));
      for (const int64_t i : {1, 2}) {
        EXPECT_NEAR(params.get(i), before[i] - options.lr * (1.0 + weight_decay * before[i]), 1e-6);
      }
    }
  }
}

/// A direction of -0 takes -0 to +0, as semantics.md has it.
TEST(OptimizerLion, KeepsTheSignOfZero) {
  const Context context = make_context();
  gsc_optimizer_options options = optimizer_options(GSC_LION);
  options.beta1 = 0.0;
  Trainer trainer(context, {.options = options, .counts = {20}});
  for (const double g : {-1.0, -0.0}) {  // the first makes the state negative, and 0 times it -0
    trainer.params()[0].fill(-0.0);
    trainer.grads()[0].fill(g);
    trainer.expect_step_matches([&] { return gsc_optimizer_step(trainer, nullptr); });
  }
}

/// Before it rectifies, RAdam does not divide by the root of its second moment, whatever that is: inf after a gradient
/// whose square is, and NaN after that with beta2 0.
TEST(OptimizerRadam, ASecondMomentThatIsNotUsedDoesNoHarm) {
  const Context context = make_context();
  gsc_optimizer_options options = optimizer_options(GSC_RADAM);
  for (const double beta2 : {0.0, 0.5}) {
    options.beta2 = beta2;
    Trainer trainer(context, {.options = options, .counts = {20}});
    for (const double g : {1e30, 1e30, 1.0}) {
      trainer.fill_grads(g);
      trainer.expect_step_matches([&] { return gsc_optimizer_step(trainer, nullptr); });
      EXPECT_TRUE(std::isfinite(trainer.params()[0].get(0))) << beta2;
    }
  }
}

TEST(OptimizerEmpty, TensorsAndLists) {
  const Context context = make_context();
  for (const std::vector<int64_t> &counts : {std::vector<int64_t>{}, {0, 0}, {0, 5, 0}}) {
    for (const int32_t kind : {GSC_SGD, GSC_ADAMW, GSC_LAMB}) {
      Trainer trainer(context, {.options = optimizer_options(kind), .counts = counts});
      Random random(77);
      trainer.fill_grads(random, 1.0);
      trainer.expect_step_matches([&] { return gsc_optimizer_step(trainer, nullptr); });
      EXPECT_EQ(applied_steps(trainer), 1);
    }
  }
}

/// Once the decay of NAdam's momentum is nothing, all its factors are beta1: a product of many is a power. One constant
/// gradient; m and v are then its own times 1 - beta^t, so that the step has a closed form, in which beta2 is not.
TEST(OptimizerNadam, AMomentumThatHasDecayedIsBeta1) {
  const Context context = make_context();
  for (const double beta2 : {0.999, 0.5}) {
    for (const double beta1 : {0.9, 0.4}) {
      gsc_optimizer_options options = optimizer_options(GSC_NADAM);
      options.momentum_decay = 1000.0;
      options.beta1 = beta1;
      options.beta2 = beta2;
      options.lr = 0.01;
      Trainer trainer(context, {.options = options, .counts = {1}, .param_dtype = GSC_FP64, .grad_dtypes = {GSC_FP64}});
      trainer.params()[0].set(0, 0.0);
      trainer.fill_grads(2.0);
      double p = 0.0;
      for (int t = 1; t <= 30; ++t) {
        const double product = std::pow(beta1, t), moment = 1.0 - product;
        p -= options.lr * ((1.0 - beta1) / (1.0 - product) + beta1 * moment / (1.0 - product * beta1));
        ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
        ASSERT_NEAR(trainer.params()[0].get(0), p, 1e-6 * t * options.lr) << t << ' ' << beta1 << ' ' << beta2;
      }
    }
  }
}

TEST(OptimizerNull, OptionsMeanAdamW) {
  const Context context = make_context();
  std::vector<Buffer> params = make_buffers(GSC_FP32, {4}), grads = make_buffers(GSC_FP32, {4});
  const List p = make_list(context, params), g = make_list(context, grads);
  gsc_optimizer *raw = nullptr;
  ASSERT_GSC_OK(gsc_optimizer_create(context, nullptr, p, g, nullptr, nullptr, 0, &raw));
  const Optimizer optimizer(raw);
  gsc_optimizer_options options = optimizer_options(GSC_SGD);
  ASSERT_GSC_OK(gsc_optimizer_get_options(raw, 0, &options));
  const gsc_optimizer_options expected = optimizer_options(GSC_ADAMW);
  EXPECT_TRUE(same_bytes(options, expected));
}

}  // namespace
}  // namespace gsc_test
