// SPDX-License-Identifier: Apache-2.0
//
// The stateless operations, diagnose, check and unscale: kernels give the CPU backend's results, bit for bit, for every
// dtype, lengths around every boundary, misalignments and kinds of values, in any order of blocks and threads.
#include "tests/cuda/state_twin.h"

namespace gsc_test {
namespace {

constexpr Values kAllValues[] = {kOrdinary, kTiny, kHuge, kWithInf, kWithNan, kZero};

struct Case {
  int32_t dtype;
  int64_t offset;
};

class DeviceOps : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DEVICE();
    contexts_ = std::make_unique<Contexts>();
  }
  void TearDown() override { set_order(0); }

  /// Calls f(twins, kind) for every kind of values, each with another order of blocks and threads.
  template <typename F>
  void for_all_values(const F &f) {
    Twins twins = edge_twins(GetParam().dtype, GetParam().offset);
    Random random(7);
    unsigned order = 0;
    for (const Values kind : kAllValues) {
      SCOPED_TRACE(static_cast<int>(kind));
      set_order(order++);
      for (Twin &twin : twins) twin.fill(kind, random);
      f(twins, kind);
      EXPECT_TRUE(same(twins));
    }
  }

  std::unique_ptr<Contexts> contexts_;
};

/// The norm of all tensors and those of each, with or without the latter.
void expect_same_norms(const Contexts &contexts, Twins &twins, int32_t type, bool each) {
  const auto n = std::ssize(twins);
  std::vector<double> norms(twins.size() + 1);
  const DeviceBytes out((n + 1) * 8);
  auto *words = reinterpret_cast<double *>(out.data());
  ASSERT_GSC_OK(
      gsc_ops_norm(contexts.cpu, host_tensors(twins).data(), n, type, norms.data(), norms.data() + 1, nullptr));
  ASSERT_GSC_OK(
      gsc_ops_norm(contexts.device, device_tensors(twins).data(), n, type, words, each ? words + 1 : nullptr, nullptr));
  for (int64_t i = 0; i <= (each ? n : 0); ++i) {
    EXPECT_TRUE(same_value(read_device(words + i), norms[i])) << "norm " << i;
  }
}

TEST_P(DeviceOps, Norm) {
  for_all_values([&](Twins &twins, Values) {
    for (const int32_t type : {GSC_NORM_L2, GSC_NORM_INF}) {
      for (const bool each : {true, false}) expect_same_norms(*contexts_, twins, type, each);
    }
  });
}

TEST_P(DeviceOps, UnscaleCheck) {
  for (const float inverse : {0.25f, 3.0f, 0x1p-20f}) {
    for_all_values([&](Twins &twins, Values) {
      const auto n = std::ssize(twins);
      TwinWord<float> found(0.0f);
      const TwinWord<float> factor(inverse);
      ASSERT_GSC_OK(
          gsc_ops_unscale_check(contexts_->cpu, host_tensors(twins).data(), n, &found.host, &factor.host, nullptr));
      ASSERT_GSC_OK(gsc_ops_unscale_check(contexts_->device, device_tensors(twins).data(), n, found.device(),
                                          factor.device(), nullptr));
      EXPECT_EQ(found.read(), found.host);
    });
  }
}

TEST_P(DeviceOps, ScaleCastAxpbyZero) {
  for (const int32_t other : kAllDtypes) {
    for_all_values([&](Twins &twins, Values kind) {
      const auto n = std::ssize(twins);
      Twins to;
      Random random(11);
      for (Twin &twin : twins) {
        to.emplace_back(other, twin.host().count(), 2);
        to.back().fill(kind, random);
      }
      const auto hx = host_tensors(twins), hy = host_tensors(to), dx = device_tensors(twins), dy = device_tensors(to);
      const TwinWord<float> factor(1.1f);
      const auto compare = [&](const auto &run) {
        ASSERT_GSC_OK(run(contexts_->cpu, hx.data(), hy.data(), &factor.host));
        ASSERT_GSC_OK(run(contexts_->device, dx.data(), dy.data(), factor.device()));
        EXPECT_TRUE(same(to));
      };
      for (const double b : {-1.7, 0.0}) {
        compare([&](auto &on, auto *x, auto *y, auto *) { return gsc_ops_axpby(on, 0.3, x, b, y, n, nullptr); });
      }
      compare([&](auto &on, auto *x, auto *y, auto *) { return gsc_ops_cast(on, x, y, n, nullptr); });
      compare([&](auto &on, auto *x, auto *y, auto *word) { return gsc_ops_scale(on, x, y, n, word, nullptr); });
    });
  }
}

