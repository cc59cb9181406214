// SPDX-License-Identifier: Apache-2.0
//
// Memory for the tests: a buffer of one dtype that starts any number of elements off a 64-byte boundary and has guard
// bytes on both sides, and a small random number generator whose numbers are the same on every machine.
#ifndef GRADSCALER_TESTS_SUPPORT_BUFFER_H
#define GRADSCALER_TESTS_SUPPORT_BUFFER_H
#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "tests/support/dtypes.h"

namespace gsc_test {

/// Bytes of an object, to compare and restore.
using Image = std::vector<unsigned char>;

/// SplitMix64: good enough for test data, and the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// In [0, n).
  int64_t below(int64_t n) { return bits() % n; }
  /// In [low, high).
  double uniform(double low, double high) { return low + (high - low) * std::ldexp(bits() >> 11, -53); }

 private:
  uint64_t state_;
};

class Buffer {
 public:
  Buffer(int32_t dtype, int64_t count, int64_t offset_elements = 0)
      : dtype_(dtype), count_(count), skip_(kGuard + offset_elements * dtype_size(dtype)) {
    size_ = skip_ + count * dtype_size(dtype) + kGuard;
    memory_.reset(static_cast<unsigned char *>(::operator new (size_, std::align_val_t{64})));
    std::memset(memory_.get(), kGuardByte, size_);
    std::memset(data(), 0, bytes());
  }

  int32_t dtype() const { return dtype_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * dtype_size(dtype_); }
  void *data() { return memory_.get() + skip_; }
  const void *data() const { return memory_.get() + skip_; }
  gsc_tensor tensor() { return GSC_TENSOR_INIT(data(), count_, dtype_); }

  double get(int64_t i) const { return load(memory_.get() + skip_ + i * dtype_size(dtype_), dtype_); }
  void set(int64_t i, double value) { store(memory_.get() + skip_ + i * dtype_size(dtype_), value, dtype_); }
  void fill(double value) {
    for (int64_t i = 0; i < count_; ++i) set(i, value);
  }
  void fill_random(Random &random, double low, double high) {
    for (int64_t i = 0; i < count_; ++i) set(i, random.uniform(low, high));
  }
  template <typename T>
  T *as() {
    return static_cast<T *>(data());
  }

  std::vector<double> values() const {
    std::vector<double> result(count_);
    for (int64_t i = 0; i < count_; ++i) result[i] = get(i);
    return result;
  }
  /// The contents bit for bit.
  Image image() const {
    const unsigned char *first = memory_.get() + skip_;
    return {first, first + bytes()};
  }
  void restore(const Image &image) {
    if (!image.empty()) std::memcpy(data(), image.data(), image.size());
  }
  /// True if nothing was written before the first or after the last element.
  bool guards_intact() const {
    const auto is_guard = [](unsigned char byte) { return byte == kGuardByte; };
    const unsigned char *first = memory_.get(), *end = first + size_;
    return std::all_of(first, first + skip_, is_guard) && std::all_of(end - kGuard, end, is_guard);
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr unsigned char kGuardByte = 0xA5;
  struct Free {
    void operator()(unsigned char *p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  int32_t dtype_;
  int64_t count_;
  int64_t skip_;
  int64_t size_ = 0;
  std::unique_ptr<unsigned char, Free> memory_;
};

inline std::vector<gsc_tensor> tensors_of(std::vector<Buffer> &buffers) {
  std::vector<gsc_tensor> result;
  for (Buffer &buffer : buffers) result.push_back(buffer.tensor());
  return result;
}

inline std::vector<Image> images_of(const std::vector<Buffer> &buffers) {
  std::vector<Image> result;
  for (const Buffer &buffer : buffers) result.push_back(buffer.image());
  return result;
}

/// The contents of a tensor bit for bit, without its scales.
inline Image image_of(const gsc_tensor &tensor) {
  const auto *first = static_cast<const unsigned char *>(tensor.data);
  return {first, first + tensor.count * dtype_size(tensor.dtype)};
}

/// One buffer for each count, all of one dtype.
inline std::vector<Buffer> make_buffers(int32_t dtype, const std::vector<int64_t> &counts,
                                        int64_t offset_elements = 0) {
  std::vector<Buffer> result;
  for (const int64_t count : counts) result.emplace_back(dtype, count, offset_elements);
  return result;
}

}  // namespace gsc_test
#endif
