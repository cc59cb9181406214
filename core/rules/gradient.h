// SPDX-License-Identifier: Apache-2.0
// One gradient on its way into an optimizer: two multiplications and a clamp, as unscale, clip_grad_norm and
// clip_grad_value do in memory, one after the other. P is the type that its dtype is computed in.
#pragma once

#include "core/rules/elementwise.h"

namespace gsc {

template <typename P>
GSC_HD P unscale_gradient(P g, P inv_scale, P clip) {
  return (g * inv_scale) * clip;
}

/// Whether clamp_magnitude with this limit changes anything.
template <typename P>
GSC_HD bool is_clamped(P limit) {
  return limit < static_cast<P>(__builtin_inff());
}

}  // namespace gsc
