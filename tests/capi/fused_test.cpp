// SPDX-License-Identifier: Apache-2.0
//
// One fused step against the same step taken apart. For power-of-two scales both must agree bit for bit: parameters,
// state, model copy, and gradients where the caller asks for them.
#include <functional>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

/// Steps of two trainers on the same gradients: `fused` in one call, and taken apart. Each has a scaler.
void expect_same_steps(const TrainerSpec &spec, float scale, const std::function<void(gsc_scaler *, Trainer &)> &fused,
                       const std::function<void(gsc_scaler *, Trainer &)> &apart) {
  const Context context = make_context(2);
  Trainer one(context, spec), other(context, spec);
  const Scaler a = make_scaler(context, scale), b = make_scaler(context, scale);
  Random random(91);
  for (int step = 0; step < 3; ++step) {
    // Not below 2^-9, so that unscaled fp16 gradients stay normal and nothing is lost when they are stored.
    for (Buffer &buffer : one.grads()) {
      for (int64_t i = 0; i < buffer.count(); ++i) {
        const double magnitude = round_to(random.uniform(0.002, 0.9), buffer.dtype());
        buffer.set(i, (random.below(2) == 0 ? -1.0 : 1.0) * magnitude * static_cast<double>(scale));
      }
    }
    for (size_t i = 0; i < one.grads().size(); ++i) other.grads()[i].restore(one.grads()[i].image());
    fused(a, one);
    apart(b, other);
    const gsc_report first = report_of(a, one.grad_list()), second = report_of(b, other.grad_list());
    EXPECT_EQ(std::memcmp(&first, &second, sizeof first), 0) << first.grad_norm << " and " << second.grad_norm;
    for (const Scaler *scaler : {&a, &b}) ASSERT_GSC_OK(gsc_scaler_update(*scaler, nullptr));
    ASSERT_TRUE(one.snapshot().same_with_grads(other.snapshot())) << "scale " << scale << " step " << step;
  }
}

TrainerSpec spec_of(int32_t kind, int32_t grad_dtype, int32_t param_dtype) {
  TrainerSpec result = {.options = optimizer_options(kind), .counts = {3, 0, 700, 9001}};
  result.options.flags = GSC_OPTIMIZER_WRITE_GRADS;
  if (kind == GSC_SGD) result.options.momentum = 0.9;
  result.param_dtype = param_dtype;
  result.grad_dtypes = {grad_dtype};
  result.copy_dtype = GSC_FP16;
  return result;
}

class Fused : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Fused, ::testing::ValuesIn(optimizer_kinds()));

TEST_P(Fused, EqualsUnscaleThenStep) {
  for (const auto &[grad, param] : {std::pair{GSC_FP16, GSC_FP32},
                                    {GSC_BF16, GSC_FP32},
                                    {GSC_FP32, GSC_FP32},
                                    {GSC_FP64, GSC_FP32},
                                    {GSC_FP64, GSC_FP64},
                                    {GSC_FP16, GSC_FP16}}) {
    SCOPED_TRACE(text(dtype_name(grad), " into ", dtype_name(param)));
    expect_same_steps(
        spec_of(GetParam(), grad, param), 256.0f,
        [](gsc_scaler *s, Trainer &t) { ASSERT_GSC_OK(gsc_scaler_step(s, t, nullptr)); },
        [](gsc_scaler *s, Trainer &t) {
          ASSERT_GSC_OK(gsc_scaler_check_range(s, t.grad_list(), 2, 1, nullptr));
          ASSERT_GSC_OK(gsc_scaler_check_range(s, t.grad_list(), 3, 1, nullptr));
          ASSERT_GSC_OK(gsc_scaler_check_range(s, t.grad_list(), 0, 2, nullptr));
          ASSERT_GSC_OK(gsc_scaler_unscale(s, t.grad_list(), nullptr));
          ASSERT_GSC_OK(gsc_scaler_step(s, t, nullptr));
        });
  }
}

/// 16-bit gradients are rounded by each separate pass, so their fused step is the more exact one: optimizer_test.cpp.
TEST_P(Fused, EqualsUnscaleClipAndStep) {
  for (const int32_t dtype : {GSC_FP32, GSC_FP64}) {
    for (const int32_t norm_type : {GSC_NORM_L2, GSC_NORM_INF}) {
      const auto clip = [&](gsc_scaler *s, Trainer &t) {
        ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(s, t.grad_list(), 0.7, norm_type, nullptr));
        ASSERT_GSC_OK(gsc_scaler_clip_grad_value(s, t.grad_list(), 0.01, nullptr));
        ASSERT_GSC_OK(gsc_scaler_step(s, t, nullptr));
      };
      expect_same_steps(spec_of(GetParam(), dtype, dtype), 4096.0f, clip, [&](gsc_scaler *s, Trainer &t) {
        ASSERT_GSC_OK(gsc_scaler_unscale(s, t.grad_list(), nullptr));
        clip(s, t);
      });
    }
  }
}

