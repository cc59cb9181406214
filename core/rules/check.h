// SPDX-License-Identifier: Apache-2.0
// The decisions of a check: from which magnitude a gradient is not finite, and how the totals of a list's chunks
// conclude it. Compiled for host and device.
#pragma once

#include "core/rules/dtypes.h"
#include "core/rules/records.h"

namespace gsc {

/// The smallest magnitude of fp64 gradients that overflows if they stay fp64, and if an optimizer with narrower
/// parameters converts them to fp32. The second is the largest fp32 number plus half a step, which rounds to inf.
inline constexpr double kFp64Limit = __builtin_inf();
inline constexpr double kFp64AsFp32Limit = 0x1.ffffffp+127;

/// The smallest magnitude, as stored or multiplied by the inverse scale, that counts as not finite. A check writes
/// nothing; unscale rounds the product to the dtype.
template <typename D, bool Write>
GSC_HD typename D::Value finite_limit([[maybe_unused]] double fp64_limit) {
  if constexpr (is_wide(D::kCode)) {
    return fp64_limit;
  } else {
    return Write ? D::kOverflow : Fp32::kOverflow;
  }
}

/// The bits of inf as an integer. Backends compare magnitudes as integers, since they have the order of their bits,
/// with NaN above inf.
template <typename Value, typename Bits>
inline constexpr Bits kInfinityBits = sizeof(Value) == 4 ? Bits{0x7f800000} : static_cast<Bits>(0x7ffLL << 52);

/// The verdicts on an element: `bits` are those of its magnitude, `scaled` is the magnitude of its product with the
/// inverse scale. They have no branches, so that they vectorize. If a finite element has the product NaN, it counts as
/// NaN.
template <typename Value, typename Bits>
GSC_HD bool is_nonfinite(Bits bits, Value scaled, Value limit) {
  return static_cast<bool>(static_cast<int>(bits >= kInfinityBits<Value, Bits>) | static_cast<int>(!(scaled < limit)));
}
template <typename Value, typename Bits>
GSC_HD bool counts_as_nan(Bits bits, Value scaled) {
  constexpr Bits kInf = kInfinityBits<Value, Bits>;
  return static_cast<bool>(static_cast<int>(bits > kInf) |
                           (static_cast<int>(bits < kInf) & static_cast<int>(scaled != scaled)));
}
/// The verdict on a tile, from its largest magnitude times the inverse scale. One number is enough: multiplying and
/// rounding are monotone. It is NaN if the tile has a NaN.
template <typename Value>
GSC_HD bool is_finite_tile(Value largest_scaled, Value limit) {
  return largest_scaled < limit;
}

/// Chunks hold at most 2^16 elements, so a chunk's number and an offset in it order like (tensor, element).
inline constexpr int kOffsetBits = 16;
inline constexpr int64_t kNoOffender = INT64_MAX;
GSC_HD int64_t offender_key(int64_t chunk, int64_t offset) { return (chunk << kOffsetBits) | offset; }
GSC_HD int64_t offender_chunk(int64_t key) { return key >> kOffsetBits; }
GSC_HD int64_t offender_offset(int64_t key) { return key & ((int64_t{1} << kOffsetBits) - 1); }

/// The norm of one tensor's gradients, multiplied by the inverse scale, from its sum of squares: 0 without elements, for
/// which an inverse of inf must not count.
GSC_HD double tensor_norm(double sum_sq, double inv_scale) {
  const bool is_number = sum_sq > 0.0 && sum_sq < __builtin_inf();
  return square_root(is_number ? sum_sq * inv_scale * inv_scale : sum_sq);
}

/// All chunks of a list together, as its gradients are stored.
struct CheckTotals {
  double sum_sq;
  double amax;
  int64_t inf_count;
  int64_t nan_count;
  int64_t first_tensor;  ///< -1: all are finite
  int64_t first_element;
};

/// Writes the totals of the gradients, multiplied by the inverse scale, to the list's record.
GSC_HD void finish_check(ListRecord &r, const CheckTotals &totals, float inv_scale) {
  const bool all_finite = totals.inf_count + totals.nan_count == 0;
  // An inverse of inf makes every element inf or NaN. Without any the list has no elements, or all its tensors are
  // absent, and there is no product: 0 times inf would be NaN.
  const bool is_empty = all_finite && !policy::is_finite(inv_scale);
  const double inv = is_empty ? 1.0 : static_cast<double>(inv_scale);
  r.reduce[0] = static_cast<double>(totals.inf_count + totals.nan_count);
  r.reduce[1] = totals.sum_sq * inv * inv;
  // A device factor may be 0: also if squares have overflowed, no finite gradient is left, and the others stay.
  if (inv == 0.0) r.reduce[1] = all_finite ? 0.0 : totals.sum_sq;
  r.grad_amax = totals.amax * inv;
  r.inf_count = totals.inf_count;
  r.nan_count = totals.nan_count;
  r.first_tensor = totals.first_tensor;
  r.first_element = totals.first_element;
}

}  // namespace gsc
