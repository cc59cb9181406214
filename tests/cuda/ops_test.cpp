// SPDX-License-Identifier: Apache-2.0
//
// The stateless operations, diagnose, check and unscale: kernels give the CPU backend's results, bit for bit, for every
// dtype, lengths around every boundary, misalignments and kinds of values, in any order of blocks and threads.
#include "core/rules/state_conversion.h"
#include "tests/cuda/twin.h"

namespace gsc_test {
namespace {

constexpr Values kAllValues[] = {Values::kOrdinary, Values::kTiny,    Values::kHuge,
                                 Values::kWithInf,  Values::kWithNan, Values::kZero};

struct Case {
  int32_t dtype;
  int64_t offset;
};

class CudaOps : public ::testing::TestWithParam<Case> {
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
      for (const Twin &twin : twins) EXPECT_TRUE(twin.same());
    }
  }

  std::unique_ptr<Contexts> contexts_;
};

TEST_P(CudaOps, Norm) {
  for_all_values([&](Twins &twins, Values) {
    const auto n = static_cast<int64_t>(twins.size());
    for (const int32_t type : {GSC_NORM_L2, GSC_NORM_INF}) {
      double norm = 0.0;
      std::vector<double> norms(twins.size());
      const DeviceBytes out((n + 1) * 8);
      auto *words = reinterpret_cast<double *>(out.data());
      ASSERT_GSC_OK(
          gsc_ops_norm(contexts_->cpu.get(), host_tensors(twins).data(), n, type, &norm, norms.data(), nullptr));
      ASSERT_GSC_OK(
          gsc_ops_norm(contexts_->cuda.get(), device_tensors(twins).data(), n, type, words, words + 1, nullptr));
      EXPECT_TRUE(same_value(read_device(words), norm)) << read_device(words) << " " << norm;
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_TRUE(same_value(read_device(words + 1 + i), norms[static_cast<size_t>(i)])) << "tensor " << i;
      }
      ASSERT_GSC_OK(
          gsc_ops_norm(contexts_->cuda.get(), device_tensors(twins).data(), n, type, words, nullptr, nullptr));
      EXPECT_TRUE(same_value(read_device(words), norm));
    }
  });
}

TEST_P(CudaOps, UnscaleCheck) {
  for (const float inverse : {0.25f, 3.0f, 0x1p-20f}) {
    for_all_values([&](Twins &twins, Values) {
      const auto n = static_cast<int64_t>(twins.size());
      TwinWord<float> found(0.0f);
      const TwinWord<float> factor(inverse);
      ASSERT_GSC_OK(gsc_ops_unscale_check(contexts_->cpu.get(), host_tensors(twins).data(), n, &found.host,
                                          &factor.host, nullptr));
      ASSERT_GSC_OK(gsc_ops_unscale_check(contexts_->cuda.get(), device_tensors(twins).data(), n, found.device(),
                                          factor.device(), nullptr));
      EXPECT_EQ(found.read(), found.host);
    });
  }
}

TEST_P(CudaOps, ScaleCastAxpbyZero) {
  for (const int32_t other : kAllDtypes) {
    for_all_values([&](Twins &twins, Values kind) {
      const auto n = static_cast<int64_t>(twins.size());
      Twins to;
      Random random(11);
      for (Twin &twin : twins) {
        to.emplace_back(other, twin.host().count(), 2);
        to.back().fill(kind, random);
      }
      const auto compare = [&] {
        for (const Twin &twin : to) EXPECT_TRUE(twin.same());
      };
      const auto hx = host_tensors(twins);
      const auto hy = host_tensors(to);
      const auto dx = device_tensors(twins);
      const auto dy = device_tensors(to);
      ASSERT_GSC_OK(gsc_ops_axpby(contexts_->cpu.get(), 0.3, hx.data(), -1.7, hy.data(), n, nullptr));
      ASSERT_GSC_OK(gsc_ops_axpby(contexts_->cuda.get(), 0.3, dx.data(), -1.7, dy.data(), n, nullptr));
      compare();
      ASSERT_GSC_OK(gsc_ops_axpby(contexts_->cpu.get(), 0.3, hx.data(), 0.0, hy.data(), n, nullptr));
      ASSERT_GSC_OK(gsc_ops_axpby(contexts_->cuda.get(), 0.3, dx.data(), 0.0, dy.data(), n, nullptr));
      compare();
      ASSERT_GSC_OK(gsc_ops_cast(contexts_->cpu.get(), hx.data(), hy.data(), n, nullptr));
      ASSERT_GSC_OK(gsc_ops_cast(contexts_->cuda.get(), dx.data(), dy.data(), n, nullptr));
      compare();
      const TwinWord<float> factor(1.1f);
      ASSERT_GSC_OK(gsc_ops_scale(contexts_->cpu.get(), hx.data(), hy.data(), n, &factor.host, nullptr));
      ASSERT_GSC_OK(gsc_ops_scale(contexts_->cuda.get(), dx.data(), dy.data(), n, factor.device(), nullptr));
      compare();
    });
  }
}

