// SPDX-License-Identifier: Apache-2.0
// Masters in two parts: the 16-bit weight that the forward pass reads, and a remainder of 16 or 8 bits. A master's
// magnitude is written as the weight's code with 16 fraction bits. Rounded half up, the integer is the weight; what was
// rounded off, as a signed number, is the remainder. Rounding half to even could not be inverted, because two ties would
// share a remainder. For bf16 with 16 bits this is the rule of TransformerEngine's adam_param_remainder.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/rules/dtypes.h"
#include "core/rules/hd.h"
#include "core/rules/lanes.h"

namespace gsc {

/// A finite magnitude as the weight's code with 16 fraction bits, and back. The codes of inf and NaN follow those of
/// finite weights.
template <typename D>
struct Fraction;

/// Exact. The largest fp32 values round to inf, as in a conversion to bf16.
template <>
struct Fraction<Bf16> {
  static constexpr uint32_t kInf = 0x7f80U;
  template <typename L = OneLane>
  GSC_HD static typename L::Uint from(typename L::Uint magnitude) {
    return magnitude;
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint to(typename L::Uint fixed) {
    return fixed;
  }
};

/// Exact for 0 and from 2^-17 to 65504. Below, a multiple of 2^-40; above, 65504, because fp16 ends there.
template <>
struct Fraction<Fp16> {
  static constexpr uint32_t kInf = 0x7c00U;
  static constexpr uint32_t kNan = 0x7e00U;
  static constexpr uint32_t kSmallestNormal = 0x38800000U;  ///< 2^-14
  static constexpr uint32_t kLargest = 0x477fe000U;         ///< 65504
  /// Below kSmallestNormal the first summand counts, above it the second; the other is what both are there.
  template <typename L = OneLane>
  GSC_HD static typename L::Uint from(typename L::Uint magnitude) {
    using Int = typename L::Int;
    const Int bits = L::as_int(magnitude);
    const Int border = L::as_int(L::all(kSmallestNormal));
    const Int halves = L::to_int(L::value(L::as_uint(least(bits, border))) * 0x1p41F);
    const Int above = least(greatest(bits, border), L::as_int(L::all(kLargest))) - border;
    return ((L::as_uint(halves) + 1U) >> 1) + (L::as_uint(above) << 3);
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint to(typename L::Uint fixed) {
    using Uint = typename L::Uint;
    const typename L::Int code = L::as_int(fixed);
    const Uint subnormal = L::bits(L::to_float(code) * 0x1p-40F);
    const Uint normal = (fixed >> 3) + 0x38000000U;
    const Uint finite = code < 0x04000000 ? subnormal : normal;
    const Uint special = code > 0x7c000000 ? L::all(0x7fc00000U) : L::all(0x7f800000U);
    return code >= 0x7c000000 ? special : finite;
  }
};

/// The bits of an fp16 weight from its rounded code, unless the value is inf or NaN.
template <typename L>
GSC_HD typename L::Uint fp16_weight(typename L::Float value, typename L::Uint rounded) {
  using Uint = typename L::Uint;
  const Uint bits = L::bits(value);
  const typename L::Int magnitude = L::as_int(bits & 0x7fffffffU);
  const Uint special = magnitude > 0x7f800000 ? L::all(Fraction<Fp16>::kNan) : L::all(Fraction<Fp16>::kInf);
  return (bits >> 16 & 0x8000U) | (magnitude >= 0x7f800000 ? special : rounded);
}

/// R: int16_t or int8_t.
template <typename D, typename R>
struct Split {
  static constexpr int kBits = static_cast<int>(sizeof(R)) * 8;
  static constexpr int kDropped = 16 - kBits;  ///< fraction bits that the remainder has no room for

  /// The lower 16 bits of `weight` and the lower kBits of `remainder` count.
  template <typename L>
  struct Parts {
    typename L::Uint weight, remainder;
  };

  template <typename L = OneLane>
  GSC_HD static Parts<L> divide(typename L::Float master) {
    using Uint = typename L::Uint;
    constexpr uint32_t kHalf = (1U << kDropped) >> 1;
    if constexpr (std::is_same_v<D, Bf16>) {  // the sign stays where it is: no sum reaches it
      const Uint kept = (canonical_bits<L>(master) + kHalf) >> kDropped;
      return {(kept + (1U << (kBits - 1))) >> kBits, kept};
    } else {
      const Uint magnitude = L::bits(master) & 0x7fffffffU;
      const Uint kept = (Fraction<Fp16>::from<L>(magnitude) + kHalf) >> kDropped;
      return {fp16_weight<L>(master, (kept + (1U << (kBits - 1))) >> kBits),
              L::as_int(magnitude) < 0x7f800000 ? kept : Uint{}};
    }
  }

  /// `remainder` is sign-extended.
  template <typename L = OneLane>
  GSC_HD static typename L::Float join(typename L::Uint weight, typename L::Int remainder) {
    using Uint = typename L::Uint;
    const Uint upper = weight << 16;
    const Uint magnitude = (upper & 0x7fffffffU) >> kDropped;
    // Not below 0, where it would be if the caller had set a weight to 0 and left its remainder.
    const Uint kept = L::as_uint(greatest(L::as_int(magnitude) + remainder, typename L::Int{}));
    return L::value(Fraction<D>::template to<L>(kept << kDropped) | (upper & 0x80000000U));
  }
};

/// A 16-bit weight without a master, rounded stochastically by 16 random bits.
template <typename D, typename L = OneLane>
GSC_HD typename L::Uint round_stochastically(typename L::Float value, typename L::Uint random) {
  if constexpr (std::is_same_v<D, Bf16>) {
    return (canonical_bits<L>(value) + random) >> 16;
  } else {
    return fp16_weight<L>(value, (Fraction<Fp16>::from<L>(L::bits(value) & 0x7fffffffU) + random) >> 16);
  }
}

}  // namespace gsc
