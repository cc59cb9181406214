// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers, and their counts.
#include <algorithm>
#include <utility>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/objects/optimizer.h"
#include "core/rules/state_codes.h"

namespace gsc {

void Optimizer::require_learning_rates() const {
  if (!context_->backend().host_visible()) return;
  for (std::size_t group = 0; group < device_lrs_.size(); ++group) {
    const float *lr = device_lrs_[group];
    if (lr == nullptr || is_multiplier(*lr)) continue;
    refuse(Argument("device_lr").at(static_cast<int64_t>(group)),
           "is %s; the learning rate of a group must be finite and >= 0", Decimal(*lr).c_str());
  }
}

void Optimizer::require_inverse_scale(const StepScalars &scalars) const {
  if (scalars.inv_scale == nullptr || !context_->backend().host_visible()) return;
  const bool skips = scalars.found_inf != nullptr && *scalars.found_inf != 0.0F;
  if (skips || is_multiplier(*scalars.inv_scale)) return;
  refuse_value("inv_scale", *scalars.inv_scale, "finite and >= 0");
}

void Optimizer::require_no_scaler_at_work(const StepScalars &scalars) const {
  if (lists_.grads->owner() == 0) return;
  const Iteration &it = lists_.grads->iteration;
  if (it.is_between_slices()) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients that are between the slices of a step; call gsc_scaler_step_slice until nothing is left, or "
         "discard them");
  }
  // Its sums are where a step puts its own.
  if (it.is_checked_in_part()) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients of which check_range has checked %lld of %lld tensors; check the rest or discard the list",
         static_cast<long long>(it.tensors_checked()), static_cast<long long>(lists_.grads->plan().size()));
  }
  if (it.is_left_scaled() && scalars.inv_scale == nullptr) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients that a scaler has stepped on and not unscaled; step with an inverse scale, or unscale before");
  }
  if (it.stage() == Stage::kStepped) return;
  if (it.is_clip_pending()) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients with a pending clip, which only the scaler's step applies; step with it, or unscale before you "
         "clip");
  }
  if (it.stage() == Stage::kChecked && scalars.inv_scale == nullptr) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients that a scaler has checked and not unscaled; step with the scaler, or unscale before");
  }
}

void Optimizer::require_whole_state() const {
  if (half_loaded_) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "holds part of a checkpoint, because the device failed while it was restored; load it again");
  }
  if (half_stepped_) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has taken part of a step, because the device failed during it; restore the parameters and load its state");
  }
  if (slices.is_begun && !is_between_slices()) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has taken part of a step in slices, which was discarded; restore the parameters and load its state");
  }
}

bool Optimizer::is_between_slices() const { return slices.id != 0 && lists_.params->slices() == slices.id; }

void Optimizer::begin_slices(uint64_t id) const noexcept {
  for_each_list([&](TensorList &list, const Argument &) { list.begin_slices(id); });
}

void Optimizer::end_slices(uint64_t id) const noexcept {
  for_each_list([&](TensorList &list, const Argument &) { list.end_slices(id); });
}

void Optimizer::require_free_lists() const {
  for_each_list([](const TensorList &list, const Argument &) {
    list.require_no_slices("optimizer", TensorList::Named::kByItsOptimizer);
  });
}

void Optimizer::require_free_state() const {
  for (int32_t slot = 0; slot < slot_count_; ++slot) {
    lists_.state[slot]->require_no_slices("optimizer", TensorList::Named::kByItsOptimizer);
  }
}

void Optimizer::require_no_slices() const {
  if (!is_between_slices()) return;
  fail(GSC_ERROR_BAD_STATE, "optimizer",
       "is between the slices of a step; call gsc_scaler_step_slice until nothing is left, or discard its gradients");
}

void Optimizer::step_alone(const StepScalars &scalars, gsc_stream stream) {
  require_no_scaler_at_work(scalars);
  require_free_lists();
  require_inverse_scale(scalars);
  prepare_step();
  CallStream call(*context_, stream);
  step(with_device_factor(scalars, call), call, By::kCaller);
  call.mark();
}

