// SPDX-License-Identifier: Apache-2.0
//
// A list's device factor. A power of two divides exactly, so that a factor of 1/4 must give the bits of a scale that is
// four times as large: in gradients, norms, clips, skips and steps, by every way through an iteration.
#include <functional>

#include "tests/support/kinds.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

constexpr float kFactor = 0.25f;

gsc_scaler_options static_scale(float scale) {
  gsc_scaler_options options = preset_options(GSC_PRESET_STATIC_SCALE);
  options.init_scale = scale;
  options.skip_norm = 40.0;
  return options;
}

/// A model and its scaler. `factor` NULL: none.
struct World {
  World(const TrainerSpec &spec, const gsc_scaler_options &options, const float *factor)
      : trainer(context, spec), scaler(make_scaler(context, options)) {
    EXPECT_GSC_OK(gsc_tensor_list_set_device_factor(trainer.grad_list(), factor));
  }
  gsc_tensor_list *grads() const { return trainer.grad_list(); }

  Context context = make_context(2);
  Trainer trainer;
  Scaler scaler;
};

struct Way {
  const char *name;
  std::function<gsc_status(World &)> take;
};

gsc_status step(World &w) { return gsc_scaler_step(w.scaler, w.trainer, nullptr); }
gsc_status end(World &w) { return gsc_scaler_update(w.scaler, nullptr); }
gsc_status clip(World &w) { return gsc_scaler_clip_grad_norm(w.scaler, w.grads(), 2.0, GSC_NORM_L2, nullptr); }
gsc_status unscale(World &w) { return gsc_scaler_unscale(w.scaler, w.grads(), nullptr); }

gsc_status in_turn(World &w, std::initializer_list<gsc_status (*)(World &)> calls) {
  for (const auto &call : calls) {
    if (const gsc_status status = call(w); status != GSC_OK) return status;
  }
  return GSC_OK;
}

const std::vector<Way> kWays = {
    {"step",
     [](World &w) {
       return in_turn(w, {step, end});
     }},
    {"step_and_update", [](World &w) { return gsc_scaler_step_and_update(w.scaler, w.trainer, nullptr); }},
    {"slices",
     [](World &w) {
       for (int64_t left = 1; left > 0;)
         EXPECT_GSC_OK(gsc_scaler_step_slice(w.scaler, w.trainer, 4096, &left, nullptr));
       return end(w);
     }},
    {"check and slices",
     [](World &w) {
       EXPECT_GSC_OK(gsc_scaler_check_range(w.scaler, w.grads(), 1, 2, nullptr));
       for (int64_t left = 1; left > 0;)
         EXPECT_GSC_OK(gsc_scaler_step_slice(w.scaler, w.trainer, 4096, &left, nullptr));
       return end(w);
     }},
    {"clip",
     [](World &w) {
       return in_turn(w, {clip, step, end});
     }},
    {"unscale",
     [](World &w) {
       return in_turn(w, {unscale, step, end});
     }},
    {"unscale and clip",
     [](World &w) {
       return in_turn(w, {unscale, clip, step, end});
     }},
    {"check and clip",
     [](World &w) {
       EXPECT_GSC_OK(gsc_scaler_check(w.scaler, w.grads(), nullptr));
       return in_turn(w, {clip, step, end});
     }},
    {"clip by value",
     [](World &w) {
       EXPECT_GSC_OK(gsc_scaler_clip_grad_value(w.scaler, w.grads(), 0.125, nullptr));
       return in_turn(w, {step, end});
     }},
    {"a check that is discarded",
     [](World &w) {
       EXPECT_GSC_OK(gsc_scaler_check(w.scaler, w.grads(), nullptr));
       EXPECT_GSC_OK(gsc_scaler_discard(w.scaler, w.grads()));
       return in_turn(w, {clip, step, end});
     }},
};

class DeviceFactor : public ::testing::TestWithParam<int32_t> {
 protected:
  static TrainerSpec spec_of(int32_t kind) {
    const bool is_fp64 = GetParam() == GSC_FP64;
    return {.options = optimizer_options(kind),
            .param_dtype = is_fp64 ? GSC_FP64 : GSC_FP32,
            .grad_dtypes = {GetParam(), is_fp64 ? GSC_FP32 : GetParam()}};
  }
};
INSTANTIATE_TEST_SUITE_P(Dtypes, DeviceFactor, ::testing::Values(GSC_FP16, GSC_BF16, GSC_FP32, GSC_FP64),
                         name_of_dtype);

