// SPDX-License-Identifier: Apache-2.0
// Masters in two parts: the 16-bit weight that the forward pass reads, and a remainder of 16 or 8 bits. A master's
// magnitude is written as the weight's code with 16 fraction bits. Rounded half up, the integer is the weight; what was
// rounded off, as a signed number, is the remainder. Rounding half to even could not be inverted, because two ties would
// share a remainder. For bf16 with 16 bits this is the rule of TransformerEngine's adam_param_remainder.
#pragma once

#include <cstdint>

#include "core/rules/dtypes.h"
#include "core/rules/hd.h"

namespace gsc {

/// A finite magnitude as the weight's code with 16 fraction bits, and back. The codes of inf and NaN follow those of
/// finite weights.
template <typename D>
struct Fraction;

/// Exact. The largest fp32 values round to inf, as in a conversion to bf16.
template <>
struct Fraction<Bf16> {
  static constexpr uint32_t kInf = 0x7f80U;
  static constexpr uint32_t kNan = 0x7fc0U;
  GSC_HD static uint32_t from(uint32_t magnitude) { return magnitude; }
  GSC_HD static uint32_t to(uint32_t fixed) { return fixed; }
};

/// Exact for 0 and from 2^-17 to 65504. Below, a multiple of 2^-40; above, 65504, because fp16 ends there.
template <>
struct Fraction<Fp16> {
  static constexpr uint32_t kInf = 0x7c00U;
  static constexpr uint32_t kNan = 0x7e00U;
  static constexpr int32_t kSmallestNormal = 0x38800000;  ///< 2^-14
  static constexpr int32_t kLargest = 0x477fe000;         ///< 65504
  /// Below kSmallestNormal the first summand counts, above it the second; the other is what both are there. Compilers
  /// vectorise this and not a choice between the two.
  GSC_HD static uint32_t from(uint32_t magnitude) {
    const auto bits = static_cast<int32_t>(magnitude);
    const int32_t small = bits < kSmallestNormal ? bits : kSmallestNormal;
    const float scaled = from_bits(static_cast<uint32_t>(small)) * 0x1p40F;
    const auto whole = static_cast<int32_t>(scaled);
    const int32_t subnormal = whole + (scaled - static_cast<float>(whole) >= 0.5F ? 1 : 0);
    const int32_t large = bits > kSmallestNormal ? (bits < kLargest ? bits : kLargest) : kSmallestNormal;
    return static_cast<uint32_t>(subnormal) + (static_cast<uint32_t>(large - kSmallestNormal) << 3);
  }
  GSC_HD static uint32_t to(uint32_t fixed) {
    const auto code = static_cast<int32_t>(fixed);
    const uint32_t subnormal = to_bits(static_cast<float>(code) * 0x1p-40F);
    const uint32_t normal = (fixed >> 3) + 0x38000000U;
    const uint32_t special = code > 0x7c000000 ? 0x7fc00000U : 0x7f800000U;
    const uint32_t finite = code < 0x04000000 ? subnormal : normal;
    return code >= 0x7c000000 ? special : finite;
  }
};

/// A weight's bits from its rounded code, unless the value is inf or NaN.
template <typename D>
GSC_HD uint16_t weight_of(float value, uint32_t rounded) {
  const uint32_t bits = to_bits(value);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffffU);
  const uint32_t special = magnitude > 0x7f800000 ? Fraction<D>::kNan : Fraction<D>::kInf;
  return static_cast<uint16_t>((bits >> 16 & 0x8000U) | (magnitude >= 0x7f800000 ? special : rounded));
}

/// R: int16_t or int8_t.
template <typename D, typename R>
struct Split {
  static constexpr int kBits = static_cast<int>(sizeof(R)) * 8;
  static constexpr int kDropped = 16 - kBits;  ///< fraction bits that the remainder has no room for

  GSC_HD static void divide(float master, uint16_t &weight, R &remainder) {
    const uint32_t magnitude = to_bits(master) & 0x7fffffffU;
    const uint32_t kept = (Fraction<D>::from(magnitude) + ((1U << kDropped) >> 1)) >> kDropped;
    weight = weight_of<D>(master, (kept + (1U << (kBits - 1))) >> kBits);
    remainder = static_cast<R>(static_cast<int32_t>(magnitude) < 0x7f800000 ? kept : 0U);
  }

  GSC_HD static float join(uint16_t weight, R remainder) {
    // Not below 0, where it would be if the caller had set a weight to 0 and left its remainder.
    const int32_t sum = (int32_t{weight} & 0x7fff) * (1 << kBits) + int32_t{remainder};
    const uint32_t kept = static_cast<uint32_t>(sum > 0 ? sum : 0);
    return from_bits(Fraction<D>::to(kept << kDropped) | (uint32_t{weight} & 0x8000U) << 16);
  }
};

/// A 16-bit weight without a master, rounded stochastically by 16 random bits.
template <typename D>
GSC_HD uint16_t round_stochastically(float value, uint32_t random) {
  return weight_of<D>(value, (Fraction<D>::from(to_bits(value) & 0x7fffffffU) + random) >> 16);
}

}  // namespace gsc