TEST_P(CudaOps, Diagnose) {
  for_all_values([&](Twins &twins, Values) {
    const auto n = static_cast<int64_t>(twins.size());
    const List host = make_list(contexts_->cpu, host_tensors(twins));
    const List device = make_list(contexts_->cuda, device_tensors(twins));
    std::vector<gsc_tensor_diagnosis> want(twins.size());
    std::vector<gsc_tensor_diagnosis> got(twins.size());
    std::vector<int64_t> want_bins(twins.size() * GSC_EXPONENT_BINS);
    std::vector<int64_t> got_bins(twins.size() * GSC_EXPONENT_BINS, -1);
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(host.get(), want.data(), want_bins.data(), n, nullptr));
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(device.get(), got.data(), got_bins.data(), n, nullptr));
    EXPECT_EQ(got_bins, want_bins);
    for (size_t i = 0; i < twins.size(); ++i) {
      EXPECT_EQ(std::memcmp(&got[i], &want[i], sizeof got[i]), 0) << "tensor " << i;
    }
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(device.get(), got.data(), nullptr, n, nullptr));
    EXPECT_EQ(std::memcmp(got.data(), want.data(), sizeof got[0] * got.size()), 0);
  });
}

TEST_P(CudaOps, CheckUnscaleAndClip) {
  for (const bool unscale : {false, true}) {
    for_all_values([&](Twins &twins, Values) {
      gsc_report reports[2];
      int side = 0;
      for (const Context *context : {&contexts_->cpu, &contexts_->cuda}) {
        const bool on_host = context == &contexts_->cpu;
        const Scaler scaler = make_scaler(*context, 1024.0f);
        const List list = make_list(*context, on_host ? host_tensors(twins) : device_tensors(twins));
        if (unscale) {
          ASSERT_GSC_OK(gsc_scaler_unscale(scaler.get(), list.get(), nullptr));
          ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler.get(), list.get(), 0.01, GSC_NORM_L2, nullptr));
          ASSERT_GSC_OK(gsc_scaler_clip_grad_value(scaler.get(), list.get(), 1e-5, nullptr));
        } else {
          // In three ranges and out of order.
          ASSERT_GSC_OK(gsc_scaler_check_range(scaler.get(), list.get(), 5, 4, nullptr));
          ASSERT_GSC_OK(gsc_scaler_check_range(scaler.get(), list.get(), 0, 2, nullptr));
          ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
        }
        ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
        reports[side++] = report_of(scaler, list.get());
      }
      expect_same_report(reports[1], reports[0]);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaOps,
                         ::testing::Values(Case{GSC_FP16, 0}, Case{GSC_FP16, 3}, Case{GSC_BF16, 0}, Case{GSC_BF16, 1},
                                           Case{GSC_FP32, 0}, Case{GSC_FP32, 1}, Case{GSC_FP64, 0}, Case{GSC_FP64, 1}),
                         [](const auto &info) {
                           return text(dtype_name(info.param.dtype), "_offset_", info.param.offset);
                         });

// The bits of a tensor's sum do not depend on its alignment.
TEST(CudaNorm, EveryMisalignment) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  Random random(17);
  for (const int32_t dtype : {GSC_FP16, GSC_BF16, GSC_FP32, GSC_FP64}) {
    for (int64_t offset = 1; offset < 16 / dtype_size(dtype); ++offset) {
      SCOPED_TRACE(text(dtype_name(dtype), " offset ", offset));
      Twins twins;
      for (const int64_t count : {1, 8, 9, 511, 4096, 4099, 16384 + 263}) {
        twins.emplace_back(dtype, count, offset);
        twins.back().fill(Values::kOrdinary, random);
      }
      const auto n = static_cast<int64_t>(twins.size());
      std::vector<double> norms(twins.size() + 1);
      const DeviceBytes out((n + 1) * 8);
      auto *words = reinterpret_cast<double *>(out.data());
      ASSERT_GSC_OK(gsc_ops_norm(contexts.cpu.get(), host_tensors(twins).data(), n, GSC_NORM_L2, norms.data(),
                                 norms.data() + 1, nullptr));
      ASSERT_GSC_OK(
          gsc_ops_norm(contexts.cuda.get(), device_tensors(twins).data(), n, GSC_NORM_L2, words, words + 1, nullptr));
      for (int64_t i = 0; i <= n; ++i) {
        EXPECT_TRUE(same_value(read_device(words + i), norms[static_cast<size_t>(i)])) << "norm " << i;
      }
    }
  }
}

