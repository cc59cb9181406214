// SPDX-License-Identifier: Apache-2.0
// The codes of FlashOptim's checkpoints (arXiv 2602.23349): 8-bit integers, scaled by the largest magnitude of 32
// elements in fp16. State is converted from and to them, and steps do not use them. Decoding does FlashOptim's
// operations. Encoding divides by the scale as it is stored, where FlashOptim divides by the fp32 scale, so that
// a value that was decoded has the code it came from.
#pragma once

#include <cstdint>

#include "core/rules/convert.h"
#include "core/rules/hd.h"
#include "core/rules/lanes.h"
#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kind.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

/// The fp16 scale of a group whose largest magnitude this is, at most 65504, also of inf. NaN if the group has NaN, which
/// integers cannot express.
GSC_HD uint32_t flash_scale(float largest) {
  if (largest != largest) return 0x7e00U;
  return fp32_to_fp16(least(largest, 65504.0F));
}
/// A magnitude in units of the scale, 0..1; 0 where the scale has no value to divide by.
GSC_HD float flash_share(float magnitude, uint32_t scale) {
  const float s = fp16_to_fp32(static_cast<uint16_t>(scale));
  return s > 0.0F ? least(magnitude, s) / s : 0.0F;
}
GSC_HD float flash_value(float share, uint32_t scale) {
  const float x = share * fp16_to_fp32(static_cast<uint16_t>(scale));
  return x != x ? from_bits(0x7fc00000U) : x;
}

/// Of a number >= 0; halves become larger.
GSC_HD int32_t flash_round(float x) {
  const float next = x + 0.5F;
  return static_cast<int32_t>(next);
}

/// Means of gradients: y = 2 x / (1 + |x|) of x in units of the scale, times 127.
struct FlashMoment {
  using Stored = uint8_t;
  using Scale = uint16_t;
  static constexpr int32_t kCode = GSC_INT8_SOFTSIGN;
  static constexpr Slot kSlot = Slot::kMoment;
  GSC_HD static uint32_t scale_for(uint32_t largest) { return flash_scale(from_bits(largest)); }
  GSC_HD static uint32_t encode(float x, uint32_t scale) {
    const uint32_t bits = to_bits(x);
    const float share = flash_share(from_bits(bits & 0x7fffffffU), scale);
    const float softsign = 2.0F * share / (1.0F + share);
    const int32_t code = flash_round(softsign * 127.0F);
    return static_cast<uint32_t>(bits >> 31 != 0 ? -code : code) & 0xffU;
  }
  GSC_HD static float decode(uint32_t code, uint32_t scale) {
    const float y = static_cast<float>(static_cast<int8_t>(code)) / 127.0F;
    return flash_value(y / (2.0F - (y < 0.0F ? -y : y)), scale);
  }
};

/// Means and sums of squares: the root, whose scale is stored, times 255. 0 stands for 0 alone, unless the scale is 0.
struct FlashSquare {
  using Stored = uint8_t;
  using Scale = uint16_t;
  static constexpr int32_t kCode = GSC_UINT8_SQRT;
  static constexpr Slot kSlot = Slot::kSecondMoment;
  GSC_HD static uint32_t scale_for(uint32_t largest) { return flash_scale(square_root(from_bits(largest))); }
  GSC_HD static uint32_t encode(float x, uint32_t scale) {
    const float share = flash_share(square_root(from_bits(to_bits(x) & 0x7fffffffU)), scale);
    const int32_t code = flash_round(share * 255.0F);
    return static_cast<uint32_t>(share > 0.0F ? greatest(code, 1) : code);
  }
  GSC_HD static float decode(uint32_t code, uint32_t scale) {
    const float root = flash_value(static_cast<float>(code) / 255.0F, scale);
    return root * root;
  }
};

}  // namespace gsc
