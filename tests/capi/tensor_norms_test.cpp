// SPDX-License-Identifier: Apache-2.0
//
// Norms of tensors that checks keep in device memory: those of gsc_ops_norm over the unscaled gradients, to the last
// bit, by every way that checks a list.
#include <functional>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

constexpr double kInverse = 1.0 / 1024.0;  // a power of two, which no rounding sees
const std::vector<int64_t> kCounts = {1, 7, 0, 1000, 200000, 64};

struct World {
  explicit World(int32_t dtype, bool enabled = true)
      : trainer(context, {.options = optimizer_options(GSC_SGD),
                          .counts = kCounts,
                          .param_dtype = dtype == GSC_FP64 ? GSC_FP64 : GSC_FP32,
                          .grad_dtypes = {dtype}}),
        scaler(make_scaler(context, enabled ? fixed_scale() : disabled_options())) {
    EXPECT_GSC_OK(set());
  }
  static gsc_scaler_options fixed_scale() {
    gsc_scaler_options options = preset_options(GSC_PRESET_STATIC_SCALE);
    options.init_scale = static_cast<float>(1.0 / kInverse);
    return options;
  }
  gsc_tensor_list *grads() const { return trainer.grad_list(); }
  gsc_status set() { return gsc_tensor_list_set_device_norms(grads(), norms.data(), std::ssize(norms)); }

  void fill() {
    Random random(seed++);
    // Squares of more than fp32's range, where the dtype has them.
    trainer.fill_grads(random, trainer.grads()[0].dtype() == GSC_FP16 ? 100.0 : 1e25);
    std::ranges::fill(norms, -1.0);
  }
  /// By gsc_ops_norm, times `factor`.
  std::vector<double> expected(double factor) const {
    std::vector<gsc_tensor> tensors;
    for (size_t i = 0; i < kCounts.size(); ++i) tensors.push_back(tensor_at(grads(), i));
    double all = 0.0;
    std::vector<double> result(kCounts.size());
    EXPECT_GSC_OK(
        gsc_ops_norm(context, tensors.data(), std::ssize(tensors), GSC_NORM_L2, &all, result.data(), nullptr));
    for (double &norm : result) norm *= factor;
    return result;
  }

  Context context = make_context(2);
  Trainer trainer;
  Scaler scaler;
  std::vector<double> norms = std::vector<double>(kCounts.size());
  uint64_t seed = 1;
};

class TensorNorms : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, TensorNorms, ::testing::Values(GSC_FP16, GSC_BF16, GSC_FP32, GSC_FP64), name_of_dtype);

TEST_P(TensorNorms, AreThoseOfTheUnscaledGradients) {
  World w(GetParam());
  const std::function<gsc_status()> ways[] = {
      [&] { return gsc_scaler_check(w.scaler, w.grads(), nullptr); },
      [&] { return gsc_scaler_step(w.scaler, w.trainer, nullptr); },
      [&] { return gsc_scaler_step_and_update(w.scaler, w.trainer, nullptr); },
      [&] { return gsc_scaler_unscale(w.scaler, w.grads(), nullptr); },
      [&] {
        EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(w.scaler, w.grads(), 0.01, GSC_NORM_L2, nullptr));
        return gsc_scaler_step(w.scaler, w.trainer, nullptr);
      },
      [&] {
        EXPECT_GSC_OK(gsc_scaler_check_range(w.scaler, w.grads(), 3, 3, nullptr));
        EXPECT_EQ(w.norms[3], -1.0) << "written before all have been checked";
        return gsc_scaler_check_range(w.scaler, w.grads(), 0, 3, nullptr);
      },
      [&] {
        for (int64_t left = 1; left > 0;) {
          EXPECT_GSC_OK(gsc_scaler_step_slice(w.scaler, w.trainer, 100000, &left, nullptr));
        }
        return GSC_OK;
      },
      [&] {
        int32_t apply = 0;
        return gsc_scaler_should_step_sync(w.scaler, w.grads(), &apply, nullptr);
      },
  };
  for (const auto &way : ways) {
    SCOPED_TRACE(&way - ways);
    w.fill();
    const std::vector<double> expected = w.expected(kInverse);
    ASSERT_GSC_OK(way());
    EXPECT_EQ(w.norms, expected);
    ASSERT_GSC_OK(gsc_scaler_discard(w.scaler, nullptr));
  }
}

