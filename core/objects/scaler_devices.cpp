// SPDX-License-Identifier: Apache-2.0
// Lists of other devices under one scaler. Such a list works with a copy of the scaler's state on its own device, which
// it fetches when it enters an iteration; update brings its record over to the scaler's device. Both copies are
// enqueued, and ordered by events: nothing waits on the host, and nothing is allocated after a list's first iteration.
#include <algorithm>

#include "core/base/error.h"
#include "core/objects/scaler.h"

namespace gsc {

void Scaler::require_kind(const TensorList &grads, const Argument &name) const {
  if (grads.context()->device_type() != context_->device_type()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, name,
         "is on a %s device and scaler is on a %s device; lists of several devices under one scaler must be of the "
         "same kind",
         grads.context()->device_name(), context_->device_name());
  }
}

void Scaler::send_state(TensorList &grads, gsc_stream stream) {
  Away &away = grads.away;
  if (!is_away(grads)) {
    away.scaler = id_;  // a state that an earlier scaler sent is no longer that of the list's iteration
    return;
  }
  Backend &there = grads.context()->backend();
  if (away.home.get() != context_.get()) {
    Away made;
    made.home = context_;
    made.state = DeviceMemory(there, sizeof(PolicyState));
    made.landing = DeviceMemory(context_->backend(), sizeof(ListRecord));
    made.used = DeviceEvent(there);
    made.read = DeviceEvent(context_->backend());
    const std::lock_guard lock(grads.away_mutex);
    std::swap(away, made);  // what goes waits for its device, outside the lock
  }
  changed_.hold_back(there, stream);
  there.copy_from(away.state.as<PolicyState>(), context_->backend(), &record()->state, sizeof(PolicyState), stream);
  const std::lock_guard lock(grads.away_mutex);
  away.used.record(stream);
  away.scaler = id_;  // whose state it is now
}

void Scaler::leave(TensorList &grads, gsc_stream stream) const {
  if (!is_away(grads)) return;
  grads.iteration.lost = true;  // an update that does not wait for the work would read half of it
  const std::lock_guard lock(grads.away_mutex);
  grads.away.used.record(stream);
  grads.iteration.lost = false;
}

const PolicyState *Scaler::state_on(const TensorList &grads) const {
  return is_away(grads) ? grads.away.state.as<PolicyState>() : &record()->state;
}

const ListRecord *Scaler::record_here(const TensorList &grads, gsc_stream stream) const {
  if (!is_away(grads)) return grads.record();
  Backend &here = context_->backend();
  auto *landing = grads.away.landing.as<ListRecord>();
  grads.away.used.hold_back(here, stream);
  here.copy_from(landing, grads.context()->backend(), grads.record(), sizeof(ListRecord), stream);
  return landing;
}

void Scaler::release_record(const TensorList &grads, gsc_stream stream) const {
  if (is_away(grads)) grads.away.read.record(stream);
}

void Scaler::wait_for_readers(const TensorList &grads, gsc_stream stream) {
  if (grads.away.home) grads.away.read.hold_back(grads.context()->backend(), stream);
}

void Scaler::remember_stray(TensorList &grads) {
  const auto same = [&](const Ref<TensorList> &stray) { return stray.get() == &grads; };
  if (!is_away(grads) || std::any_of(strays_.begin(), strays_.end(), same)) return;
  strays_.push_back(Ref<TensorList>::share(&grads));
}

void Scaler::wait_for_lists(gsc_stream stream) {
  for (const auto *lists : {&lists_, &strays_}) {
    for (const Ref<TensorList> &list : *lists) {
      if (!is_away(*list)) continue;
      const std::lock_guard lock(list->away_mutex);
      list->away.used.hold_back(context_->backend(), stream);
    }
  }
  strays_.clear();
}

void Scaler::finish_lists() noexcept {
  const auto has_away = [&](const auto &lists) {
    return std::any_of(lists.begin(), lists.end(), [&](const auto &list) { return is_away(*list); });
  };
  if (!has_away(lists_) && !has_away(strays_)) return;
  Backend &here = context_->backend();
  try {
    wait_for_lists(here.setup_stream());
    here.finish_setup();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a device that fails runs nothing any more
  }
}

}  // namespace gsc
