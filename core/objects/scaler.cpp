// SPDX-License-Identifier: Apache-2.0
// One iteration: check, unscale, clip, step, update.
#include "core/objects/scaler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/objects/operations.h"
#include "core/objects/scaler_options.h"

namespace gsc {
namespace {

// Lists that an iteration can hold before its vectors grow: optimizers are few.
constexpr std::size_t kUsualLists = 16;

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Ref<Scaler> Scaler::create(const Ref<Context> &context, const gsc_scaler_options &options) {
  validate(options);
  validate_first_scale(options);
  return context->make<Scaler>(context, options);
}

Scaler::Scaler(Ref<Context> context, const gsc_scaler_options &options)
    : Object(kTag),
      context_(std::move(context)),
      options_(options),
      id_(next_id()),
      record_(context_->backend(), sizeof(ScalerRecord)),
      history_(context_->backend(), options.history_capacity * static_cast<int64_t>(sizeof(HistoryEntry))),
      lists_(context_->memory()),
      strays_(context_->memory()),
      list_records_(context_->memory()),
      changed_(context_->backend()) {
  lists_.reserve(kUsualLists);
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
  // Giving back what a list has away waits for its device, which may still be reading this scaler's state.
  for (const Ref<TensorList> &list : lists_) list->away = Away{};
  reset_lists();
}

void Scaler::enter(TensorList &grads, gsc_stream stream) {
  require_kind(grads);
  Iteration &it = grads.iteration;
  if (it.scaler == id_) return;
  if (it.scaler != 0) {
    fail(GSC_ERROR_BAD_STATE, "grads", "is in the iteration of another scaler, which has not been updated yet");
  }
  list_records_.reserve(lists_.size() + 1);
  lists_.reserve(lists_.size() + 1);
  send_state(grads, stream);
  lists_.push_back(Ref<TensorList>::share(&grads));
  it.scaler = id_;
}

void Scaler::scale(const gsc_tensor *src, const gsc_tensor *dst, int64_t count, gsc_stream stream) {
  // A disabled scaler's scale is 1, which makes this a copy.
  ops::scale(*context_, src, dst, count, &record()->state.scale, stream);
}

void Scaler::run_check(TensorList &grads, int64_t first, int64_t last, bool unscale, gsc_stream stream) {
  Plan &plan = grads.plan();
  Iteration &it = grads.iteration;
  CheckJob job{};
  job.plan = &plan;
  job.record = grads.record();
  job.inv_scale = &state_on(grads)->inv_scale;
  job.first_chunk = plan.first_chunk(first);
  job.last_chunk = plan.first_chunk(last);
  job.unscale = unscale;
  job.begin = it.covered == 0;
  job.finish = it.covered + (last - first) == plan.size();
  job.conclude = reducer_.all_reduce == nullptr;
  job.rule = it.rule;
  grads.context()->backend().check(job, stream);
  it.covered += last - first;
  if (job.finish) finish_check(grads, stream);
}

void Scaler::finish_check(TensorList &grads, gsc_stream stream) {
  Backend &backend = grads.context()->backend();
  Iteration &it = grads.iteration;
  ListRecord *list = grads.record();
  bool joined = true;
  const char *complaint = "failed";
  if (reducer_.all_reduce != nullptr) {
    joined = reducer_.all_reduce(reducer_.user, list->reduce, 2, stream) == 0;
    if (joined && backend.host_visible() && !are_joined_sums(list->reduce)) {
      joined = false;
      complaint = "left numbers that cannot be a count and a sum of squares";
    }
    if (!joined && !(it.unscaled && enabled())) {
      forget_check(grads);
      fail(GSC_ERROR_CALLBACK, Argument("reducer").field("all_reduce"), "%s", complaint);
    }
    if (!joined) {
      // The gradients have been written. Whatever the other ranks saw, this one must not step.
      const double overflow[2] = {1.0, 0.0};
      backend.write(list->reduce, overflow, sizeof overflow, stream);
    }
    backend.record(RecordJob::conclude(list, it.rule), stream);
  }
  it.concluded = true;
  it.stage = it.unscaled ? Stage::kUnscaled : Stage::kChecked;
  grads.checked_by = id_;
  leave(grads, stream);
  if (!joined)
    fail(GSC_ERROR_CALLBACK, Argument("reducer").field("all_reduce"), "%s; grads is unscaled and will be skipped",
         complaint);
}

/// A check came to nothing. What is left of the iteration is a clip that is waiting, if there is one.
void Scaler::forget_check(TensorList &grads) {
  grads.checked_by = 0;  // the record is half of this check
  Iteration &it = grads.iteration;
  it.covered = 0;
  std::fill(grads.covered.begin(), grads.covered.end(), uint8_t{0});
  if (!it.unscaled && it.rule.max_norm < 0.0 && !std::isfinite(it.rule.value)) discard(grads);
}

void Scaler::check_whole(TensorList &grads, bool unscale, gsc_stream stream) {
  Iteration &it = grads.iteration;
  const int64_t size = grads.plan().size();
  if (it.covered == 0 || unscale) {
    it.covered = 0;
    it.unscaled = unscale;
    run_check(grads, 0, size, unscale, stream);
    return;
  }
  // Ranges have been checked already: look at the runs between them.
  for (int64_t first = 0; first < size;) {
    if (grads.covered[static_cast<std::size_t>(first)] != 0) {
      ++first;
      continue;
    }
    int64_t last = first;
    while (last < size && grads.covered[static_cast<std::size_t>(last)] == 0) ++last;
    run_check(grads, first, last, false, stream);
    first = last;
  }
}

void Scaler::unscale(TensorList &grads, gsc_stream stream) {
  enter(grads, stream);
  Iteration &it = grads.iteration;
  if (!enabled()) {
    it.unscaled = true;
    return;
  }
  if (it.stage == Stage::kUnscaled) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been unscaled since the last update");
  }
  if (it.stage == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been stepped; call unscale before step, or after update");
  }
  check_whole(grads, true, stream);
}

void Scaler::check(TensorList &grads, gsc_stream stream) {
  enter(grads, stream);
  if (!enabled()) return;
  if (grads.iteration.stage != Stage::kReady) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been checked, unscaled or stepped since the last update");
  }
  check_whole(grads, false, stream);
}

