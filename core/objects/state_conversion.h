// SPDX-License-Identifier: Apache-2.0
// Optimizer state in host memory from one format to another, for checkpoints. Rounds to nearest.
#pragma once

#include <cstdint>

namespace gsc {

/// Bytes of `count` elements of a state slot: the elements, then the scales of their groups if the dtype has any.
int64_t stored_bytes(int32_t dtype, int64_t count);

/// Converts `count` elements between two dtypes that state has: fp32 and its codes, or remainders. The first is the
/// first of a group. `from` and `to` are as stored_bytes() counts them.
void convert_state(int32_t from_dtype, const void *from, int32_t to_dtype, void *to, int64_t count);

}  // namespace gsc
