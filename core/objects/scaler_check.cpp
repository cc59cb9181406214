// SPDX-License-Identifier: Apache-2.0
// A list enters an iteration and is checked: check, check_range, unscale. A call that fails leaves the list as it was.
// If it has written gradients already, the list is lost: only discard takes it.
#include <limits>

#include "core/base/callback.h"
#include "core/base/error.h"
#include "core/objects/scaler.h"

namespace gsc {

void Scaler::enter(TensorList &grads, CallStream &call, From from) {
  const bool is_given = from == From::kCaller;
  const Argument name = is_given ? Argument("grads") : Argument("optimizer");
  require_usable(grads, name);
  const uint64_t owner = grads.owner();
  if (owner == id_ && grads.iteration.is_lost()) {
    fail(GSC_ERROR_BAD_STATE, name, "%s left half done by a call that failed; discard %s",
         is_given ? "was" : "has gradients that were", is_given ? "it" : "them");
  }
  if (owner != 0 && owner != id_) {
    fail(GSC_ERROR_BAD_STATE, name, "%s in the iteration of another scaler, which has not been updated yet",
         is_given ? "is" : "has gradients that are");
  }
  if (owner == id_ && grads.iteration.is_between_slices()) {
    fail(GSC_ERROR_BAD_STATE, name,
         "%s between the slices of a step; call gsc_scaler_step_slice until nothing is left, or discard %s",
         is_given ? "is" : "has gradients that are", is_given ? "it" : "them");
  }
  // As the parameters, copy or state of an optimizer.
  grads.require_no_slices(name, is_given ? TensorList::Named::kItself : TensorList::Named::kByItsOptimizer);
  if (owner != id_ && enabled() && scale_use_.has_old_gradients()) {
    fail(GSC_ERROR_BAD_STATE, name,
         "%s of before the last update: gsc_scaler_scale has not been called since, and the scale may be another; step "
         "all optimizers of a backward pass before update",
         is_given ? "is" : "has gradients that are");
  }
  precede(grads, call);
  if (owner == id_) return send_options(grads, call);
  // Reserve for the whole iteration and for discard, so that neither can run out of memory in the middle.
  list_records_.reserve(lists_.size() + 1);
  discarded_.reserve(discarded_.size() + lists_.size() + 1);
  lists_.reserve(lists_.size() + 1);
  send_state(grads, call);
  lists_.push_back(Ref<TensorList>::share(&grads));
  grads.iteration.begin(id_);
}

void Scaler::precede(const TensorList &grads, CallStream &call) {
  grads.order().use(call);
  if (!is_of_other_context(grads)) order_.precede(call);
}

ScalerRecord *Scaler::judge_of(const TensorList &grads) const {
  const bool judges = enabled() && (options_.skip_norm > 0.0 || options_.spike_factor > 0.0);
  return judges ? record_on(grads) : nullptr;
}

void Scaler::multiply_by_factor(TensorList &grads, CallStream &call) {
  if (grads.device_factor() == nullptr || grads.iteration.is_unscaled()) return;
  grads.require_device_factor("grads");
  grads.other_context.read.precede(call);
  call.backend.record({.kind = RecordJob::Kind::kMultiply,
                       .list = grads.record(),
                       .inv_scale = &record_on(grads)->state.inv_scale,
                       .factor = grads.device_factor()},
                      call.stream());
}

const float *Scaler::multiplier_of(const TensorList &grads) const {
  const bool has_factor = grads.device_factor() != nullptr && !grads.iteration.is_unscaled();
  return has_factor ? &grads.record()->multiplier : &record_on(grads)->state.inv_scale;
}

CheckJob Scaler::check_job(TensorList &grads) const {
  CheckJob job{};
  job.plan = &grads.plan();
  job.record = grads.record();
  job.inv_scale = multiplier_of(grads);
  job.conclude = reducer_.all_reduce == nullptr;
  job.rule = grads.iteration.rule();
  job.scaler = judge_of(grads);
  job.tensor_norms = grads.device_norms();
  return job;
}

void Scaler::run_check(TensorList &grads, int64_t first, int64_t last, bool unscale, CallStream &call) {
  Plan &plan = grads.plan();
  Iteration &it = grads.iteration;
  const double fp64_limit = plan.fp64_limit();
  CheckJob job = check_job(grads);
  job.first_chunk = plan.first_chunk(first);
  job.last_chunk = plan.first_chunk(last);
  job.unscale = unscale;
  job.begin = it.tensors_checked() == 0;
  job.finish = it.tensors_checked() + (last - first) == plan.size();
  if (job.begin) multiply_by_factor(grads, call);
  grads.other_context.read.precede(call);
  bool is_written = false;
  job.half_done = &is_written;
  const auto was_run = [&] {
    it.ranges_were_checked(first, last, fp64_limit, !job.finish);
    if (unscale) it.was_unscaled();
  };
  try {
    call.backend.check(job, call.stream());
  } catch (const Error &e) {
    if (!is_written || !unscale) throw;
    was_run();
    lose_unscaled(grads, e);
  }
  was_run();
  if (job.finish) {
    conclude_check(grads, call);
  } else {
    leave(grads, call);
  }
}

void Scaler::lose_unscaled(TensorList &grads, const Error &e) {
  grads.iteration.set_lost(true);
  grads.checked_by = 0;
  fail(e.details().status, kNoArgument, "%s; grads is unscaled: discard it", e.what());
}

void Scaler::conclude_check(TensorList &grads, CallStream &call) {
  Iteration &it = grads.iteration;
  const bool is_written = it.is_unscaled() && enabled();
  Complaint complaint;
  try {
    if (reducer_.all_reduce != nullptr) complaint = join_ranks(grads, is_written, call.stream());
    it.check_ended();
    grads.checked_by = id_;
    leave(grads, call);
  } catch (const Error &e) {
    if (!is_written) {
      forget_check(grads);
      throw;
    }
    lose_unscaled(grads, e);
  }
  if (complaint.status == GSC_OK) return;
  fail(complaint.status, Argument("reducer").field("all_reduce"), "%s; grads is unscaled and will be skipped",
       complaint.text);
}

Scaler::Complaint Scaler::join_ranks(TensorList &grads, bool is_written, gsc_stream stream) {
  Backend &backend = grads.context()->backend();
  ListRecord *list = grads.record();
  int32_t returned = 0;
  const CallbackEnd end = call_back([&] { returned = reducer_.all_reduce(reducer_.user, list->reduce, 2, stream); });
  Complaint complaint;
  if (end == CallbackEnd::kOutOfMemory) {
    complaint = {GSC_ERROR_OUT_OF_MEMORY, "threw std::bad_alloc"};
  } else if (end == CallbackEnd::kThrew) {
    complaint = {GSC_ERROR_CALLBACK, "threw an exception"};
  } else if (returned != 0) {
    complaint = {GSC_ERROR_CALLBACK, "failed"};
  } else if (backend.host_visible() && !are_joined_sums(list->reduce)) {
    complaint = {GSC_ERROR_CALLBACK, "left numbers that cannot be a count and a sum of squares"};
  }
  if (complaint.status != GSC_OK) {
    if (!is_written) fail(complaint.status, Argument("reducer").field("all_reduce"), "%s", complaint.text);
    // The other ranks' results are unknown: this one must not step.
    const double overflow[2] = {1.0, std::numeric_limits<double>::infinity()};
    backend.write(list->reduce, overflow, sizeof overflow, stream);
  }
  backend.record(
      {.kind = RecordJob::Kind::kConclude, .list = list, .rule = grads.iteration.rule(), .scaler = judge_of(grads)},
      stream);
  return complaint;
}

void Scaler::forget_check(TensorList &grads) {
  Iteration &it = grads.iteration;
  grads.checked_by = 0;  // the record is half of this check
  grads.cancel_slices();
  it.forget_check();
  if (!it.is_unscaled() && !it.has_norm() && !it.has_value()) discard(grads);
}

void Scaler::check_whole(TensorList &grads, bool unscale, CallStream &call) {
  const int64_t size = grads.plan().size();
  Iteration &it = grads.iteration;
  if (unscale) it.forget_ranges();
  if (it.tensors_checked() == 0) {
    run_check(grads, 0, size, unscale, call);
    return;
  }
  // Some ranges have been checked: check those between them.
  for (int64_t first = 0; first < size;) {
    if (it.is_checked(first)) {
      ++first;
      continue;
    }
    int64_t last = first;
    while (last < size && !it.is_checked(last)) ++last;
    run_check(grads, first, last, false, call);
    first = last;
  }
}

void Scaler::unscale(TensorList &grads, gsc_stream stream) {
  CallStream call(*grads.context(), stream);
  enter(grads, call);
  Iteration &it = grads.iteration;
  if (!enabled()) {
    if (grads.device_factor() != nullptr && !it.is_unscaled()) {
      grads.require_device_factor("grads");
      Plan &plan = grads.plan();
      call.backend.elementwise({Elementwise::kScale, &plan, &plan, 0.0, 0.0, grads.device_factor()}, call.stream());
      leave(grads, call);
    }
    it.was_unscaled();
    return;
  }
  if (it.stage() == Stage::kUnscaled) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been unscaled since the last update");
  }
  if (it.stage() == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been stepped; call unscale before step, or after update");
  }
  check_whole(grads, true, call);
}

