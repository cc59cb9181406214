// SPDX-License-Identifier: Apache-2.0
// For a list whose scaler is of another context, and so perhaps on another device: a copy of the scaler's record on the
// list's device, and a copy of the list's record on the scaler's. Used by scaler_devices.cpp.
#pragma once

#include <utility>

#include "core/objects/context.h"
#include "core/rules/records.h"

namespace gsc {

/// Members are destroyed in reverse order, `home` last: it may be the only owner of the others' memory and backend. A
/// memberwise assignment would release it first, so assignment swaps.
struct OtherContext {
  OtherContext() = default;
  OtherContext(OtherContext &&other) noexcept = default;
  OtherContext &operator=(OtherContext other) noexcept {
    std::swap(home, other.home);
    std::swap(scaler_copy, other.scaler_copy);
    std::swap(record_copy, other.record_copy);
    std::swap(read, other.read);
    std::swap(scaler, other.scaler);
    std::swap(options, other.options);
    return *this;
  }
  ~OtherContext() { read.precede_release(); }

  Ref<Context> home;         ///< the scaler's context; empty: never another than the list's
  DeviceMemory scaler_copy;  ///< ScalerRecord, on the list's device
  DeviceMemory record_copy;  ///< ListRecord, on the scaler's
  mutable StreamOrder read;  ///< work on the scaler's device that reads the list's record; the next check writes it
  uint64_t scaler = 0;       ///< id of the scaler that `scaler_copy` is a copy of ...
  uint64_t options = 0;      ///< ... after its options were set so many times
};

}  // namespace gsc