void Scaler::check_range(TensorList &grads, int64_t first, int64_t count, gsc_stream stream) {
  const int64_t size = grads.plan().size();
  if (first < 0 || count < 0 || first > size || count > size - first) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "first", "is %lld and count is %lld, but grads has %lld tensors",
         static_cast<long long>(first), static_cast<long long>(count), static_cast<long long>(size));
  }
  enter(grads, stream);
  if (!enabled()) return;
  if (grads.iteration.stage != Stage::kReady) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been checked, unscaled or stepped since the last update");
  }
  const auto begin = grads.covered.begin() + first;
  const auto seen = std::find(begin, begin + count, uint8_t{1});
  if (seen != begin + count) {
    fail(GSC_ERROR_BAD_STATE, Argument("grads").tensor(seen - grads.covered.begin()),
         "has already been checked since the last update%s",
         NameSuffix(&grads.names(), seen - grads.covered.begin()).c_str());
  }
  if (count == 0 && size > 0) return;
  const int64_t covered = grads.iteration.covered;
  std::fill(begin, begin + count, uint8_t{1});
  try {
    run_check(grads, first, first + count, false, stream);
  } catch (...) {
    // A reducer that failed has let go of all that was covered.
    if (grads.iteration.covered == covered) std::fill(begin, begin + count, uint8_t{0});
    throw;
  }
}

void Scaler::apply_norm(TensorList &grads, gsc_stream stream) {
  Plan &plan = grads.plan();
  grads.context()->backend().elementwise({Elementwise::kScale, &plan, &plan, 0.0, 0.0, &grads.record()->clip}, stream);
  grads.iteration.norm_applied = true;
}

void Scaler::clip_grad_norm(TensorList &grads, double max_norm, int32_t norm_type, gsc_stream stream) {
  if (!std::isfinite(max_norm) || max_norm < 0.0) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "max_norm", "is %g; it must be finite and >= 0", max_norm);
  }
  if (norm_type != GSC_NORM_L2 && norm_type != GSC_NORM_INF) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "norm_type", "is %d; it must be GSC_NORM_L2 or GSC_NORM_INF", norm_type);
  }
  if (norm_type == GSC_NORM_INF && reducer_.all_reduce != nullptr) {
    fail(GSC_ERROR_UNSUPPORTED, "norm_type", "is GSC_NORM_INF, but a reducer combines L2 norms only");
  }
  enter(grads, stream);
  Iteration &it = grads.iteration;
  if (it.stage == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been stepped; call clip_grad_norm before step");
  }
  if (it.rule.max_norm >= 0.0) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been clipped by clip_grad_norm since the last update");
  }
  if (std::isfinite(it.rule.value)) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been clipped by clip_grad_value; call clip_grad_norm first");
  }
  const Iteration before = it;
  it.rule.max_norm = max_norm;
  it.rule.by_amax = norm_type == GSC_NORM_INF;
  it.concluded = false;
  if (!it.unscaled) return;
  try {
    if (!enabled()) run_check(grads, 0, grads.plan().size(), false, stream);
    complete(grads, stream);
    apply_norm(grads, stream);
  } catch (...) {
    it = before;
    throw;
  }
  leave(grads, stream);
}