TEST_P(DeviceOps, Diagnose) {
  for_all_values([&](Twins &twins, Values) {
    const auto n = std::ssize(twins);
    const List host = make_list(contexts_->cpu, host_tensors(twins)),
               device = make_list(contexts_->device, device_tensors(twins));
    std::vector<gsc_tensor_diagnosis> want(twins.size()), got(twins.size());
    std::vector<int64_t> want_bins(twins.size() * GSC_EXPONENT_BINS), got_bins(want_bins.size(), -1);
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(host, want.data(), want_bins.data(), n, nullptr));
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(device, got.data(), got_bins.data(), n, nullptr));
    EXPECT_EQ(got_bins, want_bins);
    for (size_t i = 0; i < twins.size(); ++i) EXPECT_TRUE(same_bytes(got[i], want[i])) << "tensor " << i;
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(device, got.data(), nullptr, n, nullptr));
    EXPECT_EQ(std::memcmp(got.data(), want.data(), sizeof got[0] * got.size()), 0);
  });
}

TEST_P(DeviceOps, CheckUnscaleAndClip) {
  for (const bool unscale : {false, true}) {
    for_all_values([&](Twins &twins, Values) {
      const auto report_on = [&](const Context &context, const std::vector<gsc_tensor> &tensors) {
        const Scaler scaler = make_scaler(context, 1024.0f);
        const List list = make_list(context, tensors);
        if (unscale) {
          EXPECT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
          EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, list, 0.01, GSC_NORM_L2, nullptr));
          EXPECT_GSC_OK(gsc_scaler_clip_grad_value(scaler, list, 1e-5, nullptr));
        } else {
          // In three ranges and out of order.
          EXPECT_GSC_OK(gsc_scaler_check_range(scaler, list, 5, 4, nullptr));
          EXPECT_GSC_OK(gsc_scaler_check_range(scaler, list, 0, 2, nullptr));
          EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
        }
        EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
        return report_of(scaler, list);
      };
      expect_same_report(report_on(contexts_->device, device_tensors(twins)),
                         report_on(contexts_->cpu, host_tensors(twins)));
    });
  }
}

constexpr Case kCases[] = {{GSC_FP16, 0}, {GSC_FP16, 3}, {GSC_BF16, 0}, {GSC_BF16, 1},
                           {GSC_FP32, 0}, {GSC_FP32, 1}, {GSC_FP64, 0}, {GSC_FP64, 1}};
INSTANTIATE_TEST_SUITE_P(All, DeviceOps, testing::ValuesIn(kCases), [](const auto &info) {
  return text(dtype_name(info.param.dtype), "_offset_", info.param.offset);
});

// The bits of a tensor's sum do not depend on its alignment.
TEST(DeviceNorm, EveryMisalignment) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  Random random(17);
  for (const int32_t dtype : kAllDtypes) {
    for (int64_t offset = 1; offset < 16 / dtype_size(dtype); ++offset) {
      SCOPED_TRACE(text(dtype_name(dtype), " offset ", offset));
      Twins twins;
      for (const int64_t count : {1, 8, 9, 511, 4096, 4099, 16384 + 263}) {
        add_filled(twins, random, dtype, count, offset);
      }
      expect_same_norms(contexts, twins, GSC_NORM_L2, true);
    }
  }
}

// Blocks take several rounds of full chunks, and the threads that join one round are late for the next.
TEST(DeviceNorm, ManyRounds) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  Twins twins;
  Random random(13);
  for (int i = 0; i < 40; ++i) add_filled(twins, random, GSC_FP32, 16384);
  for (const unsigned order : {0U, 1U, 2U}) {
    set_order(order);
    expect_same_norms(contexts, twins, GSC_NORM_L2, false);
  }
  set_order(0);
}

