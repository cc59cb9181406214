// SPDX-License-Identifier: Apache-2.0
//
// The same tensors twice, in host memory for a CPU context and on a device for the context of another backend, and their
// comparison, bit for bit except for NaN payloads. device.h of the backend's tests has the device and its memory.
#ifndef GRADSCALER_TESTS_CUDA_TWIN_H
#define GRADSCALER_TESTS_CUDA_TWIN_H
#include <limits>
#include <utility>
#include <vector>

#if defined(GSC_TEST_VULKAN)
#include "tests/vulkan/device.h"
#else
#include "tests/cuda/device.h"
#endif

namespace gsc_test {

template <typename T>
T read_device(const T *address) {
  T value{};
  copy_to_host(&value, address, sizeof value);
  return value;
}

/// One word on the host and on the device.
template <typename T>
struct TwinWord {
  explicit TwinWord(T value) : host(value), memory(sizeof(T)) { set(value); }
  void set(T value) {
    host = value;
    copy_to_device(device(), &value, sizeof value);
  }
  T *device() const { return reinterpret_cast<T *>(memory.data()); }
  T read() const { return read_device(device()); }
  T host;
  DeviceBytes memory;
};

/// What to fill a tensor with.
enum class Values { kOrdinary, kTiny, kHuge, kWithInf, kWithNan, kZero };
using enum Values;

class Twin {
 public:
  Twin(int32_t dtype, int64_t count, int64_t offset = 0)
      : host_(dtype, count, offset), skip_(64 + offset * dtype_size(dtype)), memory_(skip_ + host_.bytes() + 64) {
    const std::vector<char> guard(skip_ + host_.bytes() + 64, kGuard);
    copy_to_device(memory_.data(), guard.data(), std::ssize(guard));
    upload();
  }

  Buffer &host() { return host_; }
  gsc_tensor host_tensor() { return host_.tensor(); }
  gsc_tensor device_tensor() { return GSC_TENSOR_INIT(device_data(), host_.count(), host_.dtype()); }

  void *host_data() const { return const_cast<void *>(host_.data()); }
  void *device_data() const { return memory_.data() + skip_; }

  /// The elements on the device.
  std::vector<char> image() const {
    std::vector<char> bytes(host_.bytes());
    copy_to_host(bytes.data(), device_data(), host_.bytes());
    return bytes;
  }

  /// Copies the host's values to the device.
  void upload() { copy_to_device(device_data(), host_.data(), host_.bytes()); }

  void fill(Values kind, Random &random) {
    const int32_t dtype = host_.dtype();
    const double tiny = format_of(dtype == GSC_FP64 ? GSC_FP32 : dtype).min_normal() * 4;
    const double huge = dtype == GSC_FP64 ? 1e200 : format_of(dtype).max() * 0.5;
    const double unit = kind == kTiny ? tiny : (kind == kHuge ? huge : 1.0);
    for (int64_t i = 0; i < host_.count(); ++i) {
      host_.set(i, kind == kZero ? (i % 3 == 0 ? -0.0 : 0.0) : unit * random.uniform(-1.0, 1.0));
    }
    if (host_.count() > 0 && (kind == kWithInf || kind == kWithNan)) {
      for (int k = 0; k < 3; ++k) {
        host_.set(random.below(host_.count()), kind == kWithNan ? kNan : (k == 1 ? -kInf : kInf));
      }
    }
    upload();
  }

