// SPDX-License-Identifier: Apache-2.0
#include "core/objects/stream_order.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "core/objects/context.h"

namespace gsc {

EventRef::EventRef(Event *event) noexcept : event_(event) {
  if (event_ != nullptr) event_->references.fetch_add(1, std::memory_order_relaxed);
}

EventRef::~EventRef() {
  if (event_ == nullptr) return;
  if (event_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) event_->pool->give_back(event_);
}

void EventRef::record(Backend &backend, gsc_stream stream) const {
  static std::atomic<uint64_t> last{0};
  event_->recording.store(last.fetch_add(1, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  backend.record_event(event_->handle, stream);
}

EventRef EventPool::take(Backend &backend) {
  {
    const std::lock_guard lock(mutex_);
    if (Event *const event = free_; event != nullptr) {
      free_ = event->next;
      return EventRef(event);
    }
  }
  void *memory = memory_->allocate(sizeof(Event), alignof(Event));
  try {
    auto *const event = new (memory) Event;
    event->handle = backend.make_event();
    event->pool = this;
    return EventRef(event);
  } catch (...) {
    memory_->deallocate(memory, sizeof(Event), alignof(Event));
    throw;
  }
}

void EventPool::give_back(Event *event) noexcept {
  const std::lock_guard lock(mutex_);
  event->next = free_;
  free_ = event;
}

void EventPool::clear(Backend &backend) noexcept {
  while (free_ != nullptr) {
    Event *const event = std::exchange(free_, free_->next);
    backend.destroy_event(event->handle);
    event->~Event();
    memory_->deallocate(event, sizeof(Event), alignof(Event));
  }
}

CallStream::CallStream(Context &context, gsc_stream stream)
    : backend(context.backend()), id(backend.identify(stream)), pool_(context.events()), stream_(stream) {}

CallStream::~CallStream() {
  if (!has_work_ || use_count_ == 0) return;
  try {
    mark();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the stream neither takes an event nor can be waited for
  }
}

void CallStream::add(StreamOrder &order) {
  if (is_done_on_return()) return;
  if (std::find(uses_, uses_ + use_count_, &order) != uses_ + use_count_) return;
  // Before there is work that it has to mark.
  if (!event_ && !id.is_default) event_ = pool_.take(backend);
  assert(use_count_ < kMostUses);
  uses_[use_count_++] = &order;
}

void CallStream::wait(const EventRef &event) {
  const uint64_t recording = event->recording.load(std::memory_order_relaxed);
  if (recording == waited_) return;
  backend.wait_event(event->handle, stream_);
  waited_ = recording;
}

EventRef CallStream::default_event(Context &context) {
  EventPool &pool = context.events();
  const uint64_t calls = pool.default_calls();
  if (default_context_.get() == &context && default_calls_ == calls) return default_;
  EventRef event = pool.take(context.backend());
  event.record(context.backend(), nullptr);
  default_ = std::move(event);
  default_context_ = Ref<Context>::share(&context);
  default_calls_ = calls;
  return default_;
}

void CallStream::mark() {
  if (is_done_on_return() || !has_work_) return;
  if (id.is_default) {
    pool_.count_default_call();
  } else {
    if (!event_) event_ = pool_.take(backend);
    event_.record(backend, stream_);
  }
  has_work_ = false;
  for (int i = 0; i < use_count_; ++i) uses_[i]->set(id, event_);
}

void CallStream::mark(StreamOrder &order) {
  if (is_done_on_return()) return;
  mark();
  order.set(id, event_);
}

StreamOrder::StreamOrder(Context &context) : context_(&context) {}

void StreamOrder::precede(CallStream &call) {
  if (call.is_done_on_return()) return;  // before the lock: every step on the CPU gets here for each list
  EventRef event;
  {
    const std::lock_guard lock(mutex_);
    Last &before = last(call.id);
    if (before.id.stream == 0 || before.id.capture != call.id.capture) return;
    Backend &backend = context_->backend();
    if (&call.backend == &backend && call.id.stream == before.id.stream) return;
    if (!before.event) before.event = call.default_event(*context_);
    event = before.event;
  }
  call.wait(event);
}

void StreamOrder::set(const StreamId &id, const EventRef &event) {
  const std::lock_guard lock(mutex_);
  last(id) = {id, event};
}

void StreamOrder::precede_release() noexcept {
  if (context_ == nullptr || !context_->backend().frees_in_order()) return;
  try {
    CallStream setup(*context_, context_->backend().setup_stream());
    precede(setup);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a device that fails runs nothing more
  }
}

}  // namespace gsc
