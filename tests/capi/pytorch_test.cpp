// SPDX-License-Identifier: Apache-2.0
//
// What PyTorch's own tests of its GradScaler assert, and DeepSpeed's and Apex's of theirs, asked of this library:
// the standard four-batch run, accumulation, two optimizers, replayed words, values changed between unscale and step.
#include "policy_harness.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

gsc_optimizer_options sgd(double lr) {
  gsc_optimizer_options options = optimizer_options(GSC_SGD);
  options.lr = lr;
  return options;
}

/// Four batches, an overflow in the third; afterwards all must equal a control run that never saw that batch.
TEST(PyTorch, StandardCase) {
  for (const int32_t kind : {GSC_SGD, GSC_ADAM, GSC_ADAMW, GSC_LION}) {
    for (const bool unscale : {false, true}) {
      const Context context = make_context();
      gsc_optimizer_options options = optimizer_options(kind);
      options.lr = 1.0;
      const TrainerSpec spec = {.options = options, .counts = {8, 8}};
      Trainer scaled(context, spec), control(context, spec);
      const Scaler scaler = make_scaler(context, scaler_options(128.0f, 1));
      Random random(101);
      int unskipped = 0, skipped = 0;
      for (int batch = 0; batch < 4; ++batch) {
        control.fill_grads(random, 1.0);
        const double scale = static_cast<double>(scale_of(scaler));
        for (size_t t = 0; t < 2; ++t) {
          for (int64_t i = 0; i < 8; ++i) scaled.grads()[t].set(i, control.grads()[t].get(i) * scale);
        }
        if (batch == 2) scaled.grads()[1].set(3, kInf);
        if (unscale) {
          ASSERT_GSC_OK(gsc_scaler_unscale(scaler.get(), scaled.grad_list(), nullptr));
        }
        ASSERT_GSC_OK(gsc_scaler_step(scaler.get(), scaled.get(), nullptr));
        ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
        if (batch == 2) {
          ++skipped;
        } else {
          ++unskipped;
          ASSERT_GSC_OK(gsc_optimizer_step(control.get(), nullptr));
        }
      }
      EXPECT_EQ(scale_of(scaler), 128.0 * std::pow(2.0, unskipped) * std::pow(0.5, skipped));
      EXPECT_TRUE(scaled.snapshot() == control.snapshot()) << "kind " << kind;
    }
  }
}

TEST(PyTorch, UnscaleGivesExactlyOne) {
  const Context context = make_context();
  for (const int32_t dtype : kAllDtypes) {
    std::vector<Buffer> grads = make_buffers(dtype, {400, 400});
    for (Buffer &buffer : grads) buffer.fill(4.0);
    const List list = make_list(context, grads);
    const Scaler scaler = make_scaler(context, 4.0f);
    ASSERT_GSC_OK(gsc_scaler_unscale(scaler.get(), list.get(), nullptr));
    for (const Buffer &buffer : grads) {
      for (const double value : buffer.values()) ASSERT_EQ(value, 1.0);
    }
  }
}

TEST(PyTorch, UpdateScale) {
  gsc_scaler_options options = scaler_options(4.0f, 2);
  options.backoff_factor = 0.25;
  Policy policy(options);
  policy.update(false);
  EXPECT_EQ(policy.report().growth_tracker, 1);
  EXPECT_EQ(policy.scale(), 4.0f);
  policy.update(false);
  EXPECT_EQ(policy.report().growth_tracker, 0);
  EXPECT_EQ(policy.scale(), 8.0f);
  policy.update(true);
  EXPECT_EQ(policy.report().growth_tracker, 0);
  EXPECT_EQ(policy.scale(), 2.0f);
}

TEST(PyTorch, ValuesMadeNanAfterUnscaleReachTheParameters) {
  const Context context = make_context();
  Trainer trainer(context, {.options = sgd(1.0), .counts = {4}});
  const Scaler scaler = make_scaler(context, 4.0f);
  trainer.grads()[0].fill(4.0);
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler.get(), trainer.grad_list(), nullptr));
  trainer.grads()[0].set(1, kNan);
  ASSERT_GSC_OK(gsc_scaler_step(scaler.get(), trainer.get(), nullptr));
  EXPECT_TRUE(std::isnan(trainer.params()[0].get(1))) << "found_inf is not taken again";
  EXPECT_FALSE(std::isnan(trainer.params()[0].get(0)));
}