StepScalars Optimizer::with_device_factor(const StepScalars &scalars, CallStream &call) {
  TensorList &grads = *lists_.grads;
  const Iteration &it = grads.iteration;
  if (grads.device_factor() == nullptr || (grads.owner() != 0 && it.is_unscaled())) return scalars;
  if (it.stage() == Stage::kChecked) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients with a device factor that a scaler has checked; step with the scaler, or discard them");
  }
  grads.require_device_factor("optimizer");
  use(call);
  call.backend.record({.kind = RecordJob::Kind::kMultiply,
                       .list = grads.record(),
                       .inv_scale = scalars.inv_scale,
                       .factor = grads.device_factor()},
                      call.stream());
  StepScalars result = scalars;
  result.inv_scale = &grads.record()->multiplier;
  return result;
}

DeviceMemory Optimizer::make_coefficients(std::size_t groups) const {
  return make_coefficients(groups, counts_each_tensor() || averages(variant_));
}

DeviceMemory Optimizer::make_coefficients(std::size_t groups, bool each_tensor) const {
  const auto tensors = each_tensor ? static_cast<std::size_t>(lists_.params->plan().size()) : 0;
  return {context_->backend(), static_cast<int64_t>(std::max(groups, tensors) * sizeof(Coefficients<double>))};
}

void Optimizer::count_each_tensor() {
  const int64_t tensors = lists_.params->plan().size();
  if (counts_each_tensor() || tensors == 0) return;
  DeviceMemory lags(context_->backend(), tensors * int64_t{sizeof(int64_t)});
  DeviceMemory coefficients = make_coefficients(options_.size(), true);
  let_go({&coefficients_});
  coefficients_ = std::move(coefficients);
  lags_ = std::move(lags);
}

void Optimizer::let_go(std::initializer_list<DeviceMemory *> replaced) {
  grads().order().precede_release();
  if (!recorded_) return;
  replaced_.reserve(replaced_.size() + replaced.size());
  for (DeviceMemory *memory : replaced) replaced_.push_back(std::move(*memory));
}

void Optimizer::prepare_step() {
  require_learning_rates();
  require_whole_state();
  if (evaluating_) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has averaged weights as parameters; go back with gsc_optimizer_set_evaluating before the step");
  }
  if (lists_.grads->plan().can_be_absent()) count_each_tensor();
}

void Optimizer::step(const StepScalars &scalars, CallStream &call, By by) {
  StepPart whole;
  whole.last_chunk = grads().plan().chunk_count();
  run(scalars, whole, call, by);
}

void Optimizer::run(const StepScalars &scalars, const StepPart &part, CallStream &call, By by) {
  ApplyJob job = make_job();
  static_cast<StepScalars &>(job.step) = scalars;
  job.step.checked_scale = by == By::kScaler && scalars.found_inf != nullptr;
  job.part = part;
  used_state_ = true;
  use(call);
  call.backend.apply(job, call.stream());
}

int64_t Optimizer::step_bytes(int64_t tensor) const {
  const auto bytes = [&](const TensorList &list) { return int64_t{dtype_bytes(list.plan().tensor(tensor).dtype)}; };
  int64_t sum = bytes(*lists_.params) * 2 + bytes(*lists_.grads) * (writes_grads() ? 2 : 1);
  if (lists_.model_copy) sum += bytes(*lists_.model_copy);
  for (int32_t slot = 0; slot < slot_count_; ++slot) {
    if (numbers_of(slot_holds(slot)) == 0) sum += bytes(*lists_.state[slot]) * 2;
  }
  return sum;
}