void Scaler::check(TensorList &grads, gsc_stream stream) {
  if (!enabled()) {
    grads.require_no_slices("grads");
    return require_usable(grads);
  }
  CallStream call(*grads.context(), stream);
  enter(grads, call);
  if (grads.iteration.stage() != Stage::kReady) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been checked, unscaled or stepped since the last update");
  }
  check_whole(grads, false, call);
}

void Scaler::check_range(TensorList &grads, int64_t first, int64_t count, gsc_stream stream) {
  const int64_t size = grads.plan().size();
  if (first < 0 || count < 0 || first > size || count > size - first) {
    refuse("first", "is %lld and count is %lld, but grads has %lld tensors", static_cast<long long>(first),
           static_cast<long long>(count), static_cast<long long>(size));
  }
  if (!enabled()) {
    grads.require_no_slices("grads");
    return require_usable(grads);
  }
  CallStream call(*grads.context(), stream);
  enter(grads, call);
  if (grads.iteration.stage() != Stage::kReady) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been checked, unscaled or stepped since the last update");
  }
  for (int64_t i = first; i < first + count; ++i) {
    if (!grads.iteration.is_checked(i)) continue;
    fail(GSC_ERROR_BAD_STATE, Argument("grads").tensor(i), "has already been checked since the last update%s",
         NameSuffix(&grads.names(), i).c_str());
  }
  if (count == 0 && size > 0) return;
  run_check(grads, first, first + count, false, call);
}

