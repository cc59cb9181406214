// SPDX-License-Identifier: Apache-2.0
// The fields of a gsc_tensor that passes over plans need: 24 bytes instead of 64, because lists of thousands of tensors
// are walked in every step.
#pragma once

#include <cstdint>

namespace gsc {

struct Tensor {
  void *data;
  int64_t count;
  int32_t dtype;
};
static_assert(sizeof(Tensor) == 24);

}  // namespace gsc
