// SPDX-License-Identifier: Apache-2.0
//
// One fused step against the same step taken apart. For power-of-two scales both must agree bit for bit: parameters,
// state, model copy, and gradients where the caller asks for them.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

struct Case {
  int32_t kind;
  int32_t grad_dtype;
  int32_t param_dtype;
};
void PrintTo(const Case &c, std::ostream *stream) { *stream << c.kind << ' ' << c.grad_dtype << ' ' << c.param_dtype; }

std::string case_name(const ::testing::TestParamInfo<Case> &info) {
  return text("Kind", info.param.kind, "_", dtype_name(info.param.grad_dtype), "_into_",
              dtype_name(info.param.param_dtype));
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const int32_t kind : optimizer_kinds()) {
    for (const int32_t grad : kAllDtypes) result.push_back({kind, grad, GSC_FP32});
    result.push_back({kind, GSC_FP64, GSC_FP64});
    result.push_back({kind, GSC_FP16, GSC_FP16});
    result.push_back({kind, GSC_BF16, GSC_BF16});
  }
  return result;
}

class Fused : public ::testing::TestWithParam<Case> {
 protected:
  TrainerSpec spec(uint32_t flags = 0) const {
    TrainerSpec result = {.options = optimizer_options(GetParam().kind)};
    result.options.flags = flags;
    result.options.weight_decay = 0.01;
    if (GetParam().kind == GSC_SGD) result.options.momentum = 0.9;
    result.counts = {3, 0, 700, 9001};
    result.param_dtype = GetParam().param_dtype;
    result.grad_dtypes = {GetParam().grad_dtype};
    result.copy_dtype = GSC_FP16;
    return result;
  }
  /// True if a product of a gradient and a factor survives a store to the gradient's dtype and back.
  bool stores_exactly() const { return GetParam().grad_dtype == GSC_FP32 || GetParam().grad_dtype == GSC_FP64; }

  static void copy_grads(Trainer &from, Trainer &to) {
    for (size_t i = 0; i < from.grads().size(); ++i) to.grads()[i].restore(from.grads()[i].image());
  }
};
INSTANTIATE_TEST_SUITE_P(All, Fused, ::testing::ValuesIn(cases()), case_name);

TEST_P(Fused, EqualsUnscaleThenStep) {
  const Context context = make_context(2);
  for (const float scale : {1.0f, 256.0f, 65536.0f}) {
    Trainer fused(context, spec(GSC_OPTIMIZER_WRITE_GRADS)), apart(context, spec(GSC_OPTIMIZER_WRITE_GRADS));
    const Scaler a = make_scaler(context, scale), b = make_scaler(context, scale);
    Random random(91);
    for (int step = 0; step < 3; ++step) {
      // Not below 2^-9, so that unscaled fp16 gradients stay normal and nothing is lost when they are stored.
      for (Buffer &buffer : fused.grads()) {
        for (int64_t i = 0; i < buffer.count(); ++i) {
          const double magnitude = round_to(random.uniform(0.002, 0.9), buffer.dtype());
          buffer.set(i, (random.below(2) == 0 ? -1.0 : 1.0) * magnitude * static_cast<double>(scale));
        }
      }
      copy_grads(fused, apart);
      ASSERT_GSC_OK(gsc_scaler_step(a, fused, nullptr));
      ASSERT_GSC_OK(gsc_scaler_update(a, nullptr));
      ASSERT_GSC_OK(gsc_scaler_unscale(b, apart.grad_list(), nullptr));
      ASSERT_GSC_OK(gsc_scaler_step(b, apart, nullptr));
      ASSERT_GSC_OK(gsc_scaler_update(b, nullptr));
      ASSERT_TRUE(fused.snapshot().same_with_grads(apart.snapshot())) << "scale " << scale << " step " << step;
      const gsc_report first = report_of(a, fused.grad_list()), second = report_of(b, apart.grad_list());
      EXPECT_EQ(std::memcmp(&first, &second, sizeof first), 0) << first.grad_norm << " and " << second.grad_norm;
    }
  }
}