void Optimizer::set_evaluating(int32_t evaluating, gsc_stream stream) {
  if (evaluating != 0 && evaluating != 1) {
    refuse_value("evaluating", evaluating, "0 or 1");
  }
  if (!averages(variant_)) {
    refuse("optimizer", "is %s, which does not average its weights", require_kind(options_[0].kind).name);
  }
  require_whole_state();
  if (evaluating_ == (evaluating != 0)) return;
  CallStream call(*context_, stream);
  use(call);
  // The pass of a step. It reads parameters in place of gradients, which may be anything now, and rounds to nearest:
  // random bits belong to a step, and two evaluations would take the same.
  ApplyJob job = make_job();
  if (job.step.master == GSC_MASTER_STOCHASTIC) job.step.master = GSC_MASTER_NONE;
  job.grads = &lists_.params->plan();
  job.step.phase = evaluating != 0 ? Phase::kToAverage : Phase::kToTraining;
  job.step.maximize = job.step.zero_grads = job.step.write_grads = job.step.device_lrs = false;
  job.step.count_unchanged = false;
  job.ema = nullptr;
  call.backend.apply(job, call.stream());
  evaluating_ = evaluating != 0;
  call.mark();
}

ApplyJob Optimizer::make_job() {
  const uint32_t flags = options_[0].flags;
  ApplyJob job{};
  job.grads = &lists_.grads->plan();
  job.params = &lists_.params->plan();
  job.part.last_chunk = job.grads->chunk_count();
  job.model_copy = lists_.model_copy ? &lists_.model_copy->plan() : nullptr;
  const int32_t states = gsc::state_count(variant_);
  for (int32_t s = 0; s < states; ++s) {
    job.state[s] = &lists_.state[s]->plan();
    job.scales[s] = lists_.state[s]->scales();
  }
  if (has_numbers(variant_)) job.numbers = &lists_.state[states]->plan();
  if (has_ema()) job.ema = &lists_.state[gsc::slot_count(variant_)]->plan();
  if (splits_masters()) job.remainder = &lists_.state[slot_count_ - 1]->plan();
  job.half_done = &half_stepped_;
  StepParams &step = job.step;
  step.variant = variant_;
  step.averages = averages(variant_);
  step.master = options_[0].master_format;
  step.coded = offsets_.bytes() > 0;
  step.seed = static_cast<uint64_t>(options_[0].seed);
  step.offsets = offsets_.as<int64_t>();
  step.group_of = device_group_of_.as<int32_t>();
  step.groups = groups_.as<GroupRecord>();
  step.coefficients = coefficients_.as<Coefficients<double>>();
  step.lags = lags_.as<int64_t>();
  step.ratios = ratios_.as<double>();
  step.record = record_.as<OptimizerRecord>();
  step.checked = lists_.grads->record();
  step.group_count = group_count();
  step.maximize = (flags & GSC_OPTIMIZER_MAXIMIZE) != 0;
  step.zero_grads = (flags & GSC_OPTIMIZER_ZERO_GRADS) != 0;
  step.write_grads = (flags & GSC_OPTIMIZER_WRITE_GRADS) != 0;
  step.count_unchanged = (flags & GSC_OPTIMIZER_COUNT_UNCHANGED) != 0;
  step.device_lrs = std::any_of(device_lrs_.begin(), device_lrs_.end(), [](const float *lr) { return lr != nullptr; });
  return job;
}

void Optimizer::zero_grads(gsc_stream stream) {
  require_no_slices();
  grads().require_no_slices("optimizer", TensorList::Named::kByItsOptimizer);
  CallStream call(*context_, stream);
  use(call);
  call.backend.elementwise({Elementwise::kFill, nullptr, &grads().plan(), 0.0, 0.0, nullptr}, call.stream());
  call.mark();
}

OptimizerRecord Optimizer::steps(gsc_stream stream) const {
  CallStream call(*context_, stream);
  return read_steps(call);
}