TEST_P(TensorNorms, OfAbsentTensorsAreZero) {
  World w(GetParam());
  const uint8_t present[] = {1, 0, 1, 0, 0, 1};
  ASSERT_GSC_OK(gsc_tensor_list_set_present(w.grads(), present, nullptr, std::ssize(present), nullptr));
  w.fill();
  std::vector<double> expected = w.expected(kInverse);
  for (const size_t i : {1, 3, 4}) expected[i] = 0.0;
  ASSERT_GSC_OK(gsc_scaler_step_and_update(w.scaler, w.trainer, nullptr));
  EXPECT_EQ(w.norms, expected);
}

TEST_P(TensorNorms, SayWhichTensorsAreNotFinite) {
  World w(GetParam());
  w.fill();
  std::vector<double> expected = w.expected(kInverse);
  w.trainer.grads()[1].set(6, kInf);
  w.trainer.grads()[3].set(9, -kInf);
  w.trainer.grads()[3].set(900, kNan);
  ASSERT_GSC_OK(gsc_scaler_step_and_update(w.scaler, w.trainer, nullptr));
  EXPECT_EQ(w.norms[1], kInf);
  EXPECT_TRUE(std::isnan(w.norms[3]));
  for (const size_t i : {1, 3}) expected[i] = w.norms[i] = 0.0;
  EXPECT_EQ(w.norms, expected);
}

TEST_P(TensorNorms, OfADisabledScalerAreThoseOfItsClip) {
  World w(GetParam(), false);
  w.fill();
  ASSERT_GSC_OK(gsc_scaler_step(w.scaler, w.trainer, nullptr));
  EXPECT_EQ(w.norms, std::vector<double>(kCounts.size(), -1.0));
  const std::vector<double> expected = w.expected(1.0);
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(w.scaler, w.grads(), 1.0, GSC_NORM_L2, nullptr));
  ASSERT_GSC_OK(gsc_scaler_step(w.scaler, w.trainer, nullptr));
  EXPECT_EQ(w.norms, expected);
}

TEST_P(TensorNorms, HaveTheDeviceFactor) {
  World w(GetParam());
  const float factor = 0.5f, none = 0.0f;
  ASSERT_GSC_OK(gsc_tensor_list_set_device_factor(w.grads(), &factor));
  w.fill();
  const std::vector<double> expected = w.expected(kInverse * 0.5);
  ASSERT_GSC_OK(gsc_scaler_step_and_update(w.scaler, w.trainer, nullptr));
  EXPECT_EQ(w.norms, expected);
  ASSERT_GSC_OK(gsc_tensor_list_set_device_factor(w.grads(), &none));
  ASSERT_GSC_OK(gsc_scaler_step_and_update(w.scaler, w.trainer, nullptr));
  EXPECT_EQ(w.norms, std::vector<double>(kCounts.size(), 0.0));
}

TEST(TensorNormsOf, AListAreSetBetweenIterations) {
  World w(GSC_FP32);
  EXPECT_INVALID(gsc_tensor_list_set_device_norms(w.grads(), w.norms.data(), 3), "count", "is 3");
  w.fill();
  ASSERT_GSC_OK(gsc_scaler_check(w.scaler, w.grads(), nullptr));
  EXPECT_BAD_STATE(w.set(), "list", "update or discard");
  ASSERT_GSC_OK(gsc_scaler_discard(w.scaler, nullptr));
  ASSERT_GSC_OK(gsc_tensor_list_set_device_norms(w.grads(), nullptr, std::ssize(w.norms)));
  w.fill();
  ASSERT_GSC_OK(gsc_scaler_step(w.scaler, w.trainer, nullptr));
  EXPECT_EQ(w.norms, std::vector<double>(kCounts.size(), -1.0)) << "not kept";
}

}  // namespace
}  // namespace gsc_test
