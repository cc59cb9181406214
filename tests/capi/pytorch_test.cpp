// SPDX-License-Identifier: Apache-2.0
//
// What the tests of PyTorch's and Apex's scalers assert, where it takes more than a scenario of tests/conformance.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

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
          ASSERT_GSC_OK(gsc_scaler_unscale(scaler, scaled.grad_list(), nullptr));
        }
        ASSERT_GSC_OK(gsc_scaler_step(scaler, scaled, nullptr));
        ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
        if (batch == 2) {
          ++skipped;
        } else {
          ++unskipped;
          ASSERT_GSC_OK(gsc_optimizer_step(control, nullptr));
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
    ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
    for (const Buffer &buffer : grads) {
      for (const double value : buffer.values()) ASSERT_EQ(value, 1.0);
    }
  }
}

/// Two scaled micro-batches added up, then one step, equals the step on the sum of the unscaled ones.
TEST(PyTorch, AccumulationOverTwoMicroBatches) {
  const Context context = make_context();
  Trainer trainer(context, {.options = sgd_options(), .counts = {16}, .grad_dtypes = {GSC_FP32}});
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
        expected[i] -= gradient;
      }
      ASSERT_GSC_OK(gsc_ops_axpby(context, 1.0, &from, batch == 0 ? 0.0 : 1.0, &to, 1, nullptr));
    }
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_NEAR(trainer.params()[0].get(i), expected[i], 1e-6);
    }
  }
  EXPECT_EQ(scale_of(scaler), 512.0f);
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
              ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
              EXPECT_EQ(report_of(scaler, list).first_element, at);
              ASSERT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
              grads[0].set(at, 0.0);
            }
          }
          ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
          EXPECT_EQ(report_of(scaler, list).nonfinite_count, 0);
          ASSERT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
        }
      }
    }
  }
}

}  // namespace
}  // namespace gsc_test
