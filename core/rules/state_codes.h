// SPDX-License-Identifier: Apache-2.0
// Optimizer state in 16 and 8 bits: how a value becomes a code, and back, compiled for host and device. Integers and
// exact products with powers of two alone, so every backend and instruction set has the same codes.
//
// encode() finds the code of a magnitude as a fixed-point number with 16 fraction bits. Adding `bias` and dropping the
// fraction rounds it: kToNearest gives the nearest code, ties away from zero; 16 random bits round stochastically. For a
// grouped code, kStateGroup elements share a byte, which stands for a power of two: 2^(byte - 127), IEEE's E8M0.
// docs/reference/semantics.md states each code for users.
#pragma once

#include <cstdint>

#include "core/rules/convert.h"
#include "core/rules/hd.h"
#include "core/rules/lanes.h"
#include "core/rules/optim/kind.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

inline constexpr int kStateGroup = 32;  ///< elements that share a scale, counted from the start of their tensor
inline constexpr uint32_t kToNearest = 0x8000U;

// State must not turn a finite gradient into a weight of inf or NaN, so no code does that which a step makes of finite
// numbers. A mean of inf would make NaN of the next gradient that pulls it back: it becomes the largest finite code. So
// does a number that rounding would take beyond it. A second moment of inf, which is that of a finite gradient whose
// square overflows, stays inf: then the weight stands still, as with fp32 state. As a finite number it would be
// too small for its mean, and the next step would throw the weight away.

/// The bits of a magnitude, not above `most`; those of NaN as they are.
template <typename L>
GSC_HD typename L::Int saturated(typename L::Int magnitude, int32_t most) {
  const typename L::Int limited = least(magnitude, L::as_int(L::all(static_cast<uint32_t>(most))));
  return magnitude > 0x7f800000 ? magnitude : limited;
}

/// X(code) for every code.
#define GSC_FOR_EACH_STATE_CODE(X) \
  X(MomentBf16)                    \
  X(MomentE4m3)                    \
  X(SquareE5m11)                   \
  X(SquareE4m4)

