// SPDX-License-Identifier: Apache-2.0
// Orders the calls that use an object, on any streams: each waits on the device for the one before. Calls on one stream
// need no event. So the default stream costs nothing, and another stream costs one event per call and object.
#pragma once

#include <utility>

#include "core/device/backend.h"

namespace gsc {

/// The stream of one call.
struct CallStream {
  CallStream(Backend &of, gsc_stream given) : backend(of), stream(given), id(of.identify(given)) {}
  /// True if the backend's work is done when a call returns, so that nothing has to wait.
  bool is_done_on_return() const { return id.stream == 0; }

  Backend &backend;
  gsc_stream stream;
  StreamId id;
};

/// Marks the last work of an object.
class StreamOrder {
 public:
  StreamOrder() = default;
  explicit StreamOrder(Backend &backend) : backend_(&backend) {}
  StreamOrder(StreamOrder &&other) noexcept { swap(other); }
  StreamOrder &operator=(StreamOrder other) noexcept {
    swap(other);
    return *this;
  }
  ~StreamOrder();

  /// Makes the further work of `call` wait for the object's work. A captured call waits only for work of the same
  /// capture, and other calls only for work outside captures.
  void precede(const CallStream &call);
  /// Makes the enqueued work of `call` the object's work. The stream belongs to the object's backend.
  void mark(const CallStream &call);

 private:
  struct Last {
    StreamId id;
    void *event = nullptr;  ///< made when it is first needed
    bool recorded = false;  ///< false: on the default stream, where it is recorded when another stream has to wait
  };
  Last &last(const StreamId &id) { return id.capture == 0 ? outside_ : captured_; }
  void record(Last &last, gsc_stream stream);
  void swap(StreamOrder &other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(outside_, other.outside_);
    std::swap(captured_, other.captured_);
  }

  Backend *backend_ = nullptr;
  Last outside_;
  Last captured_;
};

}  // namespace gsc
