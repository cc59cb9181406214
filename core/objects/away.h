// SPDX-License-Identifier: Apache-2.0
// A list whose scaler belongs to another context, on a device of the same kind: its own copy of the scaler's state, a
// buffer on the scaler's device that receives its record, and events that order the two. With a copy per list, only the
// work on one list has to be ordered, which the caller does. Used by scaler_devices.cpp.
#pragma once

#include <utility>

#include "core/objects/context.h"
#include "core/rules/records.h"

namespace gsc {

/// Stands for the work enqueued when it was recorded last.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  explicit DeviceEvent(Backend &backend) : backend_(&backend), event_(backend.make_event()) {}
  DeviceEvent(DeviceEvent &&other) noexcept : backend_(other.backend_), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent &operator=(DeviceEvent other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~DeviceEvent() {
    if (event_ != nullptr) backend_->destroy_event(event_);
  }
  /// `stream` is one of the event's own device.
  void record(gsc_stream stream) const { backend_->record_event(event_, stream); }
  /// `stream` is one of the device that waits.
  void hold_back(Backend &waiting, gsc_stream stream) const { waiting.wait_event(event_, stream); }

 private:
  Backend *backend_ = nullptr;
  void *event_ = nullptr;
};

/// Members go in reverse order, `home` last: it may be all that keeps the memory and the backend of the others alive. A
/// memberwise assignment would give it back first, so assignment swaps.
struct Away {
  Away() = default;
  Away(Away &&other) noexcept = default;
  Away &operator=(Away other) noexcept {
    std::swap(home, other.home);
    std::swap(state, other.state);
    std::swap(landing, other.landing);
    std::swap(used, other.used);
    std::swap(read, other.read);
    std::swap(scaler, other.scaler);
    return *this;
  }
  ~Away() = default;

  Ref<Context> home;     ///< the scaler's context; empty: the list has not been away yet
  DeviceMemory state;    ///< PolicyState, on the list's device
  DeviceMemory landing;  ///< ListRecord, on the scaler's
  DeviceEvent used;      ///< the list's work of this scaler
  DeviceEvent read;      ///< the scaler's of the list's record, which the next check writes
  uint64_t scaler = 0;   ///< id of the last scaler that took the list, whose state it is if the list was away
};

}  // namespace gsc