void Scaler::complete(TensorList &grads, CallStream &call) {
  Iteration &it = grads.iteration;
  if (it.stage() == Stage::kReady) check_whole(grads, false, call);
  if (!it.is_concluded()) {
    call.backend.record({.kind = RecordJob::Kind::kClip, .list = grads.record(), .rule = it.rule()}, call.stream());
  }
  it.conclude();
}

void Scaler::require_no_slices() const {
  for (const Ref<TensorList> &list : lists_) {
    if (!list->iteration.is_between_slices()) continue;
    fail(GSC_ERROR_BAD_STATE, kNoArgument,
         "an optimizer is between the slices of a step; call gsc_scaler_step_slice until nothing is left, or discard "
         "its gradients");
  }
}

void Scaler::require_whole_checks(const TensorList *except) const {
  require_no_slices();
  for (const Ref<TensorList> &list : lists_) {
    const Iteration &it = list->iteration;
    if (it.is_lost()) {
      fail(GSC_ERROR_BAD_STATE, kNoArgument, "a list was left half done by a call that failed; discard it");
    }
    if (list.get() == except || !it.is_checked_in_part()) continue;
    fail(GSC_ERROR_BAD_STATE, kNoArgument,
         "check_range has checked %lld of %lld tensors of a list; check the rest or discard the list",
         static_cast<long long>(it.tensors_checked()), static_cast<long long>(list->plan().size()));
  }
}

}  // namespace gsc