  /// Checks that elements are equal, and that nothing was written outside the device's tensor.
  ::testing::AssertionResult same() const {
    std::vector<char> all(skip_ + host_.bytes() + 64);
    copy_to_host(all.data(), memory_.data(), std::ssize(all));
    const char *device = all.data() + skip_;
    const auto *host = static_cast<const char *>(host_.data());
    const int64_t size = dtype_size(host_.dtype());
    for (int64_t i = 0; i < host_.count(); ++i) {
      if (std::memcmp(device + i * size, host + i * size, size) == 0) continue;
      const double got = load(device + i * size, host_.dtype());
      if (std::isnan(got) && std::isnan(host_.get(i))) continue;
      return ::testing::AssertionFailure() << dtype_name(host_.dtype()) << " element " << i << " of " << host_.count()
                                           << ": device " << got << ", host " << host_.get(i);
    }
    for (int64_t i = 0; i < 64; ++i) {
      if (device[-1 - i] != kGuard || device[host_.bytes() + i] != kGuard) {
        return ::testing::AssertionFailure() << "written outside of the tensor";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr char kGuard = 0x3c;
  Buffer host_;
  int64_t skip_;
  DeviceBytes memory_;
};

using Twins = std::vector<Twin>;

inline std::vector<gsc_tensor> host_tensors(Twins &twins) {
  std::vector<gsc_tensor> result;
  for (Twin &twin : twins) result.push_back(twin.host_tensor());
  return result;
}
inline std::vector<gsc_tensor> device_tensors(Twins &twins) {
  std::vector<gsc_tensor> result;
  for (Twin &twin : twins) result.push_back(twin.device_tensor());
  return result;
}

/// One more, filled.
inline void add_filled(Twins &twins, Random &random, int32_t dtype, int64_t count, int64_t offset = 0) {
  twins.emplace_back(dtype, count, offset);
  twins.back().fill(kOrdinary, random);
}

inline ::testing::AssertionResult same(const Twins &twins) {
  for (size_t i = 0; i < twins.size(); ++i) {
    if (::testing::AssertionResult result = twins[i].same(); !result) return result << ", tensor " << i;
  }
  return ::testing::AssertionSuccess();
}

/// Tensors of every dtype in turn, with lengths around the boundaries of groups, rows, tiles and chunks.
inline Twins edge_twins(int32_t dtype, int64_t offset) {
  Twins result;
  const int64_t group = 16 / dtype_size(dtype);
  const int64_t row = 512 / dtype_size(dtype);
  const int64_t tile = 8192 / dtype_size(dtype);
  for (const int64_t edge : {group, row, tile, int64_t{16384}}) {
    for (const int64_t off : {-1, 0, 1}) result.emplace_back(dtype, edge + off, offset);
  }
  result.emplace_back(dtype, 0, 0);
  result.emplace_back(dtype, 2 * tile + row + 3, offset);
  return result;
}

struct Contexts {
  Contexts() : cpu(make_context(1)), device(device_context()) {}
  const Context cpu;
  DeviceContext device;
};

/// A step's objects over tensors on one side.
struct Side {
  Side(const Context &context, const gsc_optimizer_options &options, const std::vector<gsc_tensor> &p,
       const std::vector<gsc_tensor> &g, const std::vector<gsc_tensor> &w = {})
      : params(make_list(context, p)),
        grads(make_list(context, g)),
        copies(w.empty() ? nullptr : make_list(context, w)),
        scaler(make_scaler(context, scaler_options(1024.0f, 3))),
        optimizer(make_optimizer(context, options, params, grads, copies)) {}
  /// Clips and steps.
  gsc_status step(gsc_stream stream = nullptr) const {
    EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, grads, 0.5, GSC_NORM_L2, stream));
    return gsc_scaler_step_and_update(scaler, optimizer, stream);
  }
  List params, grads, copies;
  Scaler scaler;
  Optimizer optimizer;
};

/// All NaN are equal; everything else is compared bit for bit.
inline bool same_value(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
}

/// Norms of tensors that two sides keep.
class TwinNorms {
 public:
  TwinNorms(const Side &host, const Side &device, std::size_t count)
      : host_(count, -1.0), memory_(static_cast<int64_t>(count * sizeof(double))) {
    const auto size = static_cast<int64_t>(count);
    EXPECT_GSC_OK(gsc_tensor_list_set_device_norms(host.grads, host_.data(), size));
    EXPECT_GSC_OK(gsc_tensor_list_set_device_norms(device.grads, reinterpret_cast<double *>(memory_.data()), size));
  }
  void expect_same() const {
    std::vector<double> got(host_.size());
    copy_to_host(got.data(), memory_.data(), static_cast<int64_t>(got.size() * sizeof(double)));
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_value(got[i], host_[i])) << i << ": " << got[i];
  }

 private:
  std::vector<double> host_;
  DeviceBytes memory_;
};

inline void expect_same_report(const gsc_report &device, const gsc_report &host) {
  EXPECT_EQ(device.flags, host.flags);
  EXPECT_EQ(device.scale, host.scale);
  EXPECT_EQ(device.growth_tracker, host.growth_tracker);
  EXPECT_EQ(device.hysteresis_tracker, host.hysteresis_tracker);
  EXPECT_EQ(device.consecutive_skips, host.consecutive_skips);
  EXPECT_EQ(device.updates, host.updates);
  EXPECT_EQ(device.skipped, host.skipped);
  EXPECT_TRUE(same_value(device.grad_norm, host.grad_norm)) << device.grad_norm << " " << host.grad_norm;
  EXPECT_TRUE(same_value(device.grad_amax, host.grad_amax)) << device.grad_amax << " " << host.grad_amax;
  EXPECT_EQ(device.nonfinite_count, host.nonfinite_count);
  EXPECT_EQ(device.inf_count, host.inf_count);
  EXPECT_EQ(device.nan_count, host.nan_count);
  EXPECT_EQ(device.first_tensor, host.first_tensor);
  EXPECT_EQ(device.first_element, host.first_element);
  EXPECT_EQ(device.spikes, host.spikes);
  EXPECT_EQ(device.norm_limit, host.norm_limit);
  EXPECT_EQ(device.norm_average, host.norm_average);
}

}  // namespace gsc_test
#endif
