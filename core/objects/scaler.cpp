// SPDX-License-Identifier: Apache-2.0
// One iteration: clip, step, update. scaler_check.cpp has its checks.
#include "core/objects/scaler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/objects/operations.h"
#include "core/objects/scaler_options.h"
#include "core/rules/report.h"

namespace gsc {
namespace {

// Lists of an iteration before its vectors grow: programs have few optimizers.
constexpr std::size_t kUsualLists = 16;

}  // namespace

uint64_t Scaler::new_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Ref<Scaler> Scaler::create(const Ref<Context> &context, const gsc_scaler_options &options) {
  validate(options);
  validate_first_scale(options);
  Ref<Scaler> made = context->make<Scaler>(context, options);
  PolicyState state{};
  store_scale(state, made->enabled() ? options.init_scale : 1.0F);
  made->log_underflow(state, Cause::kCaller);
  return made;
}

Scaler::Scaler(Ref<Context> context, const gsc_scaler_options &options)
    : Object(kTag),
      context_(std::move(context)),
      options_(options),
      id_(new_id()),
      record_(context_->backend(), sizeof(ScalerRecord)),
      history_(context_->backend(), options.history_capacity * int64_t{sizeof(HistoryEntry)}),
      lists_(context_->memory()),
      discarded_(context_->memory()),
      list_records_(context_->memory()),
      order_(*context_) {
  lists_.reserve(kUsualLists);
  discarded_.reserve(kUsualLists);
  list_records_.reserve(kUsualLists);
  ScalerRecord r = new_record(options_);
  store_scale(r.state, enabled() ? options.init_scale : 1.0F);
  r.state.hysteresis_left = options.hysteresis;
  Backend &backend = context_->backend();
  backend.write(record(), &r, sizeof r, backend.setup_stream());
  backend.finish_setup();
}

ScalerRecord Scaler::new_record(const gsc_scaler_options &options) const {
  ScalerRecord r{};
  r.policy = make_policy(options);
  r.last = empty_summary();
  r.history = history_.as<HistoryEntry>();
  r.history_capacity = options.history_capacity;
  return r;
}

Scaler::~Scaler() {
  finish_lists();
  for (const Ref<TensorList> &list : lists_) {
    list->cancel_slices();
    list->abandon(id_);
  }
}

void Scaler::scale(const gsc_tensor *src, const gsc_tensor *dst, int64_t count, gsc_stream stream) {
  // A disabled scaler's scale is 1, which makes this a copy.
  CallStream call(*context_, stream);
  order_.use(call);
  ops::scale(*context_, src, dst, count, &record()->state.scale, call.stream());
  call.mark();
  scale_use_.scaled(call.id.is_recorded || call.id.capture != 0);
}

void Scaler::apply_norm(TensorList &grads, CallStream &call) {
  Plan &plan = grads.plan();
  call.backend.elementwise({Elementwise::kScale, &plan, &plan, 0.0, 0.0, &grads.record()->clip}, call.stream());
  grads.iteration.norm_was_applied();
}

void Scaler::clip_grad_norm(TensorList &grads, double max_norm, int32_t norm_type, gsc_stream stream) {
  if (!std::isfinite(max_norm) || max_norm < 0.0) {
    refuse_value("max_norm", max_norm, "finite and >= 0");
  }
  if (norm_type != GSC_NORM_L2 && norm_type != GSC_NORM_INF) {
    refuse_value("norm_type", norm_type, "GSC_NORM_L2 or GSC_NORM_INF");
  }
  if (norm_type == GSC_NORM_INF && reducer_.all_reduce != nullptr) {
    fail(GSC_ERROR_UNSUPPORTED, "norm_type", "is GSC_NORM_INF, but a reducer combines L2 norms only");
  }
  CallStream call(*grads.context(), stream);
  enter(grads, call);
  Iteration &it = grads.iteration;
  if (it.stage() == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been stepped; call clip_grad_norm before step");
  }
  if (it.has_norm()) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been clipped by clip_grad_norm since the last update");
  }
  if (it.has_value()) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been clipped by clip_grad_value; call clip_grad_norm first");
  }
  const auto before = it.save();
  it.ask_norm(max_norm, norm_type == GSC_NORM_INF);
  if (!it.is_unscaled()) return;
  try {
    if (!enabled()) run_check(grads, 0, grads.plan().size(), false, call);
    complete(grads, call);
    apply_norm(grads, call);
  } catch (...) {
    it.restore(before);
    throw;
  }
  leave(grads, call);
}