TEST_P(DeviceFactor, DividesAsALargerScaleDoes) {
  const TrainerSpec spec = spec_of(GSC_ADAMW);
  for (const Way &way : kWays) {
    SCOPED_TRACE(way.name);
    World multiplied(spec, static_scale(8.0f), &kFactor), divided(spec, static_scale(32.0f), nullptr);
    Random random(5), same(5);
    for (int i = 0; i < 6; ++i) {
      SCOPED_TRACE(i);
      // The third norm is above the limit, the fifth is of an inf.
      multiplied.trainer.fill_grads(random, i == 2 ? 128.0 : 16.0);
      divided.trainer.fill_grads(same, i == 2 ? 128.0 : 16.0);
      for (World *w : {&multiplied, &divided}) {
        if (i == 4) w->trainer.grads()[1].set(3, kInf);
        ASSERT_GSC_OK(way.take(*w));
      }
      EXPECT_TRUE(multiplied.trainer.snapshot().same_with_grads(divided.trainer.snapshot()));
      const gsc_report a = report_of(multiplied.scaler), b = report_of(divided.scaler);
      EXPECT_EQ(a.flags, b.flags);
      EXPECT_EQ((a.flags & GSC_REPORT_SPIKE) != 0, i == 2);
      EXPECT_EQ((a.flags & GSC_REPORT_OVERFLOW) != 0, i == 4);
      EXPECT_TRUE(a.grad_norm == b.grad_norm || i == 4);
      EXPECT_EQ(a.grad_amax, b.grad_amax);
    }
    EXPECT_EQ(applied_steps(multiplied.trainer), 4);
  }
}

TEST_P(DeviceFactor, IsMultipliedByTheInverseScaleFirst) {
  const float factor = 1.0f / 3.0f, inverse = (1.0f / 8.0f) * factor;
  const TrainerSpec spec = spec_of(GSC_ADAMW);
  const Context context = make_context();
  const float eighth = 1.0f / 8.0f;
  Trainer expected(context, spec), by_scale(context, spec);
  World scaled(spec, static_scale(8.0f), &factor);
  ASSERT_GSC_OK(gsc_tensor_list_set_device_factor(by_scale.grad_list(), &factor));
  for (uint64_t i = 0; i < 3; ++i) {
    for (Trainer *t : {&expected, &by_scale, &scaled.trainer}) {
      Random random(i);
      t->fill_grads(random, 16.0);
    }
    ASSERT_GSC_OK(gsc_optimizer_step_scaled(expected, &inverse, nullptr, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_step_scaled(by_scale, &eighth, nullptr, nullptr));
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaled.scaler, scaled.trainer, nullptr));
    EXPECT_TRUE(by_scale.snapshot().same_with_grads(expected.snapshot()));
    EXPECT_TRUE(scaled.trainer.snapshot().same_with_grads(expected.snapshot()));
  }
}

