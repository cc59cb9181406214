// SPDX-License-Identifier: Apache-2.0
// Orders the calls that use an object, on any streams: each waits on the device for the one before. A call marks every
// object that it has used with one event, which the objects share. Calls on one stream wait for nothing. The default
// stream needs no event before another stream has to wait, so there a call costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <utility>

#include "core/device/backend.h"
#include "core/objects/object.h"

namespace gsc {

class Context;
class EventPool;

/// A device event that marks the work of one call, shared by the objects that the call has used.
struct Event {
  void *handle = nullptr;
  EventPool *pool = nullptr;
  std::atomic<int32_t> references{0};
  std::atomic<uint64_t> recording{0};  ///< which of all that were ever made was the last of this event
  Event *next = nullptr;               ///< of the pool's free ones
};

class EventRef {
 public:
  EventRef() = default;
  explicit EventRef(Event *event) noexcept;
  EventRef(const EventRef &other) noexcept : EventRef(other.event_) {}
  EventRef(EventRef &&other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  EventRef &operator=(EventRef other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~EventRef();
  explicit operator bool() const { return event_ != nullptr; }
  Event *operator->() const { return event_; }
  /// Marks the work that is on the stream now.
  void record(Backend &backend, gsc_stream stream) const;

 private:
  Event *event_ = nullptr;
};

/// A context's events. Those that no object holds are used again, so that only the first calls make some.
class EventPool {
 public:
  explicit EventPool(std::pmr::memory_resource *memory) : memory_(memory) {}
  EventPool(const EventPool &) = delete;
  EventPool &operator=(const EventPool &) = delete;
  /// One that no one holds.
  EventRef take(Backend &backend);
  /// Destroys the events, which no one holds any more.
  void clear(Backend &backend) noexcept;

  /// How many calls have left work on the default stream.
  uint64_t default_calls() const { return default_calls_.load(std::memory_order_relaxed); }
  void count_default_call() { default_calls_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class EventRef;
  void give_back(Event *event) noexcept;

  std::pmr::memory_resource *memory_;
  std::mutex mutex_;
  Event *free_ = nullptr;
  std::atomic<uint64_t> default_calls_{0};
};

class StreamOrder;

/// One call, its stream, and the objects that it uses. Work goes to stream(), and whatever the call has used is marked
/// with it: by mark(), which reports errors, or else when the call ends, so that no call can forget an object and one
/// that fails half-way leaves its objects in order.
class CallStream {
 public:
  CallStream(Context &context, gsc_stream stream);
  CallStream(const CallStream &) = delete;
  CallStream &operator=(const CallStream &) = delete;
  ~CallStream();

  /// For work that is about to be enqueued.
  gsc_stream stream() {
    has_work_ = true;
    return stream_;
  }
  /// True if the backend's work is done when a call returns, so that nothing has to wait.
  bool is_done_on_return() const { return id.stream == 0; }
  /// Marks all objects that the call has used, with the work that has been enqueued so far.
  void mark();
  /// The same for another object, whose work the call has waited for before its own.
  void mark(StreamOrder &order);

  static constexpr int kMostUses = 12;  ///< an optimizer's lists, a scaler, and a record

  Backend &backend;
  const StreamId id;

 private:
  friend class StreamOrder;

  void add(StreamOrder &order);
  /// Further work of the call waits for the event.
  void wait(const EventRef &event);
  /// An event that marks what is on the default stream of a context now.
  EventRef default_event(Context &context);
  EventPool &pool_;
  const gsc_stream stream_;
  bool has_work_ = false;         ///< that is not marked
  EventRef event_;                ///< none on the default stream
  uint64_t waited_ = 0;           ///< the recording that it waited for last
  Ref<Context> default_context_;  ///< whose default stream `default_` marks ...
  EventRef default_;
  uint64_t default_calls_ = 0;  ///< ... after so many calls
  int use_count_ = 0;
  StreamOrder *uses_[kMostUses];
};

/// The last work of an object.
class StreamOrder {
 public:
  StreamOrder() = default;
  /// Of an object whose memory is the context's. It must outlive the order.
  explicit StreamOrder(Context &context);
  StreamOrder(StreamOrder &&other) noexcept { swap(other); }
  StreamOrder &operator=(StreamOrder other) noexcept {
    swap(other);
    return *this;
  }
  ~StreamOrder() = default;

  /// Makes the further work of `call` wait for the object's work. A captured call waits only for work of the same
  /// capture, and other calls only for work outside captures.
  void precede(CallStream &call);
  /// The same, and the call's work becomes the object's work. The call's stream belongs to the object's backend.
  void use(CallStream &call) {
    precede(call);
    call.add(*this);
  }
  /// Call it before device memory is released that the object's work may use. Where memory is freed in the order of
  /// the setup stream, that stream waits for the work; elsewhere freeing waits for the device.
  void precede_release() noexcept;

 private:
  friend class CallStream;
  struct Last {
    StreamId id;
    EventRef event;  ///< none: on the default stream, where it is recorded when another stream has to wait
  };
  Last &last(const StreamId &id) { return id.capture == 0 ? outside_ : captured_; }
  void set(const StreamId &id, const EventRef &event);
  void swap(StreamOrder &other) noexcept {
    std::swap(context_, other.context_);
    std::swap(outside_, other.outside_);
    std::swap(captured_, other.captured_);
  }

  Context *context_ = nullptr;
  std::mutex mutex_;  ///< any thread may destroy a scaler that had a list
  Last outside_;
  Last captured_;
};

/// Declared after memory that work of an object may use, and before the call that gives it such work: the memory is
/// released behind the work, also if the call fails.
class ReleaseBehind {
 public:
  explicit ReleaseBehind(StreamOrder &order) : order_(order) {}
  ReleaseBehind(const ReleaseBehind &) = delete;
  ReleaseBehind &operator=(const ReleaseBehind &) = delete;
  ~ReleaseBehind() { order_.precede_release(); }

 private:
  StreamOrder &order_;
};

}  // namespace gsc