TEST_P(Fused, EqualsUnscaleClipAndStep) {
  if (!stores_exactly()) return;  // 16-bit gradients are rounded by each separate pass; see the next test.
  const Context context = make_context(2);
  for (const int32_t norm_type : {GSC_NORM_L2, GSC_NORM_INF}) {
    for (const bool check_first : {false, true}) {
      Trainer fused(context, spec(GSC_OPTIMIZER_WRITE_GRADS)), apart(context, spec(GSC_OPTIMIZER_WRITE_GRADS));
      const Scaler a = make_scaler(context, 4096.0f), b = make_scaler(context, 4096.0f);
      Random random(92);
      for (int step = 0; step < 3; ++step) {
        fused.fill_grads(random, 1.0, 4096.0);
        copy_grads(fused, apart);
        if (check_first) {
          ASSERT_GSC_OK(gsc_scaler_check(a, fused.grad_list(), nullptr));
        }
        ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(a, fused.grad_list(), 0.7, norm_type, nullptr));
        ASSERT_GSC_OK(gsc_scaler_clip_grad_value(a, fused.grad_list(), 0.01, nullptr));
        ASSERT_GSC_OK(gsc_scaler_step_and_update(a, fused, nullptr));
        ASSERT_GSC_OK(gsc_scaler_unscale(b, apart.grad_list(), nullptr));
        ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(b, apart.grad_list(), 0.7, norm_type, nullptr));
        ASSERT_GSC_OK(gsc_scaler_clip_grad_value(b, apart.grad_list(), 0.01, nullptr));
        ASSERT_GSC_OK(gsc_scaler_step_and_update(b, apart, nullptr));
        ASSERT_TRUE(fused.snapshot().same_with_grads(apart.snapshot()))
            << "norm type " << norm_type << " step " << step;
      }
    }
  }
}

/// Without rounding in between, a fused clip of 16-bit gradients is at least as exact: the gradients it writes are the
/// products rounded once, within one unit of the ones rounded by each pass.
TEST_P(Fused, ClippedSixteenBitGradientsAgreeToAUnit) {
  if (stores_exactly()) return;
  const Context context = make_context();
  Trainer fused(context, spec(GSC_OPTIMIZER_WRITE_GRADS)), apart(context, spec(GSC_OPTIMIZER_WRITE_GRADS));
  const Scaler a = make_scaler(context, 64.0f), b = make_scaler(context, 64.0f);
  Random random(93);
  fused.fill_grads(random, 1.0, 64.0);
  copy_grads(fused, apart);
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(a, fused.grad_list(), 3.0, GSC_NORM_L2, nullptr));
  ASSERT_GSC_OK(gsc_scaler_step(a, fused, nullptr));
  ASSERT_GSC_OK(gsc_scaler_unscale(b, apart.grad_list(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(b, apart.grad_list(), 3.0, GSC_NORM_L2, nullptr));
  ASSERT_GSC_OK(gsc_scaler_step(b, apart, nullptr));
  for (size_t t = 0; t < fused.grads().size(); ++t) {
    for (int64_t i = 0; i < fused.grads()[t].count(); ++i) {
      const double expected = apart.grads()[t].get(i);
      ASSERT_NEAR(fused.grads()[t].get(i), expected, ulp(expected, GetParam().grad_dtype)) << t << ' ' << i;
    }
  }
}

TEST_P(Fused, CheckedEqualsUnchecked) {
  const Context context = make_context(2);
  Trainer direct(context, spec()), checked(context, spec());
  const Scaler a = make_scaler(context, 100.0f), b = make_scaler(context, 100.0f);
  Random random(94);
  for (int step = 0; step < 3; ++step) {
    direct.fill_grads(random, 1.0, 100.0);
    copy_grads(direct, checked);
    ASSERT_GSC_OK(gsc_scaler_step_and_update(a, direct, nullptr));
    ASSERT_GSC_OK(gsc_scaler_check_range(b, checked.grad_list(), 2, 1, nullptr));
    ASSERT_GSC_OK(gsc_scaler_step_and_update(b, checked, nullptr));
    ASSERT_TRUE(direct.snapshot().same_with_grads(checked.snapshot()));
  }
}

TEST_P(Fused, StepScaledEqualsTheScalersStep) {
  const Context context = make_context();
  Trainer scaled(context, spec()), words(context, spec());
  const Scaler scaler = make_scaler(context, 1000.0f);
  Random random(95);
  scaled.fill_grads(random, 1.0, 1000.0);
  copy_grads(scaled, words);
  const float inverse = inverse_of(1000.0f);
  ASSERT_GSC_OK(gsc_scaler_step(scaler, scaled, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(words, &inverse, nullptr, nullptr));
  EXPECT_TRUE(scaled.snapshot().same_with_grads(words.snapshot()));
}

TEST_P(Fused, DisabledScalerEqualsAPlainStep) {
  const Context context = make_context();
  Trainer with(context, spec()), without(context, spec());
  const Scaler scaler = make_scaler(context, disabled_options());
  Random random(96);
  with.fill_grads(random, 1.0);
  copy_grads(with, without);
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