// Blocks take several rounds of full chunks, and the threads that join one round are late for the next.
TEST(CudaNorm, ManyRounds) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  Twins twins;
  Random random(13);
  for (int i = 0; i < 40; ++i) {
    twins.emplace_back(GSC_FP32, 16384);
    twins.back().fill(Values::kOrdinary, random);
  }
  double norm = 0.0;
  const DeviceBytes out(8);
  ASSERT_GSC_OK(gsc_ops_norm(contexts.cpu.get(), host_tensors(twins).data(), 40, GSC_NORM_L2, &norm, nullptr, nullptr));
  for (const unsigned order : {0U, 1U, 2U}) {
    set_order(order);
    ASSERT_GSC_OK(gsc_ops_norm(contexts.cuda.get(), device_tensors(twins).data(), 40, GSC_NORM_L2,
                               reinterpret_cast<double *>(out.data()), nullptr, nullptr));
    EXPECT_TRUE(same_value(read_device(reinterpret_cast<double *>(out.data())), norm)) << "order " << order;
  }
  set_order(0);
}

/// A tensor of state twice. Its bytes are random, so that all codes and scales occur.
class StateTwin {
 public:
  StateTwin(int32_t dtype, int64_t count, Random &random)
      : dtype_(dtype),
        count_(count),
        scales_at_((count * gsc::dtype_bytes(dtype) + 63) & ~int64_t{63}),
        bytes_(static_cast<size_t>(scales_at_ + 2 * gsc::state_groups(count))),
        memory_(static_cast<int64_t>(bytes_.size())) {
    for (unsigned char &b : bytes_) b = static_cast<unsigned char>(random.below(256));
    // Of fp32, half of the groups with magnitudes that share a scale.
    for (int64_t i = 0; dtype == GSC_FP32 && i < count; ++i) {
      if (i / 32 % 2 == 0) bytes_[static_cast<size_t>(4 * i + 3)] = static_cast<unsigned char>(0x3d + random.below(3));
    }
    copy_to_device(memory_.data(), bytes_.data(), static_cast<int64_t>(bytes_.size()));
  }
  gsc_tensor host() { return at(reinterpret_cast<char *>(bytes_.data())); }
  gsc_tensor device() const { return at(memory_.data()); }

