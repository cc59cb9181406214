// SPDX-License-Identifier: Apache-2.0
//
// PTX arithmetic, written from its specification ("Parallel Thread Execution ISA", NVIDIA) and not from the project's
// own rules, which it checks. All rounding is to nearest even, as is the host's default.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace gsc::cuda::ptx {

template <typename To, typename From>
To as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return std::bit_cast<To>(value);
}

/// Shift amounts are clamped to the width.
template <typename T>
T shift_left(T value, uint32_t count) {
  return count >= sizeof(T) * 8 ? T(0) : static_cast<T>(static_cast<std::make_unsigned_t<T>>(value) << count);
}
template <typename T>
T shift_right(T value, uint32_t count) {
  constexpr uint32_t kWidth = sizeof(T) * 8;
  if (count >= kWidth) return std::is_signed_v<T> && value < 0 ? static_cast<T>(-1) : T(0);
  return static_cast<T>(value >> count);
}

/// Division by zero is unspecified in PTX; the library must not depend on it, so it gets an unlikely value.
template <typename T>
T divide(T a, T b) {
  return b == 0 ? static_cast<T>(0x5a5a5a5a5a5a5a5aULL) : static_cast<T>(a / b);
}
template <typename T>
T remainder(T a, T b) {
  return b == 0 ? static_cast<T>(0x5a5a5a5a5a5a5a5aULL) : static_cast<T>(a % b);
}

/// Of a number and a NaN, returns the number; for floating point.
template <typename T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
  return a < b ? a : b;
}
template <typename T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
  return a > b ? a : b;
}

/// max.u16x2: of each 16-bit half the larger.
inline uint32_t larger_halves(uint32_t a, uint32_t b) {
  return larger(a & 0xffffU, b & 0xffffU) | larger(a >> 16, b >> 16) << 16;
}

/// bfi: `field`'s lowest `length` bits at bit `position` of `base`.
template <typename T>
T insert_bits(T field, T base, uint32_t position, uint32_t length) {
  position &= 0xff;
  length &= 0xff;
  for (uint32_t i = 0; i < length && position + i < sizeof(T) * 8; ++i) {
    const T bit = T(1) << (position + i);
    base = (field >> i & 1) != 0 ? base | bit : base & ~bit;
  }
  return base;
}

/// prmt in its default mode: each nibble of `selector` picks one of eight bytes, or its sign.
inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> (4 * i) & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (nibble & 7))) & 0xff;
    if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

/// cvt.rzi.s64: towards zero, saturated. NaN is what the hardware gives.
inline int64_t truncate_to_s64(double x) {
  if (std::isnan(x)) return std::numeric_limits<int64_t>::min();
  if (x >= 0x1p63) return std::numeric_limits<int64_t>::max();
  if (x < -0x1p63) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(x);
}

/// cvt.rzi.s32.f32: towards zero, saturated. NaN becomes 0.
inline int32_t truncate_to_s32(float x) {
  if (std::isnan(x)) return 0;
  if (x >= 0x1p31F) return std::numeric_limits<int32_t>::max();
  if (x < -0x1p31F) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(x);
}

/// cvt.f32.f16. A signalling NaN is made quiet.
inline float from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half >> 15) << 31;
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  if (exponent == 31) {
    const uint32_t payload = mantissa != 0 ? 0x400000U | static_cast<uint32_t>(mantissa) << 13 : 0U;
    return as<float>(sign | 0x7f800000U | payload);
  }
  const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(sign != 0 ? -value : value);
}

/// cvt.rn.f16.f32. Every NaN becomes 0x7fff.
inline uint16_t to_f16(float x) {
  if (std::isnan(x)) return 0x7fff;
  const int sign = std::signbit(x) ? 0x8000 : 0;
  const double a = std::fabs(static_cast<double>(x));
  if (a >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00);
  if (a < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<int>(std::nearbyint(a * 0x1p24)));
  int exponent = 0;
  std::frexp(a, &exponent);
  // In [1024, 2048]; 2048 carries into the exponent by itself.
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(a, 11 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 13) << 10) + mantissa));
}

/// cvt.rn.bf16.f32. Every NaN becomes 0x7fff.
inline uint16_t to_bf16(float x) {
  if (std::isnan(x)) return 0x7fff;
  const auto bits = as<uint32_t>(x);
  const uint32_t low = bits & 0xffff;
  const uint32_t high = bits >> 16;
  return static_cast<uint16_t>(low > 0x8000 || (low == 0x8000 && (high & 1) != 0) ? high + 1 : high);
}

// setp on floating point: eq ... ge are false if an operand is NaN, equ ... geu are true.
#define GSC_PTX_COMPARISON(name, condition) \
  template <typename T>                     \
  bool is_##name(T a, T b) {                \
    return condition;                       \
  }
#define GSC_PTX_ORDERED(name, sign)                             \
  GSC_PTX_COMPARISON(name, a sign b && !std::isunordered(a, b)) \
  GSC_PTX_COMPARISON(name##u, a sign b || std::isunordered(a, b))
GSC_PTX_ORDERED(eq, ==)
GSC_PTX_ORDERED(ne, !=)
GSC_PTX_ORDERED(lt, <)
GSC_PTX_ORDERED(le, <=)
GSC_PTX_ORDERED(gt, >)
GSC_PTX_ORDERED(ge, >=)
GSC_PTX_COMPARISON(nan, std::isunordered(a, b))
GSC_PTX_COMPARISON(num, !std::isunordered(a, b))
#undef GSC_PTX_ORDERED
#undef GSC_PTX_COMPARISON

}  // namespace gsc::cuda::ptx
