// SPDX-License-Identifier: Apache-2.0
// A tensor of optimizer state and its scales: where they are, and how they move between a device and host memory.
#pragma once

#include <cstdint>

#include "core/device/backend.h"
#include "core/rules/state_conversion.h"

namespace gsc {

/// The scales of a tensor as a tensor; of count 0 if it has none.
gsc_tensor scales_of(const gsc_tensor &t);
/// Completes a tensor whose dtype has scales by where they are. Others stay as they are.
void set_scales(gsc_tensor &t, const void *scales);

StateArray array_of(const gsc_tensor &t);

/// Bytes of `count` elements of a state slot: the elements, then the scales of their groups if the dtype has any, aligned.
int64_t stored_bytes(int32_t dtype, int64_t count);
/// The array of `count` elements that are stored so.
StateArray array_of_stored(int32_t dtype, void *data, int64_t count);

/// Moves a tensor of state from its device to host memory as stored_bytes() counts it, and back.
void read_stored(Backend &backend, const gsc_tensor &t, void *host, gsc_stream stream);
void write_stored(Backend &backend, const gsc_tensor &t, const void *host, gsc_stream stream);

}  // namespace gsc
