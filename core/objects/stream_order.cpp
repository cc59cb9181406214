// SPDX-License-Identifier: Apache-2.0
#include "core/objects/stream_order.h"

namespace gsc {

StreamOrder::~StreamOrder() {
  for (const Last &last : {outside_, captured_}) {
    if (last.event != nullptr) backend_->destroy_event(last.event);
  }
}

void StreamOrder::record(Last &last, gsc_stream stream) {
  if (last.event == nullptr) last.event = backend_->make_event();
  backend_->record_event(last.event, stream);
  last.recorded = true;
}

void StreamOrder::precede(const CallStream &call) {
  if (call.is_done_on_return()) return;
  Last &before = last(call.id);
  if (before.id.stream == 0 || before.id.capture != call.id.capture) return;
  if (&call.backend == backend_ && call.id.stream == before.id.stream) return;
  if (!before.recorded) record(before, nullptr);
  call.backend.wait_event(before.event, call.stream);
}

void StreamOrder::mark(const CallStream &call) {
  if (call.is_done_on_return()) return;
  Last &now = last(call.id);
  if (call.id.is_default) {
    now.recorded = false;
  } else {
    record(now, call.stream);
  }
  now.id = call.id;
}

}  // namespace gsc
