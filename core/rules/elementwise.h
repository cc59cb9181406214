// SPDX-License-Identifier: Apache-2.0
// The element-wise operations between a source and a destination tensor, named once for the core and its backends.
#pragma once

#include <cstdint>

namespace gsc {

/// dst = f(src, dst), in fp32, or in fp64 if either is fp64, rounded to nearest even.
enum class Linear : int32_t {
  kCast,   ///< src
  kScale,  ///< a * src
  kAxpby,  ///< a * src + b * dst
  kClamp,  ///< min(max(src, -a), a), NaN stays NaN
};

}  // namespace gsc
