// SPDX-License-Identifier: Apache-2.0
// Optimizer state in host memory from one format to another, for checkpoints. Rounds to nearest.
#pragma once

#include <cstdint>

#include "core/device/backend.h"

namespace gsc {

/// Bytes of `count` elements of a state slot: the elements, then the scales of their groups if the dtype has any.
int64_t stored_bytes(int32_t dtype, int64_t count);

/// Moves elements [first, first + count) of a tensor of state, the first of a group, from its device to host memory as
/// stored_bytes() counts them, and back.
void read_stored(Backend &backend, const gsc_tensor &t, int64_t first, int64_t count, void *host, gsc_stream stream);
void write_stored(Backend &backend, const gsc_tensor &t, int64_t first, int64_t count, const void *host,
                  gsc_stream stream);

/// Converts `count` elements between two dtypes that state has: fp32 and its codes, or remainders. The first is the
/// first of a group. `from` and `to` are as stored_bytes() counts them.
void convert_state(int32_t from_dtype, const void *from, int32_t to_dtype, void *to, int64_t count);

/// Masters of 16-bit weights to remainders, if `is_split`, or back.
void convert_masters(int32_t weight_dtype, const void *weights, int32_t remainder_dtype, void *remainders,
                     float *masters, int64_t count, bool is_split);

}  // namespace gsc