void Scaler::clip_grad_value(TensorList &grads, double clip_value, gsc_stream stream) {
  if (std::isnan(clip_value) || clip_value < 0.0) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "clip_value", "is %g; it must be >= 0", clip_value);
  }
  enter(grads, stream);
  Iteration &it = grads.iteration;
  if (it.stage == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been stepped; call clip_grad_value before step");
  }
  const double value = std::min(it.rule.value, clip_value);
  if (it.unscaled && std::isfinite(value)) {
    if (it.rule.max_norm >= 0.0 && !it.norm_applied) {  // asked for before unscale
      complete(grads, stream);
      apply_norm(grads, stream);
    }
    Plan &plan = grads.plan();
    grads.context()->backend().elementwise({Elementwise::kClamp, &plan, &plan, value, 0.0, nullptr}, stream);
    it.value_applied = true;
  }
  it.rule.value = value;
  if (it.value_applied) leave(grads, stream);
}

void Scaler::complete(TensorList &grads, gsc_stream stream) {
  Iteration &it = grads.iteration;
  if (it.stage == Stage::kReady) check_whole(grads, false, stream);
  if (!it.concluded) grads.context()->backend().record(RecordJob::conclude(grads.record(), it.rule), stream);
  it.concluded = true;
}

void Scaler::begin_step(Optimizer &optimizer, gsc_stream stream) {
  optimizer.require_learning_rates();
  TensorList &grads = optimizer.grads();
  enter(grads, stream);
  if (grads.iteration.stage == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "optimizer", "has gradients that have already been stepped since the last update");
  }
}

StepScalars Scaler::step_scalars(const TensorList &grads) const {
  const Iteration &it = grads.iteration;
  const ListRecord *list = grads.record();
  StepScalars step;
  step.found_inf = &list->found_inf;
  if (!it.unscaled) step.inv_scale = &state_on(grads)->inv_scale;
  if (it.rule.max_norm >= 0.0 && !it.norm_applied) step.clip = &list->clip;
  if (!it.value_applied) step.clip_value = it.rule.value;
  return step;
}

void Scaler::step(Optimizer &optimizer, gsc_stream stream) {
  begin_step(optimizer, stream);
  if (!enabled()) {
    step_disabled(optimizer, stream);
    return;
  }
  TensorList &grads = optimizer.grads();
  complete(grads, stream);
  optimizer.step(step_scalars(grads), stream);
  leave(grads, stream);
  grads.iteration.stage = Stage::kStepped;
}

void Scaler::step_and_update(Optimizer &optimizer, gsc_stream stream) {
  if (is_away(optimizer.grads())) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "optimizer",
         "is on another context than scaler; call step with a stream of its device, then update with a stream of the "
         "scaler's");
  }
  require_whole_checks(&optimizer.grads());  // what update would refuse after the step
  begin_step(optimizer, stream);
  if (!enabled() || lists_.size() > 1) {
    step(optimizer, stream);
    update(stream);
    return;
  }
  // The only list of the iteration: the update rides along with the step.
  TensorList &grads = optimizer.grads();
  complete(grads, stream);
  StepScalars scalars = step_scalars(grads);
  scalars.update = record();
  wait_for_lists(stream);
  optimizer.step(scalars, stream);
  finish_update(stream);
}

/// Nothing is checked: only a clip that is waiting needs the norm, at scale 1.
void Scaler::step_disabled(Optimizer &optimizer, gsc_stream stream) {
  TensorList &grads = optimizer.grads();
  Iteration &it = grads.iteration;
  StepScalars scalars;
  if (it.rule.max_norm >= 0.0 && !it.norm_applied) {
    complete(grads, stream);
    scalars.clip = &grads.record()->clip;
  }
  if (!it.value_applied) scalars.clip_value = it.rule.value;
  optimizer.step(scalars, stream);
  leave(grads, stream);
  discard(grads);
}