/// Two scaled micro-batches added up, then one step, equals the step on the sum of the unscaled ones.
TEST(PyTorch, AccumulationOverTwoMicroBatches) {
  const Context context = make_context();
  Trainer trainer(context, {.options = sgd(1.0), .counts = {16}, .grad_dtypes = {GSC_FP32}});
  const Scaler scaler = make_scaler(context, scaler_options(64.0f, 1));
  Buffer micro(GSC_FP16, 16);
  Random random(102);
  for (int iteration = 0; iteration < 3; ++iteration) {
    const double scale = static_cast<double>(scale_of(scaler));
    std::vector<double> expected = trainer.params()[0].values();
    for (int batch = 0; batch < 2; ++batch) {
      const gsc_tensor from = micro.tensor(), to = trainer.grads()[0].tensor();
      for (int64_t i = 0; i < 16; ++i) {
        const double gradient = static_cast<double>(random.below(512) - 256) / 256.0;
        micro.set(i, gradient * scale);
        expected[static_cast<size_t>(i)] -= gradient;
      }
      ASSERT_GSC_OK(gsc_ops_axpby(context.get(), 1.0, &from, batch == 0 ? 0.0 : 1.0, &to, 1, nullptr));
    }
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler.get(), trainer.get(), nullptr));
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_NEAR(trainer.params()[0].get(i), expected[static_cast<size_t>(i)], 1e-6);
    }
  }
  EXPECT_EQ(scale_of(scaler), 512.0f);
}

TEST(PyTorch, TwoOptimizersOverflowInOne) {
  const Context context = make_context();
  Trainer first(context, {.options = sgd(1.0), .counts = {4}}), second(context, {.options = sgd(1.0), .counts = {4}});
  const Scaler scaler = make_scaler(context, scaler_options(128.0f, 1));
  for (int iteration = 0; iteration < 4; ++iteration) {
    const double scale = static_cast<double>(scale_of(scaler));
    first.grads()[0].fill(scale);
    second.grads()[0].fill(2.0 * scale);
    if (iteration == 2) first.grads()[0].set(0, kInf);
    const Snapshot before = first.snapshot();
    ASSERT_GSC_OK(gsc_scaler_step(scaler.get(), first.get(), nullptr));
    ASSERT_GSC_OK(gsc_scaler_step(scaler.get(), second.get(), nullptr));
    if (iteration == 2) {
      EXPECT_TRUE(first.snapshot() == before);
      EXPECT_EQ(report_of(scaler, second.grad_list()).flags & GSC_REPORT_OVERFLOW, 0u);
      EXPECT_NE(report_of(scaler, first.grad_list()).flags & GSC_REPORT_OVERFLOW, 0u);
    }
    ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
  }
  EXPECT_EQ(scale_of(scaler), 128.0f * 8.0f * 0.5f) << "one overflow is enough to back off";
  EXPECT_EQ(applied_steps(first.optimizer()), 3);
  EXPECT_EQ(applied_steps(second.optimizer()), 4);
  EXPECT_EQ(report_of(scaler).skipped, 1);
}

/// The scaler's words as a replayed graph would see them.
TEST(PyTorch, ReplayedWords) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, scaler_options(4.0f, 2));
  Buffer weight_grad(GSC_FP16, 1);
  const List list = make_list(context, weight_grad);
  gsc_device_state words;
  words.struct_size = sizeof words;
  ASSERT_GSC_OK(gsc_scaler_get_device_state(scaler.get(), list.get(), &words));
  const double inputs[] = {5.0, 20000.0, 5.0, 40000.0};
  const float scales[] = {4.0f, 2.0f, 2.0f, 1.0f};
  const int32_t trackers[] = {1, 0, 1, 0};
  const double grads[] = {20.0, kInf, 10.0, kInf};
  for (int i = 0; i < 4; ++i) {
    weight_grad.set(0, inputs[i] * static_cast<double>(*words.scale));
    EXPECT_EQ(weight_grad.get(0), grads[i]) << i;
    ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
    EXPECT_EQ(*words.found_inf, std::isinf(grads[i]) ? 1.0f : 0.0f);
    ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
    EXPECT_EQ(*words.scale, scales[i]) << i;
    EXPECT_EQ(*words.inv_scale, 1.0f / scales[i]) << i;
    EXPECT_EQ(*words.growth_tracker, trackers[i]) << i;
  }
}