OptimizerRecord Optimizer::read_steps(CallStream &call) const {
  use(call);
  OptimizerRecord record;
  call.backend.read_sync(&record, record_.as<OptimizerRecord>(), sizeof record, call.stream());
  // set_steps may have begun there: what is saved can be loaded again.
  return {std::min(record.applied, kMostSteps), std::min(record.skipped, kMostSteps), record.unchanged};
}

void Optimizer::set_steps(int64_t applied, int64_t skipped, gsc_stream stream) {
  if (applied < 0 || applied > kMostSteps) {
    refuse_value("applied", applied, "in 0..2^53");
  }
  if (skipped < 0 || skipped > kMostSteps) {
    refuse_value("skipped", skipped, "in 0..2^53");
  }
  const OptimizerRecord record{applied, skipped};
  used_state_ = true;
  CallStream call(*context_, stream);
  const Vec<int64_t> none(counts_each_tensor() ? group_of_.size() : 0, 0, context_->memory());
  write_counts(record_.as<OptimizerRecord>(), &record, sizeof record, none, call);
}

void Optimizer::write_counts(void *to, const void *counts, int64_t bytes, const Vec<int64_t> &lags, CallStream &call) {
  use(call);
  const bool was_half_loaded = half_loaded_;
  half_loaded_ = !lags.empty() || was_half_loaded;
  call.backend.write(to, counts, bytes, call.stream());
  if (!lags.empty()) call.backend.write(lags_.as<int64_t>(), lags.data(), lags_.bytes(), call.stream());
  half_loaded_ = was_half_loaded;
  call.mark();
}

void Optimizer::require_tensors(int64_t count) const {
  const int64_t tensors = lists_.params->plan().size();
  if (count == tensors) return;
  refuse("count", "is %lld, but the optimizer has %lld tensors", static_cast<long long>(count),
         static_cast<long long>(tensors));
}

void Optimizer::tensor_steps(int64_t *out_steps, int64_t count, gsc_stream stream) const {
  require_tensors(count);
  CallStream call(*context_, stream);
  const int64_t applied = read_steps(call).applied;
  std::fill_n(out_steps, count, int64_t{0});
  if (counts_each_tensor()) call.backend.read_sync(out_steps, lags_.as<int64_t>(), lags_.bytes(), call.stream());
  for (int64_t i = 0; i < count; ++i) out_steps[i] = std::clamp<int64_t>(applied - out_steps[i], 0, kMostSteps);
}

void Optimizer::set_tensor_steps(const int64_t *steps, int64_t count, gsc_stream stream) {
  require_tensors(count);
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (steps[i] < 0 || steps[i] > kMostSteps) {
      refuse(Argument("steps").tensor(i), "is %lld; it must be in 0..2^53%s", static_cast<long long>(steps[i]),
             NameSuffix(&lists_.params->names(), i).c_str());
    }
    most = std::max(most, steps[i]);
  }
  Vec<int64_t> lags(context_->memory());
  lags.reserve(count);
  for (int64_t i = 0; i < count; ++i) lags.push_back(most - steps[i]);
  count_each_tensor();
  used_state_ = true;
  CallStream call(*context_, stream);
  write_counts(&record_.as<OptimizerRecord>()->applied, &most, sizeof most, lags, call);
}

void Optimizer::set_offsets(const int64_t *offsets, int64_t count, gsc_stream stream) {
  require_tensors(count);
  for (int64_t i = 0; i < count; ++i) {
    if (offsets[i] >= 0 && offsets[i] <= kMostSteps && offsets[i] % kStateGroup == 0) continue;
    refuse(Argument("offsets").tensor(i), "is %lld; it must be a multiple of 32 in 0..2^53%s",
           static_cast<long long>(offsets[i]), NameSuffix(&lists_.params->names(), i).c_str());
  }
  if (offsets_.bytes() == 0) return;
  CallStream call(*context_, stream);
  use(call);
  call.backend.write(offsets_.as<int64_t>(), offsets, offsets_.bytes(), call.stream());
  call.mark();
}

}  // namespace gsc