TEST_P(DeviceFactor, IsTheInverseScaleOfStepsWithoutOne) {
  const TrainerSpec spec = spec_of(GSC_SGD);
  const Context context = make_context();
  Trainer expected(context, spec), alone(context, spec);
  ASSERT_GSC_OK(gsc_tensor_list_set_device_factor(alone.grad_list(), &kFactor));
  World disabled(spec, disabled_options(), &kFactor), unscaled(spec, disabled_options(), &kFactor);
  World sliced(spec, disabled_options(), &kFactor);
  for (uint64_t i = 0; i < 3; ++i) {
    for (Trainer *t : {&expected, &alone, &disabled.trainer, &unscaled.trainer, &sliced.trainer}) {
      Random random(i);
      t->fill_grads(random, 16.0);
    }
    ASSERT_GSC_OK(gsc_optimizer_step_scaled(expected, &kFactor, nullptr, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_step(alone, nullptr));
    ASSERT_GSC_OK(in_turn(disabled, {step, end}));
    ASSERT_GSC_OK(in_turn(unscaled, {unscale, step, end}));
    for (int64_t left = 1; left > 0;) {
      ASSERT_GSC_OK(gsc_scaler_step_slice(sliced.scaler, sliced.trainer, 4096, &left, nullptr));
    }
    ASSERT_GSC_OK(end(sliced));
    for (const Trainer *t : {&alone, &disabled.trainer, &unscaled.trainer, &sliced.trainer}) {
      EXPECT_EQ(t->snapshot(), expected.snapshot());
    }
    EXPECT_EQ(unscaled.trainer.grads()[2].get(5), expected.grads()[2].get(5) * kFactor);
  }
}

/// A clip by a disabled scaler measures the norm that the step sees.
TEST_P(DeviceFactor, CountsInTheNormOfADisabledScaler) {
  const TrainerSpec spec = spec_of(GSC_SGD);
  const float one = 1.0f;
  const std::vector<Way> ways = {{"clip",
                                  [](World &w) {
                                    return in_turn(w, {clip, step, end});
                                  }},
                                 {"unscale", [](World &w) {
                                    return in_turn(w, {unscale, clip, step, end});
                                  }}};
  for (const Way &way : ways) {
    SCOPED_TRACE(way.name);
    World multiplied(spec, disabled_options(), &kFactor), expected(spec, disabled_options(), &one);
    Random random(5), same(5);
    multiplied.trainer.fill_grads(random, 16.0);
    expected.trainer.fill_grads(same, 16.0, kFactor);
    for (World *w : {&multiplied, &expected}) ASSERT_GSC_OK(way.take(*w));
    EXPECT_EQ(multiplied.trainer.snapshot(), expected.trainer.snapshot());
  }
}

class DeviceFactorOf : public ::testing::Test {
 protected:
  float factor_ = kFactor;
  World w_{{.options = optimizer_options(GSC_ADAMW), .counts = {3, 5}}, static_scale(8.0f), &factor_};
};

TEST_F(DeviceFactorOf, ACheckIsThatOfItsStep) {
  World expected({.options = optimizer_options(GSC_ADAMW), .counts = {3, 5}}, static_scale(32.0f), nullptr);
  for (World *w : {&w_, &expected}) {
    w->trainer.fill_grads(4.0);
    ASSERT_GSC_OK(gsc_scaler_check_range(w->scaler, w->grads(), 0, 1, nullptr));
  }
  factor_ = 7.0f;  // too late
  for (World *w : {&w_, &expected}) {
    ASSERT_GSC_OK(gsc_scaler_check_range(w->scaler, w->grads(), 1, 1, nullptr));
    ASSERT_GSC_OK(in_turn(*w, {clip, step, end}));
  }
  EXPECT_EQ(w_.trainer.snapshot(), expected.trainer.snapshot());
}

TEST_F(DeviceFactorOf, AListIsFixedDuringAnIteration) {
  w_.trainer.fill_grads(4.0);
  ASSERT_GSC_OK(gsc_scaler_check(w_.scaler, w_.grads(), nullptr));
  EXPECT_BAD_STATE(gsc_tensor_list_set_device_factor(w_.grads(), nullptr), "list", "update or discard");
  EXPECT_BAD_STATE(gsc_optimizer_step_scaled(w_.trainer, &factor_, nullptr, nullptr), "optimizer", "device factor");
  ASSERT_GSC_OK(in_turn(w_, {step, end}));
  EXPECT_GSC_OK(gsc_tensor_list_set_device_factor(w_.grads(), nullptr));
}

/// A value is a limit of multiplied gradients, which the caller of should_step has yet to multiply.
TEST_F(DeviceFactorOf, AValueIsNotClippedBeforeIt) {
  const Scaler disabled = make_scaler(w_.context, disabled_options());
  int32_t apply = 0;
  w_.trainer.fill_grads(4.0);
  ASSERT_GSC_OK(gsc_scaler_clip_grad_value(disabled, w_.grads(), 0.5, nullptr));
  EXPECT_BAD_STATE(gsc_scaler_should_step_sync(disabled, w_.grads(), &apply, nullptr), "grads", "call unscale before");
  ASSERT_GSC_OK(gsc_scaler_discard(disabled, w_.grads()));
  ASSERT_GSC_OK(gsc_scaler_unscale(disabled, w_.grads(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_clip_grad_value(disabled, w_.grads(), 0.5, nullptr));
  ASSERT_GSC_OK(gsc_scaler_should_step_sync(disabled, w_.grads(), &apply, nullptr));
  EXPECT_EQ(w_.trainer.grads()[0].get(0), 0.5);
}

TEST_F(DeviceFactorOf, AnInvalidNumberIsRefusedAndNothingChanges) {
  w_.trainer.fill_grads(4.0);
  const Snapshot before = w_.trainer.snapshot();
  for (const float bad : {-1.0f, -0x1p-126f, static_cast<float>(kInf), static_cast<float>(kNan)}) {
    SCOPED_TRACE(bad);
    factor_ = bad;
    EXPECT_INVALID(gsc_scaler_check(w_.scaler, w_.grads(), nullptr), "grads", "device factor");
    EXPECT_INVALID(unscale(w_), "grads", "device factor");
    EXPECT_INVALID(step(w_), "grads", "device factor");
    EXPECT_INVALID(gsc_scaler_step_and_update(w_.scaler, w_.trainer, nullptr), "grads", "device factor");
    int64_t left = 0;
    EXPECT_INVALID(gsc_scaler_step_slice(w_.scaler, w_.trainer, 1, &left, nullptr), "grads", "device factor");
    EXPECT_GSC_OK(gsc_scaler_discard(w_.scaler, nullptr));
    EXPECT_INVALID(gsc_optimizer_step(w_.trainer, nullptr), "optimizer", "device factor");
    const Scaler disabled = make_scaler(w_.context, disabled_options());
    EXPECT_INVALID(gsc_scaler_unscale(disabled, w_.grads(), nullptr), "grads", "device factor");
    EXPECT_INVALID(gsc_scaler_step(disabled, w_.trainer, nullptr), "grads", "device factor");
    EXPECT_GSC_OK(gsc_scaler_discard(disabled, nullptr));
    EXPECT_TRUE(w_.trainer.snapshot().same_with_grads(before));
  }
  factor_ = 0.0f;
  EXPECT_GSC_OK(in_turn(w_, {step, end}));
  EXPECT_EQ(applied_steps(w_.trainer), 1);
}

}  // namespace
}  // namespace gsc_test
