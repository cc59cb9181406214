// SPDX-License-Identifier: Apache-2.0
//
// A tensor of optimizer state in host memory and on the device, with its scales.
#ifndef GRADSCALER_TESTS_CUDA_STATE_TWIN_H
#define GRADSCALER_TESTS_CUDA_STATE_TWIN_H
#include "core/rules/state_conversion.h"
#include "tests/cuda/twin.h"

namespace gsc_test {

class StateTwin {
 public:
  /// Of random bytes, so that all codes and scales occur, or of zeros. It begins `offset` elements past an aligned
  /// address.
  StateTwin(int32_t dtype, int64_t count, Random *random, int64_t offset = 0)
      : dtype_(dtype),
        count_(count),
        begin_(offset * gsc::dtype_bytes(dtype)),
        scales_at_((begin_ + count * gsc::dtype_bytes(dtype) + 63) & ~int64_t{63}),
        bytes_(scales_at_ + 2 * gsc::state_groups(count)),
        memory_(std::ssize(bytes_)) {
    if (random != nullptr) {
      for (unsigned char &b : bytes_) b = random->below(256);
      // Of fp32, half of the groups with magnitudes that share a scale.
      for (int64_t i = 0; dtype == GSC_FP32 && i < count; ++i) {
        if (i / 32 % 2 == 0) bytes_[begin_ + 4 * i + 3] = 0x3d + random->below(3);
      }
    }
    copy_to_device(memory_.data(), bytes_.data(), std::ssize(bytes_));
  }
  gsc_tensor host_tensor() { return at(reinterpret_cast<char *>(bytes_.data())); }
  gsc_tensor device_tensor() const { return at(memory_.data()); }

  /// Whether both have the same bytes, or NaN where they do not.
  ::testing::AssertionResult same(const Context &cpu) {
    StateTwin copy(dtype_, count_, nullptr, begin_ / gsc::dtype_bytes(dtype_));
    copy_to_host(copy.bytes_.data(), memory_.data(), std::ssize(bytes_));
    if (copy.bytes_ == bytes_) return ::testing::AssertionSuccess();
    if (gsc::is_remainder(dtype_)) return ::testing::AssertionFailure() << "remainders differ";
    std::vector<float> values[2];
    for (StateTwin *twin : {this, &copy}) {
      std::vector<float> &x = values[twin == this ? 0 : 1];
      x.resize(count_);
      const gsc_tensor from = twin->host_tensor(), to = GSC_TENSOR_INIT(x.data(), count_, GSC_FP32);
      EXPECT_GSC_OK(gsc_ops_convert_state(cpu, &from, nullptr, &to, 1, nullptr));
    }
    const int64_t size = gsc::dtype_bytes(dtype_);
    for (int64_t i = 0; i < count_; ++i) {
      const bool alike = std::memcmp(&bytes_[begin_ + i * size], &copy.bytes_[begin_ + i * size], size) == 0;
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
  gsc_tensor at(char *base) const {
    gsc_tensor t = GSC_TENSOR_INIT(base + begin_, count_, dtype_);
    t.scale_dtype = gsc::scale_dtype_of(dtype_);
    if (t.scale_dtype == 0) return t;
    t.scale = count_ > 0 ? base + scales_at_ : nullptr;
    t.scale_block_rows = 1;
    t.scale_block_columns = gsc::kStateGroup;
    return t;
  }
  int32_t dtype_;
  int64_t count_, begin_, scales_at_;
  Image bytes_;
  DeviceBytes memory_;
};

}  // namespace gsc_test
#endif
