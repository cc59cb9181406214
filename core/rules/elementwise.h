// SPDX-License-Identifier: Apache-2.0
// The element-wise operations between a source and a destination tensor: dst = f(src, dst), in fp32, or in fp64 if
// either tensor is computed in fp64, rounded to nearest even.
#pragma once

#include <cstdint>

#include "core/rules/hd.h"

namespace gsc {

enum class Elementwise : int32_t {
  kCast,   ///< src
  kScale,  ///< a * src
  kAxpby,  ///< a * src + b * dst
  kClamp,  ///< min(max(src, -a), a), NaN stays NaN
  kFill,   ///< a; there is no src
};

template <typename T>
GSC_HD T clamp_magnitude(T x, T limit) {
  const T low = x < -limit ? -limit : x;
  return low > limit ? limit : low;
}

/// One element. The operation decides which of the values count.
template <Elementwise Op, typename T>
GSC_HD T compute_element(T a, [[maybe_unused]] T b, [[maybe_unused]] T x, [[maybe_unused]] T y) {
  if constexpr (Op == Elementwise::kCast) return x;
  if constexpr (Op == Elementwise::kScale) return a * x;
  if constexpr (Op == Elementwise::kAxpby) return a * x + b * y;
  if constexpr (Op == Elementwise::kClamp) return clamp_magnitude(x, a);
  return a;
}

template <Elementwise Op>
struct ElementwiseTag {
  static constexpr Elementwise kOp = Op;
};

/// f(tag) for an operation.
GSC_ANY_SPACE
template <typename F>
GSC_HD void with_operation(Elementwise op, const F &f) {
  switch (op) {
    case Elementwise::kCast:
      return f(ElementwiseTag<Elementwise::kCast>{});
    case Elementwise::kScale:
      return f(ElementwiseTag<Elementwise::kScale>{});
    case Elementwise::kAxpby:
      return f(ElementwiseTag<Elementwise::kAxpby>{});
    case Elementwise::kClamp:
      return f(ElementwiseTag<Elementwise::kClamp>{});
    case Elementwise::kFill:
      return f(ElementwiseTag<Elementwise::kFill>{});
  }
}

/// An operation with its numbers, without the special cases.
struct ElementwiseRule {
  Elementwise op;
  double a;
  double b;
  bool nothing;  ///< the result is already there
};

/// `factor`, for kScale, is a device scalar and replaces a. With b = 0, dst is only written, so that its NaN do not
/// spread. Scaling by 1 in place does nothing.
GSC_HD ElementwiseRule resolve(Elementwise op, double a, double b, const float *factor, bool in_place) {
  ElementwiseRule r = {op, op == Elementwise::kScale ? static_cast<double>(*factor) : a, b, false};
  r.nothing = op == Elementwise::kScale && in_place && r.a == 1.0;
  if (op == Elementwise::kAxpby && b == 0.0) r.op = Elementwise::kScale;
  return r;
}

/// Whether elements can be copied unchanged, NaN included.
GSC_HD bool is_copy(Elementwise op, int32_t src_dtype, int32_t dst_dtype) {
  return op == Elementwise::kCast && src_dtype == dst_dtype;
}

}  // namespace gsc
