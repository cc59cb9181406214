// SPDX-License-Identifier: Apache-2.0
// Optimizer state from one format to another, rounded to nearest, element by element: fp32, codes and remainders. How the
// largest magnitude of a group is found is left to the backends.
#pragma once

#include <cstdint>

#include "core/rules/dtypes.h"
#include "core/rules/flash_codes.h"
#include "core/rules/hd.h"
#include "core/rules/split.h"
#include "core/rules/state_codes.h"

namespace gsc {

struct StateArray {
  void *data;
  void *scale;  ///< NULL: none
  int32_t dtype;
};

/// `src` into `dst`, of other dtype. Both begin with the first element of a group.
struct StateConversion {
  StateArray src;
  StateArray weights;  ///< of masters, which are the fp32 array beside remainders
  StateArray dst;
  int64_t count;
};

GSC_HD constexpr bool is_flash_code(int32_t dtype) {
  return dtype == FlashMoment::kCode || dtype == FlashSquare::kCode;
}
/// The dtype of the scales that tensors of a dtype have; 0 if they have none.
GSC_HD constexpr int32_t scale_dtype_of(int32_t dtype) {
  return is_flash_code(dtype) ? GSC_FP16 : scale_dtype_of_code(dtype);
}
/// Whether a slot can be converted from and to a dtype.
GSC_HD constexpr bool is_convertible_slot(int32_t dtype, Slot holds) {
  return dtype == GSC_FP32 || is_code_of(dtype, holds) || (dtype == FlashMoment::kCode && holds == Slot::kMoment) ||
         (dtype == FlashSquare::kCode && holds == Slot::kSecondMoment);
}
GSC_HD constexpr bool is_remainder(int32_t dtype) { return dtype == GSC_INT16 || dtype == GSC_INT8; }
GSC_HD constexpr bool has_remainders(const StateConversion &c) {
  return is_remainder(c.src.dtype) || is_remainder(c.dst.dtype);
}

template <typename T>
GSC_HD T &stored_at(const StateArray &a, int64_t i) {
  return static_cast<T *>(a.data)[i];
}

GSC_HD float decode_state(const StateArray &a, int64_t i) {
  if (a.dtype == GSC_FP32) return stored_at<float>(a, i);
  const auto flash = [&](auto code) {
    using C = decltype(code);
    const auto scale = static_cast<const typename C::Scale *>(a.scale)[i / kStateGroup];
    return C::decode(stored_at<typename C::Stored>(a, i), scale);
  };
  if (a.dtype == FlashMoment::kCode) return flash(FlashMoment{});
  if (a.dtype == FlashSquare::kCode) return flash(FlashSquare{});
  return with_state_code(a.dtype, [&](auto code) {
    using C = decltype(code);
    uint32_t scale = 0;
    if constexpr (C::kGrouped) scale = static_cast<const typename C::Scale *>(a.scale)[i / kStateGroup];
    return C::decode(stored_at<typename C::Stored>(a, i), scale);
  });
}

/// The bits of the magnitude by which an element takes part in its group's scale.
GSC_HD int32_t scaled_magnitude(int32_t dtype, float x) {
  if (is_flash_code(dtype)) return static_cast<int32_t>(to_bits(x) & 0x7fffffffU);
  return is_grouped(dtype) ? magnitude_of_code(dtype, x) : 0;
}

/// `largest` and `smallness` are the greatest scaled_magnitude and smallness_of it in the group, whose first element writes
/// the scale.
GSC_HD void encode_state(const StateArray &a, int64_t i, float x, int32_t largest, int32_t smallness) {
  if (a.dtype == GSC_FP32) {
    stored_at<float>(a, i) = x;
    return;
  }
  const bool is_first = i % kStateGroup == 0;
  const auto flash = [&](auto code) {
    using C = decltype(code);
    const uint32_t scale = C::scale_for(static_cast<uint32_t>(largest));
    if (is_first) static_cast<typename C::Scale *>(a.scale)[i / kStateGroup] = static_cast<typename C::Scale>(scale);
    stored_at<typename C::Stored>(a, i) = static_cast<typename C::Stored>(C::encode(x, scale));
  };
  if (a.dtype == FlashMoment::kCode) return flash(FlashMoment{});
  if (a.dtype == FlashSquare::kCode) return flash(FlashSquare{});
  with_state_code(a.dtype, [&](auto code) {
    using C = decltype(code);
    uint32_t scale = 0;
    if constexpr (C::kGrouped) {
      using Scale = typename C::Scale;
      scale = C::scale_for(static_cast<uint32_t>(largest), static_cast<uint32_t>(smallness));
      if (is_first) static_cast<Scale *>(a.scale)[i / kStateGroup] = static_cast<Scale>(scale);
    }
    stored_at<typename C::Stored>(a, i) = static_cast<typename C::Stored>(C::encode(x, scale, kToNearest));
  });
}

/// The remainder of a master, of which the weight is the upper part. In a tie the weight may have been rounded down.
template <typename D, typename R>
GSC_HD R remainder_of(float master, uint16_t weight) {
  using S = Split<D, R>;
  const auto parts = S::divide(master);
  const auto rounded = static_cast<uint16_t>(parts.weight);
  const auto remainder = static_cast<R>(parts.remainder);
  if (rounded == weight) return remainder;
  constexpr int32_t kHalf = 1 << (S::kBits - 1);
  const int32_t whole = (int32_t{rounded} & 0x7fff) * (1 << S::kBits) + int32_t{remainder};
  const int32_t above = whole - (int32_t{weight} & 0x7fff) * (1 << S::kBits);
  const bool is_finite = (to_bits(master) & 0x7fffffffU) < 0x7f800000U;
  const bool is_tie = ((rounded ^ weight) & 0x8000) == 0 && above == kHalf && is_finite;
  return is_tie ? static_cast<R>(kHalf - 1) : remainder;
}

/// Masters to remainders, or back, or remainders of one size to the other, which differ in how many bits of the same
/// fraction they keep.
GSC_HD void convert_remainder(const StateConversion &c, int64_t i) {
  const bool from_masters = c.src.dtype == GSC_FP32;
  if (from_masters || c.dst.dtype == GSC_FP32) {
    const auto weight = stored_at<uint16_t>(c.weights, i);
    const auto convert = [&](auto dtype, auto remainder) {
      using D = decltype(dtype);
      using R = decltype(remainder);
      if (from_masters) {
        stored_at<R>(c.dst, i) = remainder_of<D, R>(stored_at<float>(c.src, i), weight);
      } else {
        stored_at<float>(c.dst, i) = Split<D, R>::join(weight, stored_at<R>(c.src, i));
      }
    };
    const auto with_weight = [&](auto remainder) {
      c.weights.dtype == GSC_FP16 ? convert(Fp16{}, remainder) : convert(Bf16{}, remainder);
    };
    (from_masters ? c.dst : c.src).dtype == GSC_INT16 ? with_weight(int16_t{}) : with_weight(int8_t{});
  } else if (c.dst.dtype == GSC_INT16) {
    stored_at<int16_t>(c.dst, i) = static_cast<int16_t>(stored_at<int8_t>(c.src, i) * 256);
  } else {
    stored_at<int8_t>(c.dst, i) = static_cast<int8_t>(least((stored_at<int16_t>(c.src, i) + 128) >> 8, 127));
  }
}

}  // namespace gsc