bool Scaler::should_step_sync(TensorList &grads, gsc_stream stream) {
  enter(grads, stream);
  Iteration &it = grads.iteration;
  if (it.stage == Stage::kStepped) {
    fail(GSC_ERROR_BAD_STATE, "grads", "has already been stepped since the last update");
  }
  const bool value_waits = std::isfinite(it.rule.value) && !it.value_applied;
  if (value_waits && enabled()) {
    fail(GSC_ERROR_BAD_STATE, "grads",
         "has a clip_grad_value that is pending until step; call unscale before clip_grad_value");
  }
  if (enabled() || it.rule.max_norm >= 0.0) complete(grads, stream);
  if (it.rule.max_norm >= 0.0 && !it.norm_applied) {
    apply_norm(grads, stream);
    leave(grads, stream);
  }
  if (!enabled()) {
    if (value_waits) {
      Plan &plan = grads.plan();
      grads.context()->backend().elementwise({Elementwise::kClamp, &plan, &plan, it.rule.value, 0.0, nullptr}, stream);
    }
    discard(grads);
    return true;
  }
  float found_inf = 0.0F;
  grads.context()->backend().read_sync(&found_inf, &grads.record()->found_inf, sizeof found_inf, stream);
  it.stage = Stage::kStepped;
  return found_inf == 0.0F;
}

void Scaler::require_whole_checks(const TensorList *except) const {
  for (const Ref<TensorList> &list : lists_) {
    if (list.get() == except || list->iteration.stage != Stage::kReady || list->iteration.covered == 0) continue;
    fail(GSC_ERROR_BAD_STATE, kNoArgument,
         "check_range has covered %lld of %lld tensors of a list; check the rest or discard the list",
         static_cast<long long>(list->iteration.covered), static_cast<long long>(list->plan().size()));
  }
}

void Scaler::update(gsc_stream stream) {
  if (!enabled()) {
    discard_all();
    return;
  }
  require_whole_checks(nullptr);
  const auto was_checked = [](const auto &list) { return list->iteration.stage != Stage::kReady; };
  if (std::none_of(lists_.begin(), lists_.end(), was_checked)) {
    fail(GSC_ERROR_BAD_STATE, kNoArgument, "no list was checked, unscaled or stepped since the last update");
  }
  list_records_.clear();
  for (const Ref<TensorList> &list : lists_) {
    if (was_checked(list)) list_records_.push_back(record_here(*list, stream));
  }
  wait_for_lists(stream);
  context_->backend().record(
      RecordJob::update(record(), list_records_.data(), static_cast<int64_t>(list_records_.size())), stream);
  finish_update(stream);
}

void Scaler::finish_update(gsc_stream stream) {
  publish(stream);
  reset_lists();
  Backend &backend = context_->backend();
  if (options_.floor_action != GSC_FLOOR_CLAMP && backend.host_visible()) {
    gsc_report report;
    backend.record(RecordJob::report(record(), nullptr, &report), stream);
    log_floor(report);
  }
}

void Scaler::discard(TensorList &grads) {
  require_kind(grads);
  if (grads.iteration.scaler != id_) return;
  remember_stray(grads);
  grads.reset_iteration();
  const auto it = std::find_if(lists_.begin(), lists_.end(), [&](const auto &list) { return list.get() == &grads; });
  lists_.erase(it);
}

void Scaler::discard_all() {
  for (const Ref<TensorList> &list : lists_) remember_stray(*list);
  reset_lists();
}

void Scaler::reset_lists() {
  for (const Ref<TensorList> &list : lists_) list->reset_iteration();
  lists_.clear();
}

void Scaler::set_scale(float scale, gsc_stream stream) {
  if (!std::isfinite(scale) || scale <= 0.0F) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "scale", "is %g; it must be finite and > 0", static_cast<double>(scale));
  }
  if (!enabled()) return;
  wait_for_lists(stream);
  context_->backend().record(RecordJob::set_scale(record(), scale), stream);
  publish(stream);
  reset_lists();
}

void Scaler::set_reducer(const gsc_reducer *reducer) {
  if (!lists_.empty()) {
    fail(GSC_ERROR_BAD_STATE, kNoArgument, "a list has been used since the last update; call update or discard first");
  }
  reducer_ = reducer != nullptr ? *reducer : gsc_reducer{};
}

}  // namespace gsc
