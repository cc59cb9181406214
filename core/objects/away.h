// SPDX-License-Identifier: Apache-2.0
// A list whose scaler belongs to another context, on a device of the same kind: its own copy of the scaler's state, and a
// buffer on the scaler's device that receives its record. Used by scaler_devices.cpp.
#pragma once

#include <utility>

#include "core/objects/context.h"
#include "core/objects/stream_order.h"
#include "core/rules/records.h"

namespace gsc {

/// Members go in reverse order, `home` last: it may be all that keeps the memory and the backend of the others alive. A
/// memberwise assignment would give it back first, so assignment swaps.
struct Away {
  Away() = default;
  Away(Away &&other) noexcept = default;
  Away &operator=(Away other) noexcept {
    std::swap(home, other.home);
    std::swap(state, other.state);
    std::swap(landing, other.landing);
    std::swap(read, other.read);
    std::swap(scaler, other.scaler);
    return *this;
  }
  ~Away() = default;

  Ref<Context> home;         ///< the scaler's context; empty: the list has not been away yet
  DeviceMemory state;        ///< PolicyState, on the list's device
  DeviceMemory landing;      ///< ListRecord, on the scaler's
  mutable StreamOrder read;  ///< what reads the list's record on the scaler's device; the next check writes it
  uint64_t scaler = 0;       ///< id of the last scaler that took the list, whose state it is if the list was away
};

}  // namespace gsc