/// bfloat16, the upper half of an fp32. Not grouped. NaN becomes 0x7fc0; inf is never written, but read as such.
struct MomentBf16 {
  using Stored = uint16_t;
  static constexpr int32_t kCode = GSC_BF16;
  static constexpr Slot kSlot = Slot::kMoment;
  static constexpr bool kGrouped = false;
  static constexpr int kMantissa = 7;
  static constexpr int32_t kMost = 0x7f7f0000;  ///< the largest finite number
  template <typename L = OneLane>
  GSC_HD static typename L::Uint encode(typename L::Float x, typename L::Uint /*scale*/, typename L::Uint bias) {
    const typename L::Uint bits = canonical_bits<L>(x);
    const auto magnitude = L::as_uint(saturated<L>(L::as_int(bits & 0x7fffffffU), kMost));
    return ((bits & 0x80000000U) + magnitude + bias) >> 16;  // no sum reaches the sign
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Float decode(typename L::Uint code, typename L::Uint /*scale*/) {
    return L::value(code << 16);
  }
};

/// OCP FP8 E4M3 times the group's scale. The largest magnitude of a group is scaled into [2^7, 2^8), which leaves
/// room to round it up. NaN is 0x7f. inf counts as the largest number of fp32.
struct MomentE4m3 {
  using Stored = uint8_t;
  static constexpr int32_t kCode = GSC_FP8_E4M3;
  static constexpr Slot kSlot = Slot::kMoment;
  static constexpr bool kGrouped = true;
  static constexpr int kMantissa = 3;
  static constexpr uint32_t kNan = 0x7fU;
  static constexpr int32_t kSmallestNormal = 121 << 23;  ///< 2^-6, whose code is 8
  static constexpr int32_t kMost = 0x7f700000;           ///< 240 * 2^120, above which fp32 has no other code's number
  /// The bits of the magnitude with which a number takes part in its group's scale.
  template <typename L = OneLane>
  GSC_HD static typename L::Int magnitude_of(typename L::Float x) {
    const typename L::Int magnitude = saturated<L>(L::as_int(L::bits(x) & 0x7fffffffU), kMost);
    return magnitude > 0x7f800000 ? typename L::Int{} : magnitude;
  }
  /// `largest`: of magnitude_of in the group.
  template <typename L = OneLane>
  GSC_HD static typename L::Uint scale_for(typename L::Uint largest) {
    return L::as_uint(greatest(L::as_int(largest >> 23) - 7, L::as_int(L::all(1))));
  }
  /// Below kSmallestNormal the first summand counts, above it the second. NaN is above all codes.
  template <typename L = OneLane>
  GSC_HD static typename L::Uint encode(typename L::Float x, typename L::Uint scale, typename L::Uint bias) {
    using Int = typename L::Int;
    const typename L::Uint bits = L::bits(x);
    const Int magnitude = saturated<L>(L::as_int(bits & 0x7fffffffU), kMost);
    const Int scaled = L::as_int(L::bits(L::value(L::as_uint(magnitude)) * L::value((254U - scale) << 23)));
    const Int border = L::as_int(L::all(kSmallestNormal));
    const Int subnormal = L::to_int(L::value(L::as_uint(least(scaled, border))) * 0x1p25F);
    const Int above = greatest(scaled, border) - border;
    const Int rounded = L::as_int((L::as_uint(subnormal) + (L::as_uint(above) >> 4) + bias) >> 16);
    const Int code = least(rounded, L::as_int(L::all(kNan)));
    return (bits >> 24 & 0x80U) | L::as_uint(code);
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Float decode(typename L::Uint code, typename L::Uint scale) {
    using Uint = typename L::Uint;
    const typename L::Int magnitude = L::as_int(code & 0x7fU);
    const Uint subnormal = L::bits(L::to_float(magnitude) * 0x1p-9F);
    const Uint normal = (L::as_uint(magnitude) << 20) + (120U << 23);
    const Uint finite = magnitude < 8 ? subnormal : normal;
    const Uint bits = magnitude == static_cast<int32_t>(kNan) ? L::all(0x7fc00000U) : finite;
    return L::value(bits | (code & 0x80U) << 24) * L::value(scale << 23);
  }
};

/// An unsigned float of `Exponent` and `Mantissa` bits without subnormals. Its exponent field counts from the group's
/// scale, so a code is a piece of the fp32: (code << (23 - Mantissa)) + (scale << 23). The largest magnitude has the
/// field before the last, which leaves room to round it up. 0 stands for 0 alone: smaller magnitudes than code 1 become
/// code 1, because a second moment of 0 would make an update without bound. inf becomes NaN, all ones.
template <int Exponent, int Mantissa, typename S, int32_t Code>
struct Square {
  using Stored = S;
  static constexpr int32_t kCode = Code;
  static constexpr Slot kSlot = Slot::kSecondMoment;
  static constexpr bool kGrouped = true;
  static constexpr int kMantissa = Mantissa;
  static constexpr uint32_t kNan = (1U << (Exponent + Mantissa)) - 1;
  static constexpr uint32_t kInf = kNan - 1;
  static constexpr int32_t kMost = 0x7f800000 - (1 << (23 - Mantissa));  ///< the largest finite number
  template <typename L = OneLane>
  GSC_HD static typename L::Int magnitude_of(typename L::Float x) {
    const typename L::Int magnitude = L::as_int(L::bits(x) & 0x7fffffffU);
    return magnitude < 0x7f800000 ? magnitude : typename L::Int{};
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint scale_for(typename L::Uint largest) {
    constexpr int32_t kTop = (1 << Exponent) - 2;
    return L::as_uint(greatest(L::as_int(largest >> 23) - kTop, typename L::Int{}));
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint encode(typename L::Float x, typename L::Uint scale, typename L::Uint bias) {
    using Uint = typename L::Uint;
    using Int = typename L::Int;
    const Int magnitude = L::as_int(L::bits(x) & 0x7fffffffU);
    const Int finite = least(magnitude, L::as_int(L::all(kMost)));
    const Uint distance = L::as_uint(greatest(finite - L::as_int(scale << 23), Int{}));
    constexpr int kShift = 23 - Mantissa - 16;  // as if `distance` were shifted by it, and then by 16
    const Uint added = kShift >= 0 ? bias << (kShift & 31) : bias >> (-kShift & 31);
    const Int rounded = L::as_int((distance + added) >> (16 + kShift));
    const Int smallest = least(magnitude, L::as_int(L::all(1)));
    const Uint code = L::as_uint(greatest(rounded, smallest));
    const Uint special = magnitude > 0x7f800000 ? L::all(kNan) : L::all(kInf);
    return magnitude >= 0x7f800000 ? special : code;
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Float decode(typename L::Uint code, typename L::Uint scale) {
    using Uint = typename L::Uint;
    const Uint bits = (code << (23 - Mantissa)) + (scale << 23);
    const Uint finite = code == 0U ? Uint{} : bits;
    const Uint number = code == kInf ? L::all(0x7f800000U) : finite;
    return L::value(code == kNan ? L::all(0x7fc00000U) : number);
  }
};
using SquareE5m11 = Square<5, 11, uint16_t, GSC_UFP16_E5M11>;
using SquareE4m4 = Square<4, 4, uint8_t, GSC_UFP8_E4M4>;

/// f(code's struct) for a state dtype other than fp32 and fp64.
GSC_ANY_SPACE
template <typename F>
GSC_HD decltype(auto) with_state_code(int32_t dtype, const F &f) {
  switch (dtype) {
#define GSC_CASE(C) \
  case C::kCode:    \
    return f(C{});
    GSC_FOR_EACH_STATE_CODE(GSC_CASE)
#undef GSC_CASE
  }
  __builtin_unreachable();
}

GSC_HD constexpr bool is_state_code(int32_t dtype) {
#define GSC_IS(C) dtype == C::kCode ||
  return GSC_FOR_EACH_STATE_CODE(GSC_IS) false;
#undef GSC_IS
}
/// Whether the code is for what a slot holds.
GSC_HD constexpr bool is_code_of(int32_t dtype, Slot holds) {
#define GSC_IS_OF(C) (dtype == C::kCode && C::kSlot == holds) ||
  return GSC_FOR_EACH_STATE_CODE(GSC_IS_OF) false;
#undef GSC_IS_OF
}
GSC_HD constexpr bool is_grouped(int32_t dtype) {
#define GSC_GROUPED(C) (dtype == C::kCode && C::kGrouped) ||
  return GSC_FOR_EACH_STATE_CODE(GSC_GROUPED) false;
#undef GSC_GROUPED
}
/// The bits of the magnitude with which a number takes part in the scale of its group, in a dtype that is grouped.
GSC_HD int32_t magnitude_of_code(int32_t dtype, float x) {
  return with_state_code(dtype, [&](auto code) {
    using C = decltype(code);
    if constexpr (C::kGrouped) return C::magnitude_of(x);
    return int32_t{0};
  });
}
/// Groups of a tensor, the last of which may be shorter.
GSC_HD constexpr int64_t state_groups(int64_t elements) { return (elements + kStateGroup - 1) / kStateGroup; }

/// What stochastic rounding adds, from an element's 16 random bits. Slots of one element differ in the order of its bytes.
template <typename C, typename Uint>
GSC_HD Uint bias_of(Uint random) {
  return C::kSlot == Slot::kMoment ? (random >> 8 | random << 8) & 0xffffU : random;
}

/// Whether a slot is rounded stochastically. `rate` is 1 minus the factor by which a step multiplies the old value.
/// Rounded to nearest, a value that a step changes by less than half a unit in the last place never changes. Means of
/// squares take four times that: they move in one direction for long, and the halves that are lost add up.
GSC_HD bool rounds_stochastically(int32_t dtype, float rate) {
  return with_state_code(dtype, [&](auto code) GSC_INLINED {
    using C = decltype(code);
    constexpr float kHalfUnit = 0.5F / static_cast<float>(1 << C::kMantissa);
    return rate < (C::kSlot == Slot::kMoment ? kHalfUnit : 4.0F * kHalfUnit);
  });
}

}  // namespace gsc