TEST(PyTorch, StateRoundTrip) {
  const auto options = [](float scale, double growth, double backoff, int32_t interval) {
    gsc_scaler_options result = scaler_options(scale, interval);
    result.growth_factor = growth;
    result.backoff_factor = backoff;
    return result;
  };
  const Context context = make_context();
  const Scaler from = make_scaler(context, options(3.0f, 4.0, 0.5, 2));
  const Scaler to = make_scaler(context, options(6.0f, 7.0, 0.8, 1));
  const gsc_scaler_state state = state_of(from);
  EXPECT_EQ(state.format, GSC_SCALER_STATE_FORMAT);
  ASSERT_GSC_OK(gsc_scaler_set_state(to.get(), &state, nullptr));
  const gsc_scaler_state now = state_of(to);
  EXPECT_EQ(std::memcmp(&now, &state, sizeof now), 0);
  EXPECT_EQ(now.scale, 3.0f);
  EXPECT_EQ(now.growth_factor, 4.0);
  EXPECT_EQ(now.backoff_factor, 0.5);
  EXPECT_EQ(now.growth_interval, 2);
  EXPECT_EQ(now.growth_tracker, 0);
}

TEST(DeepSpeed, NoOverflow) {
  gsc_scaler_options options = preset_options(GSC_PRESET_DEEPSPEED);
  options.init_scale = 256.0f;
  options.growth_interval = 2;
  Policy policy(options);
  float expected = 256.0f;
  for (int iteration = 1; iteration <= 10; ++iteration) {
    policy.update(false);
    EXPECT_EQ(policy.scale(), expected) << iteration;
    if (iteration % 2 == 0) expected *= 2.0f;
  }
}

TEST(DeepSpeed, AllOverflow) {
  gsc_scaler_options options = preset_options(GSC_PRESET_DEEPSPEED);
  options.init_scale = 16.0f;
  options.hysteresis = 1;
  Policy policy(options);
  EXPECT_EQ(policy.run("xxxxxxxx"), "8 4 2 1 1 1 1 1");
}

TEST(DeepSpeed, SomeOverflow) {
  gsc_scaler_options options = preset_options(GSC_PRESET_DEEPSPEED);
  options.init_scale = 256.0f;
  options.growth_interval = 2;
  options.hysteresis = 1;
  Policy policy(options);
  EXPECT_EQ(policy.run("xx"), "128 64");
  EXPECT_EQ(policy.run("..."), "64 64 128") << "window + 1 clean steps after the overflow";
  EXPECT_EQ(policy.run("x"), "64");
}

TEST(Apex, AllDtypePairsAtBothEndsAroundEveryChunk) {
  const Context context = make_context(2);
  const Scaler scaler = make_scaler(context, 16.0f);
  for (const int64_t chunk : {4096, 65536}) {
    for (int64_t count = chunk - 1; count <= chunk + 1; ++count) {
      for (const int32_t first_dtype : kAllDtypes) {
        for (const int32_t second_dtype : kAllDtypes) {
          std::vector<Buffer> grads;
          grads.emplace_back(first_dtype, count);
          grads.emplace_back(second_dtype, 77);
          const List list = make_list(context, grads);
          for (const int64_t at : {int64_t{0}, count - 1}) {
            for (const double planted : {kInf, kNan}) {
              grads[0].set(at, planted);
              ASSERT_GSC_OK(gsc_scaler_unscale(scaler.get(), list.get(), nullptr));
              EXPECT_EQ(report_of(scaler, list.get()).first_element, at);
              ASSERT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
              grads[0].set(at, 0.0);
            }
          }
          ASSERT_GSC_OK(gsc_scaler_unscale(scaler.get(), list.get(), nullptr));
          EXPECT_EQ(report_of(scaler, list.get()).nonfinite_count, 0);
          ASSERT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
        }
      }
    }
  }
}

}  // namespace
}  // namespace gsc_test
