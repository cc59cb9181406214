// SPDX-License-Identifier: Apache-2.0
// Conversions of one value between the tensor dtypes and the two arithmetic types, compiled for host and device. All
// round once, to nearest even. A signalling NaN becomes a quiet one that keeps the top of its payload, as on x86. For
// some of these a backend uses instructions instead.
#pragma once

#include <cstdint>

#include "core/rules/hd.h"

namespace gsc {

GSC_HD uint32_t to_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
GSC_HD uint64_t to_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
GSC_HD float from_bits(uint32_t u) { return __builtin_bit_cast(float, u); }
GSC_HD double from_bits(uint64_t u) { return __builtin_bit_cast(double, u); }

// Magnitudes are compared as signed integers throughout: SSE2 and AVX2 have no unsigned comparison.

GSC_HD float fp16_to_fp32(uint16_t half) {
  const int32_t magnitude = half & 0x7fff;
  // Rebias the exponent, twice for inf and NaN; subnormals are small integers times 2^-24.
  uint32_t result = (static_cast<uint32_t>(magnitude) << 13) + 0x38000000U;
  result += magnitude >= 0x7c00 ? 0x38000000U : 0U;
  result |= magnitude > 0x7c00 ? 0x00400000U : 0U;
  const uint32_t subnormal = to_bits(static_cast<float>(magnitude) * 0x1p-24F);
  return from_bits((magnitude < 0x0400 ? subnormal : result) | static_cast<uint32_t>(half & 0x8000) << 16);
}

GSC_HD uint16_t fp32_to_fp16(float x) {
  const uint32_t bits = to_bits(x);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffffU);
  const uint32_t odd = (bits >> 13) & 1U;
  // Rebias by -112 and add half a unit in the last place, less one if that is even; a carry reaches the exponent.
  const uint32_t normal = (static_cast<uint32_t>(magnitude) + 0xc8000fffU + odd) >> 13;
  // Next to 0.5 the spacing of fp32 is that of fp16's subnormals, so the addition does the rounding.
  const uint32_t subnormal = to_bits(from_bits(static_cast<uint32_t>(magnitude)) + 0.5F) - 0x3f000000U;
  const uint32_t nan = 0x7e00U | ((bits >> 13) & 0x03ffU);
  const uint32_t special = magnitude > 0x7f800000 ? nan : 0x7c00U;
  uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
  result = magnitude >= 0x47800000 ? special : result;
  return static_cast<uint16_t>(result | ((bits >> 16) & 0x8000U));
}

GSC_HD float bf16_to_fp32(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  const float x = from_bits(bits);
  return from_bits(bits | (x != x ? 0x00400000U : 0U));
}

GSC_HD uint16_t fp32_to_bf16(float x) {
  const uint32_t bits = to_bits(x);
  const uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<uint16_t>((x != x ? bits | 0x00400000U : rounded) >> 16);
}

/// Rounds to fp32 so that a second rounding to 16 bits gives the result of a single one: rounds towards zero, and sets
/// the last bit if anything was lost. fp32 has more than two bits to spare over either 16-bit format, subnormals
/// included.
GSC_HD float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  uint32_t bits = to_bits(nearest);
  bits -= __builtin_fabs(back) > __builtin_fabs(x) ? 1U : 0U;
  bits |= back < x || back > x ? 1U : 0U;
  return from_bits(bits);
}

GSC_HD uint16_t fp64_to_fp16(double x) { return fp32_to_fp16(round_to_odd(x)); }
GSC_HD uint16_t fp64_to_bf16(double x) { return fp32_to_bf16(round_to_odd(x)); }

}  // namespace gsc