void Scaler::clip_grad_value(TensorList &grads, double clip_value, gsc_stream stream) {
  if (std::isnan(clip_value) || clip_value < 0.0) {
    refuse_value("clip_value", clip_value, ">= 0");
  }
  CallStream call(*grads.context(), stream);
  enter(grads, call);
  Iteration &it = grads.iteration;
  if (it.stage() == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been stepped; call clip_grad_value before step");
  }
  const double value = std::min(it.rule().value, clip_value);
  if (it.is_unscaled() && std::isfinite(value)) {
    if (it.is_norm_pending()) {  // asked for before unscale
      complete(grads, call);
      apply_norm(grads, call);
    }
    Plan &plan = grads.plan();
    call.backend.elementwise({Elementwise::kClamp, &plan, &plan, value, 0.0, nullptr}, call.stream());
    it.value_was_applied();
  }
  it.ask_value(value);
  if (it.is_value_applied()) leave(grads, call);
}

void Scaler::begin_step(Optimizer &optimizer, CallStream &call) {
  if (!optimizer.is_between_slices()) optimizer.require_free_lists();
  optimizer.prepare_step();  // before the check, which a step that fails must not leave behind
  TensorList &grads = optimizer.grads();
  enter(grads, call, From::kOptimizer);
  if (grads.iteration.stage() == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "optimizer", "has gradients that have already been stepped since the last update");
  }
  const Iteration &it = grads.iteration;
  if (enabled() && it.was_read() && it.fp64_limit() > grads.plan().fp64_limit()) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "converts fp64 gradients to fp32, but was created after %s, which looked for what overflows fp64; %s",
         it.is_unscaled() ? "they were unscaled" : "their check",
         it.is_unscaled() ? "discard the list, and compute them again" : "discard the list and check it again");
  }
}

StepScalars Scaler::step_scalars(const TensorList &grads) const {
  const Iteration &it = grads.iteration;
  const ListRecord *list = grads.record();
  StepScalars step;
  step.found_inf = &list->found_inf;
  if (!it.is_unscaled()) step.inv_scale = multiplier_of(grads);
  if (it.is_norm_pending()) step.clip = &list->clip;
  if (it.is_value_pending()) step.clip_value = it.rule().value;
  return step;
}

void Scaler::step(Optimizer &optimizer, gsc_stream stream) {
  TensorList &grads = optimizer.grads();
  CallStream call(*grads.context(), stream);
  if (optimizer.is_between_slices() && grads.owner() == id_) {
    SliceLock lock(slicing_);
    lock.lock();
    return run_slices(optimizer, std::numeric_limits<int64_t>::max(), call, lock);
  }
  begin_step(optimizer, call);
  step_begun(optimizer, call);
}

void Scaler::step_begun(Optimizer &optimizer, CallStream &call) {
  if (!enabled()) {
    step_disabled(optimizer, call);
    return;
  }
  TensorList &grads = optimizer.grads();
  complete(grads, call);
  optimizer.step(step_scalars(grads), call);
  grads.iteration.was_stepped(!optimizer.writes_grads());
  leave(grads, call);
}

void Scaler::step_and_update(Optimizer &optimizer, gsc_stream stream) {
  if (is_of_other_context(optimizer.grads())) {
    refuse("optimizer",
           "is on another context than scaler; call step with a stream of its device, then update with a stream of the "
           "scaler's");
  }
  require_whole_checks(&optimizer.grads());  // else update would fail after the step
  CallStream call(*context_, stream);
  begin_step(optimizer, call);
  if (!enabled() || lists_.size() > 1) {
    step_begun(optimizer, call);
    update(stream);
    return;
  }
  // The only list of the iteration: the step's job includes the update.
  TensorList &grads = optimizer.grads();
  complete(grads, call);
  StepScalars scalars = step_scalars(grads);
  scalars.update = record();
  wait_for_lists(call);
  optimizer.step(scalars, call);
  grads.iteration.was_stepped(false);  // in case the rest fails
  leave(grads, call);
  finish_update(call);
}

StepScalars Scaler::disabled_scalars(TensorList &grads, CallStream &call) {
  const Iteration &it = grads.iteration;
  StepScalars scalars;
  if (grads.device_factor() != nullptr && !it.is_unscaled()) {
    if (!it.is_norm_pending()) multiply_by_factor(grads, call);  // else its check did
    scalars.inv_scale = multiplier_of(grads);
  }
  if (it.is_norm_pending()) scalars.clip = &grads.record()->clip;
  if (it.is_value_pending()) scalars.clip_value = it.rule().value;
  return scalars;
}

/// Checks nothing. Only a pending clip needs the norm, at scale 1.
void Scaler::step_disabled(Optimizer &optimizer, CallStream &call) {
  TensorList &grads = optimizer.grads();
  if (grads.iteration.is_norm_pending()) complete(grads, call);
  optimizer.step(disabled_scalars(grads, call), call);
  leave(grads, call);
  discard(grads);
}

