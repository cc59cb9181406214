// SPDX-License-Identifier: Apache-2.0
// Support for the tests of the CPU kernels: buffers of any dtype that start at any element and have a guard on both
// sides, values of every kind to fill them with, and the kernels that this processor can run. The tests compare
// patterns, not values: -0 and the payload of a NaN count.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu/convert.h"
#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"
#include "core/rules/check.h"
#include "tests/support/dtypes.h"

namespace gsc::cpu::testing {

inline constexpr int32_t kDtypes[] = {
#define GSC_CODE(D) D::kCode,
    GSC_FOR_EACH_DTYPE(GSC_CODE)
#undef GSC_CODE
};
using gsc_test::format_of;
using gsc_test::kInf;
using gsc_test::kNan;

inline std::string dtype_name(int32_t dtype) { return gsc::dtype_name(dtype); }

inline std::vector<const Kernels *> usable_kernels() {
  std::vector<const Kernels *> result;
  for (const int32_t target : {GSC_CPU_BASELINE, GSC_CPU_AVX2, GSC_CPU_AVX512, GSC_CPU_NEON_BF16}) {
    if (const Kernels *kernels = find_kernels(target)) result.push_back(kernels);
  }
  return result;
}

/// n elements of a dtype, `shift` elements off the alignment of the allocation, one guard element before and after.
class Buffer {
 public:
  Buffer(int32_t dtype, int64_t n, int64_t shift = 0)
      : dtype_(dtype), size_(dtype_bytes(dtype)), n_(n), shift_(shift), bytes_((n + shift + 2) * size_, kGuard) {}

  int32_t dtype() const { return dtype_; }
  int64_t size() const { return n_; }
  char *data(int64_t i = 0) { return bytes_.data() + (i + shift_ + 1) * size_; }
  const char *data(int64_t i = 0) const { return bytes_.data() + (i + shift_ + 1) * size_; }

  double get(int64_t i) const {
    return with_dtype(dtype_, [p = data(i)](auto traits) {
      using D = decltype(traits);
      return double{D::widen(gsc_test::read_at<typename D::Stored>(p))};
    });
  }

  void set(int64_t i, double x) {
    with_dtype(dtype_, [p = data(i), x](auto traits) { gsc_test::write_at(p, narrow_to<decltype(traits)>(x)); });
  }

  bool operator==(const Buffer &other) const { return bytes_ == other.bytes_; }

  /// First element whose bits differ, -1 if none; n for a damaged guard.
  int64_t first_difference(const Buffer &other) const {
    for (int64_t i = 0; i < n_; ++i) {
      if (std::memcmp(data(i), other.data(i), size_) != 0) return i;
    }
    return bytes_ == other.bytes_ ? -1 : n_;
  }

  bool guards_intact() const {
    const auto is_guard = [](char byte) { return byte == kGuard; };
    return std::all_of(bytes_.begin(), bytes_.begin() + (shift_ + 1) * size_, is_guard) &&
           std::all_of(bytes_.end() - size_, bytes_.end(), is_guard);
  }

 private:
  static constexpr char kGuard = 0x5a;

  int32_t dtype_;
  int64_t size_, n_, shift_;
  std::vector<char> bytes_;
};

/// What a buffer is filled with.
enum class Fill { kOrdinary, kTiny, kHuge, kAnyFinite, kZero };
using enum Fill;
inline constexpr Fill kFills[] = {kOrdinary, kTiny, kHuge, kAnyFinite, kZero};

inline void fill(Buffer &buffer, Fill kind, std::mt19937_64 &random) {
  std::uniform_real_distribution<double> unit(-1.0, 1.0);
  const int32_t dtype = buffer.dtype();
  // fp64 keeps clear of squares that overflow or underflow.
  const auto [largest, smallest] = with_dtype(dtype, [](auto traits) {
    using D = decltype(traits);
    if (sizeof(typename D::Value) == sizeof(double)) return std::pair(400, -400);
    return std::pair(std::min(126, D::kLargestExponent), D::kSmallestExponent);
  });
  std::uniform_int_distribution<int> any_exponent(smallest, largest);
  for (int64_t i = 0; i < buffer.size(); ++i) {
    double x = unit(random);
    if (kind == kTiny) x = std::ldexp(x, smallest + 6);  // subnormal, but for fp64
    if (kind == kHuge) x = std::ldexp(x, largest);
    if (kind == kAnyFinite) x = std::ldexp(x, any_exponent(random));
    if (kind == kZero) x = i % 3 == 0 ? -0.0 : 0.0;
    buffer.set(i, x);
  }
}

/// The numbers of one tile added up in the order of reduction.h, with columns in C.
template <typename C>
double sum_of_tile(const std::vector<C> &tile, size_t columns) {
  std::vector<C> sums(columns, C(0));
  for (size_t i = 0; i < tile.size(); ++i) sums[i % columns] = sums[i % columns] + tile[i];
  const size_t width = columns / kGroups;
  double groups[kGroups];
  for (size_t g = 0; g < kGroups; ++g) {
    groups[g] = sums[g * width];
    for (size_t k = 1; k < width; ++k) groups[g] += sums[g * width + k];
  }
  for (int half = 16; half > 0; half /= 2) {
    for (int g = 0; g < half; ++g) groups[g] += groups[g + half];
  }
  return groups[0];
}

/// The same of the squares of numbers.
template <typename C>
double reference_tile(const std::vector<double> &tile, size_t columns) {
  std::vector<C> squares;
  for (const double x : tile) squares.push_back(static_cast<C>(x) * static_cast<C>(x));
  return sum_of_tile(squares, columns);
}

inline constexpr ReadAhead kReadAheads[] = {ReadAhead::kNone, ReadAhead::kPageStarts, ReadAhead::kNextTile,
                                            ReadAhead::kEightPages};

/// Lengths that meet every remainder of vectors, blocks, rows and tiles; the longest are read ahead in every way.
inline std::vector<int64_t> lengths(int32_t dtype, bool all_short) {
  std::vector<int64_t> result;
  for (int64_t n = 0; n <= 600; n += all_short || n < 20 ? 1 : 29) result.push_back(n);
  const int64_t tile = kTileBytes / dtype_bytes(dtype);
  const int64_t row = kRowBytes / dtype_bytes(dtype);
  for (const int64_t edge : {tile, 2 * tile, 3 * tile, 5 * tile}) {
    for (const int64_t off : {-row, -int64_t{1}, int64_t{0}, int64_t{1}, row + 3}) result.push_back(edge + off);
  }
  return result;
}

inline bool same_bits(double a, double b) { return to_bits(a) == to_bits(b); }

}  // namespace gsc::cpu::testing
