// SPDX-License-Identifier: Apache-2.0
// Lists of other streams and devices under one scaler. Events order their work and the scaler's; the host does not
// wait. A list of another device fetches a copy of the scaler's record when it enters an iteration, and update copies
// its record to the scaler's device. Nothing is allocated after a list's first iteration.
#include <algorithm>

#include "core/base/error.h"
#include "core/objects/scaler.h"

namespace gsc {

void Scaler::require_usable(const TensorList &grads, const Argument &name) const {
  grads.require_elements(name);
  if (grads.context()->device_type() != context_->device_type()) {
    refuse(name,
           "is on a %s device and scaler is on a %s device; lists of several devices under one scaler must be of the "
           "same kind",
           grads.context()->device_name(), context_->device_name());
  }
}

void Scaler::send_state(TensorList &grads, CallStream &call) {
  OtherContext &other = grads.other_context;
  if (!is_of_other_context(grads)) {
    other.scaler = id_;  // a copy of an earlier scaler's state no longer counts
    return;
  }
  Backend &there = grads.context()->backend();
  if (other.home.get() != context_.get()) {
    OtherContext made;
    made.home = context_;
    made.scaler_copy = DeviceMemory(there, sizeof(ScalerRecord));
    made.record_copy = DeviceMemory(context_->backend(), sizeof(ListRecord));
    made.read = StreamOrder(*context_);
    other.read.precede(call);  // of the scaler that had the list before
    grads.order().precede_release();
    other = std::move(made);
  }
  order_.precede(call);
  there.copy_from(other.scaler_copy.as<ScalerRecord>(), context_->backend(), record(), sizeof(ScalerRecord),
                  call.stream());
  call.mark();
  other.scaler = id_;  // the copy is of this scaler
  other.options = options_set_;
}

void Scaler::send_options(TensorList &grads, CallStream &call) {
  if (is_of_other_context(grads) && grads.other_context.options != options_set_) send_state(grads, call);
}

void Scaler::leave(TensorList &grads, CallStream &call) {
  grads.iteration.set_lost(true);  // if mark fails, an update would not wait for the work
  call.mark();
  grads.iteration.set_lost(false);
}

ScalerRecord *Scaler::record_on(const TensorList &grads) const {
  return is_of_other_context(grads) ? grads.other_context.scaler_copy.as<ScalerRecord>() : record();
}

const ListRecord *Scaler::record_here(const TensorList &grads, CallStream &call) const {
  grads.order().precede(call);
  if (!is_of_other_context(grads)) return grads.record();
  Backend &here = context_->backend();
  auto *record_copy = grads.other_context.record_copy.as<ListRecord>();
  here.copy_from(record_copy, grads.context()->backend(), grads.record(), sizeof(ListRecord), call.stream());
  return record_copy;
}

StreamOrder &Scaler::order_of_record(const TensorList &grads) const {
  return is_of_other_context(grads) ? grads.other_context.read : grads.order();
}

void Scaler::remember_discarded(TensorList &grads) {
  const auto same = [&](const Ref<TensorList> &known) { return known.get() == &grads; };
  if (context_->backend().host_visible() || std::any_of(discarded_.begin(), discarded_.end(), same)) return;
  discarded_.push_back(Ref<TensorList>::share(&grads));
}

void Scaler::wait_for_lists(CallStream &call) {
  order_.use(call);
  for (const auto *lists : {&lists_, &discarded_}) {
    for (const Ref<TensorList> &list : *lists) list->order().precede(call);
  }
  discarded_.clear();
}

void Scaler::finish_lists() noexcept {
  const auto has_other_context = [&](const auto &lists) {
    return std::any_of(lists.begin(), lists.end(), [&](const auto &list) { return is_of_other_context(*list); });
  };
  Backend &here = context_->backend();
  const bool waits = has_other_context(lists_) || has_other_context(discarded_);
  if (!waits && !here.frees_in_order()) return;
  try {
    CallStream setup(*context_, here.setup_stream());
    wait_for_lists(setup);
    if (waits) here.finish_setup();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a device that fails runs nothing more
  }
}

}  // namespace gsc