bool Scaler::should_step_sync(TensorList &grads, gsc_stream stream) {
  CallStream call(*grads.context(), stream);
  enter(grads, call);
  Iteration &it = grads.iteration;
  if (it.stage() == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been stepped since the last update");
  }
  if (it.is_value_pending() && (enabled() || (grads.device_factor() != nullptr && !it.is_unscaled()))) {
    fail(GSC_ERROR_BAD_STATE, "grads",
         "has a clip_grad_value that is pending until step; call unscale before clip_grad_value");
  }
  if (enabled() || it.has_norm()) complete(grads, call);
  if (it.is_norm_pending()) {
    apply_norm(grads, call);
    leave(grads, call);
  }
  if (!enabled()) {
    if (it.is_value_pending()) {
      Plan &plan = grads.plan();
      call.backend.elementwise({Elementwise::kClamp, &plan, &plan, it.rule().value, 0.0, nullptr}, call.stream());
      leave(grads, call);
    }
    discard(grads);
    return true;
  }
  float found_inf = 0.0F;
  call.backend.read_sync(&found_inf, &grads.record()->found_inf, sizeof found_inf, call.stream());
  it.was_stepped(false);
  return found_inf == 0.0F;
}

void Scaler::update(gsc_stream stream) {
  require_whole_checks(nullptr);
  CallStream call(*context_, stream);
  if (!enabled()) {
    discard_all();
    wait_for_lists(call);  // and releases them
    return;
  }
  const auto was_checked = [](const auto &list) { return list->iteration.stage() != Stage::kReady; };
  if (std::none_of(lists_.begin(), lists_.end(), was_checked)) {
    fail(GSC_ERROR_BAD_STATE, kNoArgument, "no list was checked, unscaled or stepped since the last update");
  }
  list_records_.clear();
  for (const Ref<TensorList> &list : lists_) {
    if (was_checked(list)) list_records_.push_back(record_here(*list, call));
  }
  wait_for_lists(call);
  context_->backend().record({.kind = RecordJob::Kind::kUpdate,
                              .scaler = record(),
                              .lists = list_records_.data(),
                              .list_count = static_cast<int64_t>(list_records_.size())},
                             call.stream());
  for (const Ref<TensorList> &list : lists_) call.mark(order_of_record(*list));
  finish_update(call);
}

void Scaler::finish_update(CallStream &call) {
  call.mark();
  scale_use_.updated();
  Backend &backend = context_->backend();
  const bool is_lost = backend.host_visible() && has_underflowed(record()->state);
  const Offender offender = is_lost ? first_offender() : Offender();
  reset_lists();
  if (backend.host_visible()) log_underflow(record()->state, Cause::kUpdate, offender);
  if ((options_.floor_action != GSC_FLOOR_CLAMP || options_.spike_action != GSC_SPIKE_STEP) && backend.host_visible()) {
    gsc_report report;
    backend.record({.kind = RecordJob::Kind::kReport, .scaler = record(), .out = &report, .out_size = sizeof report},
                   call.stream());
    log_report(report);
  }
}

void Scaler::discard(TensorList &grads) {
  require_usable(grads);
  if (grads.iteration.scaler() != id_) return;
  remember_discarded(grads);
  grads.end_iteration();
  const auto it = std::find_if(lists_.begin(), lists_.end(), [&](const auto &list) { return list.get() == &grads; });
  lists_.erase(it);
}

void Scaler::discard_all() {
  for (const Ref<TensorList> &list : lists_) remember_discarded(*list);
  reset_lists();
}

void Scaler::reset_lists() {
  for (const Ref<TensorList> &list : lists_) list->end_iteration();
  lists_.clear();
}

void Scaler::set_scale(float scale, gsc_stream stream) {
  if (!std::isfinite(scale) || scale <= 0.0F) {
    refuse_value("scale", scale, "finite and > 0");
  }
  if (!enabled()) return;
  CallStream call(*context_, stream);
  wait_for_lists(call);
  context_->backend().record({.kind = RecordJob::Kind::kSetScale, .scaler = record(), .scale = scale}, call.stream());
  call.mark();
  scale_use_.told();
  reset_lists();
  PolicyState state{};
  store_scale(state, scale);
  log_underflow(state, Cause::kCaller);
}

void Scaler::set_reducer(const gsc_reducer *reducer) {
  require_no_slices();
  if (!lists_.empty()) {
    fail(GSC_ERROR_BAD_STATE, kNoArgument, "a list has been used since the last update; call update or discard first");
  }
  reducer_ = reducer != nullptr ? *reducer : gsc_reducer{};
}

}  // namespace gsc