TEST(DeviceConversion, IsTheCpus) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  Random random(19);
  const auto expect_same = [&](int32_t from, int32_t weight, int32_t to) {
    for (const int64_t count : {0, 1, 31, 32, 33, 1000, 20000}) {
      SCOPED_TRACE(text("dtypes ", from, " to ", to, ", ", count, " elements"));
      set_order(count % 3);
      StateTwin src(from, count, &random), weights(weight != 0 ? weight : GSC_FP16, count, &random),
          dst(to, count, &random);
      gsc_tensor t[3] = {src.host_tensor(), weights.host_tensor(), dst.host_tensor()};
      ASSERT_GSC_OK(gsc_ops_convert_state(contexts.cpu, &t[0], weight != 0 ? &t[1] : nullptr, &t[2], 1, nullptr));
      t[0] = src.device_tensor(), t[1] = weights.device_tensor(), t[2] = dst.device_tensor();
      ASSERT_GSC_OK(gsc_ops_convert_state(contexts.device, &t[0], weight != 0 ? &t[1] : nullptr, &t[2], 1, nullptr));
      EXPECT_TRUE(dst.same(contexts.cpu));
    }
  };
  const int32_t moments[] = {GSC_FP32, GSC_BF16, GSC_FP8_E4M3, GSC_INT8_SOFTSIGN};
  const int32_t squares[] = {GSC_FP32, GSC_UFP16_E6M10, GSC_UINT8_LOG, GSC_UINT8_SQRT};
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      expect_same(moments[from], 0, moments[to]);
      expect_same(squares[from], 0, squares[to]);
    }
  }
  for (const int32_t remainder : {GSC_INT16, GSC_INT8}) {
    for (const int32_t weight : {GSC_FP16, GSC_BF16}) {
      expect_same(GSC_FP32, weight, remainder);
      expect_same(remainder, weight, GSC_FP32);
    }
    expect_same(remainder, 0, GSC_INT16);
    expect_same(remainder, 0, GSC_INT8);
  }
  set_order(0);
}

/// Memory of a tensor is its scales too: where they are not the device's, the tensor is named by its own index.
TEST(DeviceScales, OfHostMemoryAreRefused) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  alignas(8) static unsigned char host_scales[2];
  const gsc_tensor of_host = GSC_TENSOR_INIT(host_scales, 1, GSC_FP16);
  if (status_of_list(contexts.device, {of_host}) == GSC_OK) {
    GTEST_SKIP() << "the device reads host memory";
  }
  DeviceBytes data(256), scales(64), full(1024);
  std::vector<gsc_tensor> codes, values;
  for (int i = 0; i < 2; ++i) {
    gsc_tensor t = GSC_TENSOR_INIT(data.data() + 64 * i, 64, GSC_FP8_E4M3);
    t.scale = i == 0 ? scales.data() : reinterpret_cast<decltype(scales.data())>(host_scales);
    t.scale_dtype = GSC_FP8_E8M0;
    t.scale_block_rows = 1;
    t.scale_block_columns = 32;
    codes.push_back(t);
    values.push_back(GSC_TENSOR_INIT(full.data() + 256 * i, 64, GSC_FP32));
  }
  EXPECT_INVALID(status_of_list(contexts.device, codes), "tensors[1]", "host memory");
  EXPECT_INVALID(gsc_ops_convert_state(contexts.device, values.data(), nullptr, codes.data(), 2, nullptr), "dst[1]",
                 "host memory");
  EXPECT_INVALID(gsc_ops_convert_state(contexts.device, codes.data(), nullptr, values.data(), 2, nullptr), "src[1]",
                 "host memory");
}

TEST(DeviceUpdateScale, IsTheCpus) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  for (const float overflow : {0.0f, 1.0f, 0.0f, 0.0f, 0.5f}) {
    TwinWord<float> scale(3e37f);
    TwinWord<int32_t> tracker(1);
    const TwinWord<float> found(overflow);
    ASSERT_GSC_OK(gsc_ops_update_scale(contexts.cpu, &scale.host, &tracker.host, &found.host, 16.0, 0.3, 2, nullptr));
    ASSERT_GSC_OK(
        gsc_ops_update_scale(contexts.device, scale.device(), tracker.device(), found.device(), 16.0, 0.3, 2, nullptr));
    EXPECT_EQ(scale.read(), scale.host);
    EXPECT_EQ(tracker.read(), tracker.host);
  }
}

}  // namespace
}  // namespace gsc_test