TEST(FusedRange, DisabledScalerEqualsAPlainStep) {
  const Context context = make_context();
  const TrainerSpec spec = spec_of(GSC_ADAMW, GSC_FP16, GSC_FP32);
  Trainer with(context, spec), without(context, spec);
  const Scaler scaler = make_scaler(context, disabled_options());
  for (Trainer *trainer : {&with, &without}) {
    Random random(96);
    trainer->fill_grads(random, 1.0);
  }
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler, with.grad_list(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_step(scaler, with, nullptr));
  ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step(without, nullptr));
  EXPECT_TRUE(with.snapshot().same_with_grads(without.snapshot()));
}

/// Exactly those that round to inf: from half a step above the largest float on.
TEST(FusedRange, Fp64GradientsOverflowWhereTheyRoundToInf) {
  const Context context = make_context();
  const double limit = 0x1.ffffffp+127;
  for (const double value : {limit, -limit, std::nextafter(limit, 0.0), 0x1.fffffep+127}) {
    gsc_optimizer_options sgd = optimizer_options(GSC_SGD);
    sgd.lr = 1e-38;
    Trainer trainer(context, {.options = sgd, .counts = {40}, .grad_dtypes = {GSC_FP64}});
    const Scaler scaler = make_scaler(context, 1.0f);
    trainer.grads()[0].set(7, value);
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    EXPECT_EQ(applied_steps(trainer.optimizer()), std::abs(value) < limit ? 1 : 0) << value;
    EXPECT_TRUE(std::isfinite(trainer.params()[0].get(7))) << value;
  }
}

/// Arithmetic is in fp32 for parameters that are not fp64, so a gradient that is finite in fp64 only is an overflow.
TEST(FusedRange, Fp64GradientsBeyondFp32AreAnOverflow) {
  const Context context = make_context();
  for (const int32_t param_dtype : {GSC_FP32, GSC_FP16, GSC_BF16, GSC_FP64}) {
    for (const char *way : {"step", "check", "unscale"}) {
      Trainer trainer(context, {.options = optimizer_options(GSC_SGD),
                                .counts = {40, 5000},
                                .param_dtype = param_dtype,
                                .grad_dtypes = {GSC_FP64}});
      const Scaler scaler = make_scaler(context, 2.0f);
      trainer.grads()[1].set(4321, 1e300);
      const Snapshot before = trainer.snapshot();
      if (std::string(way) == "check") {
        ASSERT_GSC_OK(gsc_scaler_check(scaler, trainer.grad_list(), nullptr));
      } else if (std::string(way) == "unscale") {
        ASSERT_GSC_OK(gsc_scaler_unscale(scaler, trainer.grad_list(), nullptr));
      }
      ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
      if (param_dtype == GSC_FP64) {
        EXPECT_EQ(applied_steps(trainer.optimizer()), 1) << way;
        EXPECT_TRUE(std::isfinite(trainer.params()[1].get(4321))) << way;
      } else {
        EXPECT_TRUE(trainer.snapshot() == before) << way << " into " << dtype_name(param_dtype);
        EXPECT_EQ(scale_of(scaler), 1.0f) << way;
        EXPECT_EQ(report_of(scaler, trainer.grad_list()).first_element, 4321) << way;
      }
    }
  }
}

/// The list is the caller's: an optimizer that has gone leaves no mark on it.
TEST(FusedRange, AnOptimizerThatIsGoneNarrowsNothing) {
  const Context context = make_context();
  Buffer params(GSC_FP32, 1);
  Buffer grads(GSC_FP64, 1);
  grads.set(0, 1e300);
  const List param_list = make_list(context, params);
  const List grad_list = make_list(context, grads);
  const Scaler scaler = make_scaler(context, 2.0f);
  const auto counted = [&] {
    EXPECT_TRUE(is_ok(gsc_scaler_check(scaler, grad_list, nullptr)));
    const int64_t inf_count = report_of(scaler, grad_list).inf_count;
    EXPECT_TRUE(is_ok(gsc_scaler_discard(scaler, grad_list)));
    return inf_count;
  };
  EXPECT_EQ(counted(), 0);
  {
    const Optimizer first = make_optimizer(context, optimizer_options(GSC_SGD), param_list, grad_list);
    {
      const Optimizer second = make_optimizer(context, optimizer_options(GSC_LION), param_list, grad_list);
      EXPECT_EQ(counted(), 1);
    }
    EXPECT_EQ(counted(), 1);
  }
  EXPECT_EQ(counted(), 0);
}

}  // namespace
}  // namespace gsc_test