  /// Whether both have the same bytes, or NaN where they do not.
  ::testing::AssertionResult same(const Context &cpu) {
    StateTwin copy = *this;
    copy_to_host(copy.bytes_.data(), memory_.data(), static_cast<int64_t>(bytes_.size()));
    if (copy.bytes_ == bytes_) return ::testing::AssertionSuccess();
    if (gsc::is_remainder(dtype_)) return ::testing::AssertionFailure() << "remainders differ";
    std::vector<float> values[2];
    for (StateTwin *twin : {this, &copy}) {
      std::vector<float> &x = values[twin == this ? 0 : 1];
      x.resize(static_cast<size_t>(count_));
      const gsc_tensor from = twin->host(), to = GSC_TENSOR_INIT(x.data(), count_, GSC_FP32);
      EXPECT_GSC_OK(gsc_ops_convert_state(cpu.get(), &from, nullptr, &to, 1, nullptr));
    }
    const size_t size = static_cast<size_t>(gsc::dtype_bytes(dtype_));
    for (size_t i = 0; i < static_cast<size_t>(count_); ++i) {
      const bool alike = std::memcmp(&bytes_[i * size], &copy.bytes_[i * size], size) == 0;
      if (alike || (std::isnan(values[0][i]) && std::isnan(values[1][i]))) continue;
      return ::testing::AssertionFailure()
             << "element " << i << ": host " << values[0][i] << ", device " << values[1][i];
    }
    if (!std::equal(bytes_.begin() + scales_at_, bytes_.end(), copy.bytes_.begin() + scales_at_)) {
      return ::testing::AssertionFailure() << "scales differ";
    }
    return ::testing::AssertionSuccess();
  }

 private:
  StateTwin(const StateTwin &other)
      : dtype_(other.dtype_), count_(other.count_), scales_at_(other.scales_at_), bytes_(other.bytes_), memory_(0) {}
  gsc_tensor at(char *base) const {
    gsc_tensor t = GSC_TENSOR_INIT(base, count_, dtype_);
    t.scale_dtype = gsc::scale_dtype_of(dtype_);
    if (t.scale_dtype == 0) return t;
    t.scale = count_ > 0 ? base + scales_at_ : nullptr;
    t.scale_block_rows = 1;
    t.scale_block_columns = 32;
    return t;
  }
  int32_t dtype_;
  int64_t count_, scales_at_;
  std::vector<unsigned char> bytes_;
  DeviceBytes memory_;
};

TEST(CudaConversion, IsTheCpus) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  Random random(19);
  const auto expect_same = [&](int32_t from, int32_t weight, int32_t to) {
    for (const int64_t count : {0, 1, 31, 32, 33, 1000, 20000}) {
      SCOPED_TRACE(text("dtypes ", from, " to ", to, ", ", count, " elements"));
      set_order(static_cast<unsigned>(count % 3));
      StateTwin src(from, count, random), weights(weight != 0 ? weight : GSC_FP16, count, random),
          dst(to, count, random);
      gsc_tensor t[3] = {src.host(), weights.host(), dst.host()};
      ASSERT_GSC_OK(gsc_ops_convert_state(contexts.cpu.get(), &t[0], weight != 0 ? &t[1] : nullptr, &t[2], 1, nullptr));
      t[0] = src.device(), t[1] = weights.device(), t[2] = dst.device();
      ASSERT_GSC_OK(
          gsc_ops_convert_state(contexts.cuda.get(), &t[0], weight != 0 ? &t[1] : nullptr, &t[2], 1, nullptr));
      EXPECT_TRUE(dst.same(contexts.cpu));
    }
  };
  const int32_t moments[] = {GSC_FP32, GSC_BF16, GSC_FP8_E4M3, GSC_INT8_SOFTSIGN};
  const int32_t squares[] = {GSC_FP32, GSC_UFP16_E5M11, GSC_UFP8_E4M4, GSC_UINT8_SQRT};
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

TEST(CudaUpdateScale, IsTheCpus) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  for (const float overflow : {0.0f, 1.0f, 0.0f, 0.0f, 0.5f}) {
    TwinWord<float> scale(3e37f);
    TwinWord<int32_t> tracker(1);
    const TwinWord<float> found(overflow);
    ASSERT_GSC_OK(
        gsc_ops_update_scale(contexts.cpu.get(), &scale.host, &tracker.host, &found.host, 16.0, 0.3, 2, nullptr));
    ASSERT_GSC_OK(gsc_ops_update_scale(contexts.cuda.get(), scale.device(), tracker.device(), found.device(), 16.0, 0.3,
                                       2, nullptr));
    EXPECT_EQ(scale.read(), scale.host);
    EXPECT_EQ(tracker.read(), tracker.host);
  }
}

}  // namespace
}  // namespace gsc_test
