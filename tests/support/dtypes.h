// SPDX-License-Identifier: Apache-2.0
//
// Element types for the tests: sizes, limits, and conversions between their bit patterns and double.
// The conversions are written from the definition of the formats (one rounding, to nearest, ties to even) and share
// nothing with the library, which is judged by them.
#ifndef GRADSCALER_TESTS_SUPPORT_DTYPES_H
#define GRADSCALER_TESTS_SUPPORT_DTYPES_H
#include <gradscaler/gradscaler.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace gsc_test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline const std::vector<int32_t> kAllDtypes = {GSC_FP16, GSC_BF16, GSC_FP32, GSC_FP64};

/// A binary floating-point format: `precision` counts the hidden bit; the exponents are those of 1.xxx * 2^e.
struct Format {
  int32_t dtype;
  const char *name;
  int size;
  int precision;
  int min_exponent;
  int max_exponent;
  /// Largest finite value.
  double max() const { return std::ldexp(2.0 - std::ldexp(1.0, 1 - precision), max_exponent); }
  /// Smallest positive normal value.
  double min_normal() const { return std::ldexp(1.0, min_exponent); }
  /// Smallest positive value.
  double min_subnormal() const { return std::ldexp(1.0, min_exponent - precision + 1); }
};

inline Format format_of(int32_t dtype) {
  switch (dtype) {
    case GSC_FP16:
      return {GSC_FP16, "fp16", 2, 11, -14, 15};
    case GSC_BF16:
      return {GSC_BF16, "bf16", 2, 8, -126, 127};
    case GSC_FP32:
      return {GSC_FP32, "fp32", 4, 24, -126, 127};
    default:
      return {GSC_FP64, "fp64", 8, 53, -1022, 1023};
  }
}
inline const char *dtype_name(int32_t dtype) { return format_of(dtype).name; }
inline int64_t dtype_size(int32_t dtype) {
  if (dtype <= GSC_FP64) return format_of(dtype).size;
  return dtype == GSC_UFP16_E6M10 || dtype == GSC_INT16 ? 2 : 1;  // codes of optimizer state
}

/// Distance between neighbouring values of the format around `value`.
inline double ulp(double value, int32_t dtype) {
  const Format format = format_of(dtype);
  const double magnitude = std::fabs(value);
  const int exponent = magnitude < format.min_normal() ? format.min_exponent : std::ilogb(magnitude);
  return std::ldexp(1.0, exponent - format.precision + 1);
}

/// Rounds to the format, to nearest with ties to even; beyond the largest finite value (after rounding) inf.
inline double round_to(double value, int32_t dtype) {
  if (dtype == GSC_FP64 || std::isnan(value) || std::isinf(value) || value == 0.0) return value;
  const double quantum = ulp(value, dtype);
  const double rounded = std::nearbyint(value / quantum) * quantum;
  return std::fabs(rounded) > format_of(dtype).max() ? std::copysign(kInf, value) : rounded;
}

/// Bit pattern of a value that a format of 8 or 16 bits holds exactly (round first), or of a quiet NaN.
inline uint16_t encode(double value, int32_t dtype) {
  const Format format = format_of(dtype);
  const int sign_bit = 8 * format.size - 1;
  const int fraction_bits = format.precision - 1;
  const unsigned exponent_mask = (1u << (sign_bit - fraction_bits)) - 1u;
  const unsigned sign = std::signbit(value) ? 1u << sign_bit : 0u;
  if (std::isnan(value)) return (exponent_mask << fraction_bits) | (1u << (fraction_bits - 1));
  if (std::isinf(value)) return sign | (exponent_mask << fraction_bits);
  const double magnitude = std::fabs(value);
  if (magnitude < format.min_normal()) return sign | static_cast<unsigned>(magnitude / format.min_subnormal());
  const int exponent = std::ilogb(magnitude);
  const unsigned fraction = (std::ldexp(magnitude, -exponent) - 1.0) * (1u << fraction_bits);
  const unsigned biased = exponent - format.min_exponent + 1;
  return sign | (biased << fraction_bits) | fraction;
}

inline double decode(uint16_t bits, int32_t dtype) {
  const Format format = format_of(dtype);
  const int sign_bit = 8 * format.size - 1;
  const int fraction_bits = format.precision - 1;
  const unsigned exponent_mask = (1u << (sign_bit - fraction_bits)) - 1u;
  const double sign = (bits >> sign_bit & 1u) != 0 ? -1.0 : 1.0;
  const unsigned biased = (bits >> fraction_bits) & exponent_mask;
  const unsigned fraction = bits & ((1u << fraction_bits) - 1u);
  if (biased == exponent_mask) return fraction == 0 ? sign * kInf : kNan;
  if (biased == 0) return sign * fraction * format.min_subnormal();
  return sign * std::ldexp(1.0 + std::ldexp(fraction, -fraction_bits), biased + format.min_exponent - 1);
}

template <typename T>
T read_at(const void *address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}
template <typename T>
void write_at(void *address, T value) {
  std::memcpy(address, &value, sizeof value);
}

/// Stores `value` rounded to the dtype.
inline void store(void *address, double value, int32_t dtype) {
  if (dtype == GSC_FP64) return write_at<double>(address, value);
  if (dtype == GSC_FP32) return write_at<float>(address, value);
  const uint16_t bits = encode(round_to(value, dtype), dtype);
  dtype_size(dtype) == 1 ? write_at<uint8_t>(address, bits) : write_at<uint16_t>(address, bits);
}

inline double load(const void *address, int32_t dtype) {
  if (dtype == GSC_FP64) return read_at<double>(address);
  if (dtype == GSC_FP32) return read_at<float>(address);
  return decode(dtype_size(dtype) == 1 ? read_at<uint8_t>(address) : read_at<uint16_t>(address), dtype);
}

}  // namespace gsc_test
#endif
