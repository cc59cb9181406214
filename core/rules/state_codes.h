// SPDX-License-Identifier: Apache-2.0
// Optimizer state in 16 and 8 bits: how a value becomes a code, and back, compiled for host and device. Integers and
// exact products with powers of two alone, so every backend and instruction set has the same codes.
//
// encode() finds the code of a magnitude as a fixed-point number with 16 fraction bits. Adding `bias` and dropping the
// fraction rounds it: kToNearest gives the nearest code, ties away from zero; 16 random bits round stochastically. For a
// grouped code, kStateGroup elements share a scale, which is found from two maxima over them: of magnitude_of() and of
// smallness_of(). docs/reference/semantics.md states each code for users.
#pragma once

#include <cstdint>

#include "core/rules/convert.h"
#include "core/rules/dtypes.h"
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
  X(SquareE6m10)                   \
  X(SquareLog8)

/// Greatest of the smallest magnitude of a group; 0 leaves an element out.
template <typename L = OneLane>
GSC_HD typename L::Int smallness_of(typename L::Int magnitude) {
  const typename L::Int smallness = L::as_int(0x80000000U - L::as_uint(magnitude));
  return magnitude == 0 ? typename L::Int{} : smallness;
}

/// bfloat16, the upper half of an fp32. Not grouped. NaN becomes 0x7fc0; inf is never written, but read as such.
struct MomentBf16 {
  using Stored = uint16_t;
  using Scale = uint8_t;  ///< of code that serves all
  static constexpr int32_t kCode = GSC_BF16;
  static constexpr int32_t kScaleDtype = 0;
  static constexpr Slot kSlot = Slot::kMoment;
  static constexpr bool kGrouped = false;
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

/// OCP FP8 E4M3 times the group's scale, a byte that stands for 2^(byte - 127): IEEE's E8M0. The largest magnitude of a
/// group is scaled into [2^7, 2^8), which leaves room to round it up. NaN is 0x7f. inf counts as the largest number of
/// fp32.
struct MomentE4m3 {
  using Stored = uint8_t;
  using Scale = uint8_t;
  static constexpr int32_t kCode = GSC_FP8_E4M3;
  static constexpr int32_t kScaleDtype = GSC_FP8_E8M0;
  static constexpr Slot kSlot = Slot::kMoment;
  static constexpr bool kGrouped = true;
  static constexpr uint32_t kNan = 0x7fU;
  static constexpr float kSmallestNormal = 0x1p-6F;  ///< its code is 8
  static constexpr int32_t kMost = 0x7f700000;       ///< 240 * 2^120, above which fp32 has no other code's number
  /// The bits of the magnitude with which a number takes part in its group's scale.
  template <typename L = OneLane>
  GSC_HD static typename L::Int magnitude_of(typename L::Float x) {
    const typename L::Int magnitude = saturated<L>(L::as_int(L::bits(x) & 0x7fffffffU), kMost);
    return magnitude > 0x7f800000 ? typename L::Int{} : magnitude;
  }
  /// `largest`: of magnitude_of in the group.
  template <typename L = OneLane>
  GSC_HD static typename L::Uint scale_for(typename L::Uint largest, typename L::Uint /*smallness*/) {
    return L::as_uint(greatest(L::as_int(largest >> 23) - 7, L::as_int(L::all(1))));
  }
  /// A number below kSmallestNormal has the code that its sum with it has there: the first is then the greater.
  template <typename L = OneLane>
  GSC_HD static typename L::Uint encode(typename L::Float x, typename L::Uint scale, typename L::Uint bias) {
    using Int = typename L::Int;
    const typename L::Uint bits = L::bits(x);
    const Int magnitude = saturated<L>(L::as_int(bits & 0x7fffffffU), kMost);
    const typename L::Float scaled = L::value(L::as_uint(magnitude)) * L::value((254U - scale) << 23);
    const Int subnormal = L::as_int(L::bits(scaled + kSmallestNormal)) - (121 << 23);
    const Int normal = L::as_int(L::bits(scaled)) - (120 << 23);
    const typename L::Uint code = (L::as_uint(greatest(subnormal, normal)) + (bias << 4)) >> 20;
    return (bits >> 24 & 0x80U) | (magnitude > 0x7f800000 ? L::all(kNan) : code);
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

/// Squares, which spread over twice the octaves that gradients do. A code is a piece of an fp32, base + (code << shift):
/// codes are equal steps of its bit pattern, which are equal steps of value in each octave. 0 stands for 0 alone: smaller
/// magnitudes than code 1 become code 1, because a second moment of 0 would make an update without bound. The last codes
/// are inf and NaN. C has base_of(scale), shift_of(scale), and kMost, the largest number with a code for every scale.
template <typename C, typename S>
struct SquareCode {
  using Stored = S;
  static constexpr Slot kSlot = Slot::kSecondMoment;
  static constexpr bool kGrouped = true;
  static constexpr uint32_t kNan = static_cast<S>(~0U);
  static constexpr uint32_t kInf = kNan - 1;
  template <typename L = OneLane>
  GSC_HD static typename L::Int magnitude_of(typename L::Float x) {
    const typename L::Int magnitude = L::as_int(L::bits(x) & 0x7fffffffU);
    return magnitude < 0x7f800000 ? magnitude : typename L::Int{};
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint encode(typename L::Float x, typename L::Uint scale, typename L::Uint bias) {
    using Uint = typename L::Uint;
    using Int = typename L::Int;
    const Int magnitude = L::as_int(L::bits(x) & 0x7fffffffU);
    const Int finite = least(magnitude, L::as_int(L::all(C::kMost)));
    const Uint distance = L::as_uint(greatest(finite - L::as_int(C::template base_of<L>(scale)), Int{}));
    const Uint shift = C::template shift_of<L>(scale);
    const Uint added = bias << 8 >> (24U - shift);  // 16 bits become `shift`
    const Int rounded = L::as_int((distance + added) >> shift);
    const Int smallest = least(magnitude, L::as_int(L::all(1)));
    const Uint code = L::as_uint(greatest(rounded, smallest));
    const Uint special = magnitude > 0x7f800000 ? L::all(kNan) : L::all(kInf);
    return magnitude >= 0x7f800000 ? special : code;
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Float decode(typename L::Uint code, typename L::Uint scale) {
    using Uint = typename L::Uint;
    const Uint bits = C::template base_of<L>(scale) + (code << C::template shift_of<L>(scale));
    const Uint finite = code == 0U ? Uint{} : bits;
    const Uint number = code == kInf ? L::all(0x7f800000U) : finite;
    return L::value(code == kNan ? L::all(0x7fc00000U) : number);
  }
};

/// 6 bits of exponent, counted from the group's scale, and 10 of mantissa. The scale is a byte, the exponent field of an
/// fp32. The largest magnitude has the field before the last, which leaves room to round it up.
struct SquareE6m10 : SquareCode<SquareE6m10, uint16_t> {
  using Scale = uint8_t;
  static constexpr int32_t kCode = GSC_UFP16_E6M10;
  static constexpr int32_t kScaleDtype = GSC_FP8_E8M0;
  static constexpr int kShift = 13;
  static constexpr int32_t kMost = 0x7f800000 - (1 << kShift);
  template <typename L = OneLane>
  GSC_HD static typename L::Uint scale_for(typename L::Uint largest, typename L::Uint /*smallness*/) {
    return L::as_uint(greatest(L::as_int(largest >> 23) - 62, typename L::Int{}));
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint base_of(typename L::Uint scale) {
    return scale << 23;
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint shift_of(typename L::Uint /*scale*/) {
    return L::all(kShift);
  }
};

/// 8 bits from below the smallest of a group to above its largest, as fine as its octaves allow. The scale has base and
/// shift: 10 bits of base >> 21, a quarter of an octave, and above them shift - kFinest, by each of which the steps and
/// their range double. The range has 2 octaves at first, and 32 at most.
struct SquareLog8 : SquareCode<SquareLog8, uint8_t> {
  using Scale = uint16_t;
  static constexpr int32_t kCode = GSC_UINT8_LOG;
  static constexpr int32_t kScaleDtype = GSC_INT16;
  static constexpr int kFinest = 16;
  static constexpr int kWidest = 4;  ///< above kFinest
  static constexpr int32_t kMost = 0x7f800000 - (1 << (kFinest + kWidest));
  /// In quarters of an octave: the range is the first that reaches from one below the smallest to one above the largest,
  /// and has one to spare.
  template <typename L = OneLane>
  GSC_HD static typename L::Uint scale_for(typename L::Uint largest, typename L::Uint smallness) {
    using Int = typename L::Int;
    const Int high = L::as_int(largest >> 21);
    const Int low = least(L::as_int((0x80000000U - smallness) >> 21), high);
    const Int span = high - low + 4;
    Int widening{};
    for (int k = 0; k < kWidest; ++k) widening += span > (8 << k) ? L::as_int(L::all(1)) : Int{};
    const Int range = L::as_int(L::all(8) << L::as_uint(widening));
    const Int base = greatest(greatest(low - 1, high + 3 - range), Int{});
    return L::as_uint(base) | L::as_uint(widening) << 10;
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint base_of(typename L::Uint scale) {
    return (scale & 0x3ffU) << 21;
  }
  template <typename L = OneLane>
  GSC_HD static typename L::Uint shift_of(typename L::Uint scale) {
    return (scale >> 10 & 7U) + static_cast<uint32_t>(kFinest);
  }
};

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
/// The dtype of the scales of groups; 0 if there are none.
GSC_HD constexpr int32_t scale_dtype_of_code(int32_t dtype) {
#define GSC_SCALE(C) (dtype == C::kCode ? C::kScaleDtype : 0) +
  return GSC_FOR_EACH_STATE_CODE(GSC_SCALE) 0;
#undef GSC_SCALE
}
/// Bytes of the scale of a group; 0 if there is none.
GSC_HD constexpr int64_t scale_size(int32_t dtype) { return dtype_bytes(scale_dtype_of_code(dtype)); }
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

/// Whether a slot is rounded stochastically: if anything of its old value stays. `rate` is 1 minus the factor by which a
/// step multiplies that. A value that a step moves by less than half a unit in the last place never moves if it is rounded
/// to nearest, and one that moves by a few units stops short of its goal.
GSC_HD bool rounds_stochastically(float rate) { return rate < 1.0F; }

/// Whether a mean of gradients moves so little in a step that codes of 8 bits would be more rounding than mean.
GSC_HD bool is_slow(float rate) { return rate < 0.0099F; }

}  // namespace gsc
