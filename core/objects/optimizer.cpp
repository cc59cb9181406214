// SPDX-License-Identifier: Apache-2.0
// Creation and steps of optimizers.
#include "core/objects/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/decimal.h"
#include "core/base/error.h"

namespace gsc {
namespace {

constexpr Argument kState{"state"};

void require_same_shapes(const TensorList &param_list, const Plan &other, const Argument &what) {
  const Plan &params = param_list.plan();
  if (params.size() != other.size()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, what, "has %lld tensors, but params has %lld",
         static_cast<long long>(other.size()), static_cast<long long>(params.size()));
  }
  for (int64_t i = 0; i < params.size(); ++i) {
    if (params.tensor(i).count != other.tensor(i).count) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i), "has %lld elements, but params[%lld] has %lld%s",
           static_cast<long long>(other.tensor(i).count), static_cast<long long>(i),
           static_cast<long long>(params.tensor(i).count), NameSuffix(&param_list.names(), i).c_str());
    }
  }
}

/// Of this context, and with all its tensors.
void require_usable(const TensorList &list, const Ref<Context> &context, const Argument &what) {
  if (list.context().get() != context.get()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, what, "belongs to another context");
  }
  const Plan &plan = list.plan();
  for (int64_t i = 0; plan.has_absent() && i < plan.size(); ++i) {
    if (!plan.is_absent(i)) continue;
    fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i), "is absent; an optimizer is made while all are present%s",
         NameSuffix(&list.names(), i).c_str());
  }
}

void validate_lists(const Ref<Context> &context, const Optimizer::Lists &lists, int32_t state_count, int32_t slots) {
  require_usable(*lists.params, context, "params");
  require_usable(*lists.grads, context, "grads");
  const Plan &params = lists.params->plan();
  require_same_shapes(*lists.params, lists.grads->plan(), "grads");
  OverlapCheck overlap(context->memory());
  overlap.add(*lists.params, "params");
  overlap.add(*lists.grads, "grads");
  if (lists.model_copy) {
    require_usable(*lists.model_copy, context, "model_copy");
    require_same_shapes(*lists.params, lists.model_copy->plan(), "model_copy");
    overlap.add(*lists.model_copy, "model_copy");
  }
  if (state_count != 0 && state_count != slots) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "state_count", "is %d, but this optimizer has %d state slots", state_count, slots);
  }
  for (int32_t s = 0; s < state_count; ++s) {
    // A kind has at most kMaxStates slots, which the analyzer cannot see.
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
    require_usable(*lists.state[s], context, kState.at(s));
    const Plan &state = lists.state[s]->plan();
    require_same_shapes(*lists.params, state, kState.at(s));
    for (int64_t i = 0; i < state.size(); ++i) {
      if (state.tensor(i).dtype != state_dtype(params.tensor(i).dtype)) {
        fail(GSC_ERROR_INVALID_ARGUMENT, kState.at(s).tensor(i),
             "is %s, but the state of a parameter of dtype %s is %s%s", dtype_name(state.tensor(i).dtype),
             dtype_name(params.tensor(i).dtype), dtype_name(state_dtype(params.tensor(i).dtype)),
             NameSuffix(&lists.params->names(), i).c_str());
      }
    }
    overlap.add(*lists.state[s], kState.at(s));
  }
  overlap.run();
}

}  // namespace

int32_t Optimizer::slots_of(const gsc_optimizer_options &options) { return gsc::state_count(variant_of(options)); }

Ref<Optimizer> Optimizer::create(const Ref<Context> &context, const gsc_optimizer_options &options, Lists lists,
                                 int32_t state_count) {
  validate(options);
  validate_lists(context, lists, state_count, slots_of(options));
  return context->make<Optimizer>(context, options, std::move(lists));
}

Optimizer::Optimizer(Ref<Context> context, const gsc_optimizer_options &options, Lists lists)
    : Object(kTag),
      context_(std::move(context)),
      lists_(std::move(lists)),
      variant_(variant_of(options)),
      slot_count_(gsc::state_count(variant_)),
      first_sum_(options.initial_accumulator_value),
      options_(1, options, context_->memory()),
      device_lrs_(1, nullptr, context_->memory()),
      group_of_(static_cast<std::size_t>(lists_.params->plan().size()), 0, context_->memory()),
      record_(context_->backend(), sizeof(OptimizerRecord)) {
  Backend &backend = context_->backend();
  const int64_t tensors = lists_.params->plan().size();
  if (slot_count_ > 0 && !lists_.state[0]) make_state();
  if (needs_norms(variant_)) ratios_ = DeviceMemory(backend, tensors * static_cast<int64_t>(sizeof(double)));
  device_group_of_ = DeviceMemory(backend, tensors * static_cast<int64_t>(sizeof(int32_t)));
  groups_ = DeviceMemory(backend, sizeof(GroupRecord));
  coefficients_ = make_coefficients(1, false);
  upload_groups();
  // Last, because it changes the caller's lists.
  converts_gradients_ = converts_gradients();
  if (converts_gradients_) lists_.grads->plan().add_fp32_optimizers(1);
  const std::lock_guard lock(context_->uses_mutex());
  ListUse *use = uses_;
  for_each_list([&](TensorList &list, const Argument &) {
    *use = {&list, this};
    list.add_use(*use++);
  });
}

template <typename F>
void Optimizer::for_each_list(const F &f) const {
  f(*lists_.params, Argument("params"));
  f(*lists_.grads, Argument("grads"));
  if (lists_.model_copy) f(*lists_.model_copy, Argument("model_copy"));
  for (int32_t slot = 0; slot < kMaxStates; ++slot) {
    if (lists_.state[slot]) f(*lists_.state[slot], kState.at(slot));
  }
}

Optimizer::~Optimizer() {
  if (converts_gradients_) lists_.grads->plan().add_fp32_optimizers(-1);
  const std::lock_guard lock(context_->uses_mutex());
  for (ListUse &use : uses_) {
    if (use.list != nullptr) use.list->remove_use(use);
  }
}

CallStream Optimizer::begin(gsc_stream stream) const {
  const CallStream call(context_->backend(), stream);
  grads().precede(call);
  return call;
}

void Optimizer::require_no_overlap(const OverlapCheck &addresses, const TensorList &changed) const {
  for_each_list([&](const TensorList &list, const Argument &name) {
    if (&list != &changed) addresses.run_against(list, name);
  });
}

bool Optimizer::converts_gradients() const {
  const Plan &grads = lists_.grads->plan();
  for (int64_t i = 0; i < grads.size(); ++i) {
    if (is_wide(grads.tensor(i).dtype) && !is_wide(lists_.params->plan().tensor(i).dtype)) return true;
  }
  return false;
}

void Optimizer::make_state() {
  const Plan &params = lists_.params->plan();
  // A tensor's state begins as many elements past a cache line as its parameters do: then packs of elements are aligned
  // in all arrays or in none, and neighbours in memory have neighbouring state.
  const auto place = [](const Tensor &param, int64_t offset) {
    const int64_t size = dtype_bytes(param.dtype);
    const int64_t state_size = dtype_bytes(state_dtype(param.dtype));
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): validated dtypes have a size
    const int64_t period = 64 / size * state_size;
    const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(param.data) % 64) / size * state_size;
    return offset + (past + period - offset % period) % period;
  };
  Vec<gsc_tensor> tensors(context_->memory());
  tensors.reserve(static_cast<std::size_t>(params.size()));
  Vec<int64_t> begins(context_->memory());
  begins.reserve(static_cast<std::size_t>(params.size()));
  int64_t slot_bytes = 0;
  for (int64_t i = 0; i < params.size(); ++i) {
    const Tensor &param = params.tensor(i);
    const int32_t dtype = state_dtype(param.dtype);
    begins.push_back(place(param, slot_bytes));
    tensors.push_back(GSC_TENSOR_INIT(nullptr, param.count, dtype));
    slot_bytes = begins.back() + param.count * dtype_bytes(dtype);
  }
  slot_bytes = (slot_bytes + 63) & ~int64_t{63};
  for (int32_t slot = 0; slot < slot_count_; ++slot) {
    DeviceMemory memory(context_->backend(), slot_bytes);
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = memory.as<char>() + begins[i];
    // The list owns it, since another optimizer may take the list up and outlive this one.
    lists_.state[slot] = context_->make<TensorList>(context_, tensors.data(), params.size(), Names(context_->memory()),
                                                    std::move(memory));
  }
  made_state_ = true;
  if (options_[0].initial_accumulator_value != 0.0) fill_first_state(0, params.size(), options_[0]);
}

void Optimizer::fill_first_state(int64_t first, int64_t count, const gsc_optimizer_options &options) {
  if (variant_ != Variant::kAdagrad) return;
  Vec<gsc_tensor> sums(context_->memory());
  sums.reserve(static_cast<std::size_t>(count));
  for (int64_t i = first; i < first + count; ++i) sums.push_back(lists_.state[0]->at(i));
  Backend &backend = context_->backend();
  Plan plan(context_->memory());
  plan.build(sums.data(), count, backend.wanted_tasks());
  backend.elementwise({Elementwise::kFill, nullptr, &plan, options.initial_accumulator_value, 0.0, nullptr},
                      backend.setup_stream());
  backend.finish_setup();
}

void Optimizer::require_group(int32_t group) const {
  if (group < 0 || group >= group_count()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "group", "is %d, but the optimizer has %d groups", group, group_count());
  }
}

const gsc_optimizer_options &Optimizer::options(int32_t group) const {
  require_group(group);
  return options_[static_cast<std::size_t>(group)];
}

/// A group runs in the same pass as the others, so its formula and flags must be theirs.
void Optimizer::validate_group(const gsc_optimizer_options &options) const {
  validate(options);
  const gsc_optimizer_options &first = options_[0];
  if (options.kind != first.kind) {
    fail(GSC_ERROR_INVALID_ARGUMENT, Argument("options").field("kind"), "is %s, but the optimizer is %s",
         optimizer_info(options.kind).kind.name, optimizer_info(first.kind).kind.name);
  }
  if (options.flags != first.flags) {
    fail(GSC_ERROR_INVALID_ARGUMENT, Argument("options").field("flags"), "is 0x%x, but the optimizer's is 0x%x",
         options.flags, first.flags);
  }
  if (variant_ == Variant::kSgd && options.momentum != 0.0) {
    fail(GSC_ERROR_INVALID_ARGUMENT, Argument("options").field("momentum"),
         "is %s, but the optimizer was created without a momentum buffer", Decimal(options.momentum).c_str());
  }
}

int32_t Optimizer::add_group(int64_t first, int64_t count, const gsc_optimizer_options &options) {
  const int64_t tensors = lists_.params->plan().size();
  if (first < 0 || count < 0 || first > tensors || count > tensors - first) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "first", "is %lld and count is %lld, but the optimizer has %lld tensors",
         static_cast<long long>(first), static_cast<long long>(count), static_cast<long long>(tensors));
  }
  validate_group(options);
  const auto begin = group_of_.begin() + first;
  const auto taken = std::find_if(begin, begin + count, [](int32_t g) { return g != 0; });
  if (taken != begin + count) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "first", "is %lld and count is %lld, but tensor %lld already belongs to group %d",
         static_cast<long long>(first), static_cast<long long>(count),
         static_cast<long long>(taken - group_of_.begin()), *taken);
  }
  const bool starts_elsewhere =
      variant_ == Variant::kAdagrad && made_state_ && options.initial_accumulator_value != first_sum_;
  if (starts_elsewhere && used_state_) {
    fail(GSC_ERROR_INVALID_ARGUMENT, Argument("options").field("initial_accumulator_value"),
         "is %s, but the state began at %s and has been used since; add the group before the first step",
         Decimal(options.initial_accumulator_value).c_str(), Decimal(first_sum_).c_str());
  }
  const std::size_t groups = options_.size() + 1;
  options_.reserve(groups);
  device_lrs_.reserve(groups);
  DeviceMemory group_records(context_->backend(), static_cast<int64_t>(groups * sizeof(GroupRecord)));
  DeviceMemory coefficients = make_coefficients(groups, counts_each_tensor());
  DeviceMemory group_of(context_->backend(), device_group_of_.bytes());
  const auto swap_arrays = [&] {
    std::swap(groups_, group_records);
    std::swap(coefficients_, coefficients);
    std::swap(device_group_of_, group_of);
  };
  options_.push_back(options);
  device_lrs_.push_back(nullptr);
  const int32_t group = group_count() - 1;
  std::fill(begin, begin + count, group);
  swap_arrays();
  try {
    upload_groups();
    if (starts_elsewhere) fill_first_state(first, count, options);
  } catch (...) {
    swap_arrays();
    std::fill(begin, begin + count, 0);
    device_lrs_.pop_back();
    options_.pop_back();
    throw;
  }
  return group;
}

void Optimizer::set_options(int32_t group, const gsc_optimizer_options &options, gsc_stream stream) {
  require_group(group);
  validate_group(options);
  const auto g = static_cast<std::size_t>(group);
  const gsc_optimizer_options &old = options_[g];
  if ((old.momentum == 0.0) != (options.momentum == 0.0)) {
    fail(GSC_ERROR_INVALID_ARGUMENT, Argument("options").field("momentum"),
         "is %s, but whether group %d has momentum is fixed at creation", Decimal(options.momentum).c_str(), group);
  }
  change_group(group, options, device_lrs_[g], stream);
}

void Optimizer::set_lr(int32_t group, double lr, gsc_stream stream) {
  require_group(group);
  require_at_least_zero("lr", lr);
  gsc_optimizer_options changed = options(group);
  changed.lr = lr;
  change_group(group, changed, nullptr, stream);
}

void Optimizer::set_device_lr(int32_t group, const float *lr, gsc_stream stream) {
  change_group(group, options(group), lr, stream);
}

void Optimizer::write_group(int32_t group, const gsc_optimizer_options &options, const float *lr, gsc_stream stream) {
  const GroupRecord record{make_hyper(options), lr};
  context_->backend().write(groups_.as<GroupRecord>() + group, &record, sizeof record, stream);
}

void Optimizer::change_group(int32_t group, const gsc_optimizer_options &options, const float *lr, gsc_stream stream) {
  const CallStream call = begin(stream);
  write_group(group, options, lr, stream);
  grads().mark(call);
  options_[static_cast<std::size_t>(group)] = options;
  device_lrs_[static_cast<std::size_t>(group)] = lr;
}

void Optimizer::upload_groups() {
  Backend &backend = context_->backend();
  const gsc_stream stream = backend.setup_stream();
  for (int32_t group = 0; group < group_count(); ++group) {
    const auto g = static_cast<std::size_t>(group);
    write_group(group, options_[g], device_lrs_[g], stream);
  }
  if (!group_of_.empty()) {
    backend.write(device_group_of_.as<int32_t>(), group_of_.data(), device_group_of_.bytes(), stream);
  }
  backend.finish_setup();
}

void Optimizer::require_learning_rates() const {
  if (!context_->backend().host_visible()) return;
  for (std::size_t group = 0; group < device_lrs_.size(); ++group) {
    const float *lr = device_lrs_[group];
    if (lr == nullptr || is_multiplier(*lr)) continue;
    fail(GSC_ERROR_INVALID_ARGUMENT, Argument("device_lr").at(static_cast<int64_t>(group)),
         "is %s; the learning rate of a group must be finite and >= 0", Decimal(*lr).c_str());
  }
}

void Optimizer::require_inverse_scale(const StepScalars &scalars) const {
  if (scalars.inv_scale == nullptr || !context_->backend().host_visible()) return;
  const bool skips = scalars.found_inf != nullptr && *scalars.found_inf != 0.0F;
  if (skips || is_multiplier(*scalars.inv_scale)) return;
  fail(GSC_ERROR_INVALID_ARGUMENT, "inv_scale", "is %s; it must be finite and >= 0",
       Decimal(*scalars.inv_scale).c_str());
}

void Optimizer::require_no_scaler_at_work(const StepScalars &scalars) const {
  if (lists_.grads->owner() == 0) return;
  const Iteration &it = lists_.grads->iteration;
  // Its sums are where a step puts its own.
  if (it.is_checked_in_part()) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients of which check_range has covered %lld of %lld tensors; check the rest or discard the list",
         static_cast<long long>(it.tensors_checked), static_cast<long long>(lists_.grads->plan().size()));
  }
  if (it.left_scaled && scalars.inv_scale == nullptr) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients that a scaler has stepped on and not unscaled; step with an inverse scale, or unscale before");
  }
  if (it.stage == Stage::kStepped) return;
  if (it.is_clip_pending()) {
    fail(GSC_ERROR_BAD_STATE, "optimizer",
         "has gradients with a pending clip, which only the scaler's step applies; step with it, or unscale before you "
         "clip");
  }
  if (it.stage == Stage::kChecked && scalars.inv_scale == nullptr) {
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
}

void Optimizer::step_alone(const StepScalars &scalars, gsc_stream stream) {
  require_no_scaler_at_work(scalars);
  const CallStream call(context_->backend(), stream);
  step(scalars, call);
  grads().mark(call);
}

DeviceMemory Optimizer::make_coefficients(std::size_t groups, bool each_tensor) const {
  const auto tensors = each_tensor ? static_cast<std::size_t>(lists_.params->plan().size()) : 0;
  return {context_->backend(), static_cast<int64_t>(std::max(groups, tensors) * sizeof(Coefficients<double>))};
}

void Optimizer::count_each_tensor() {
  const int64_t tensors = lists_.params->plan().size();
  if (counts_each_tensor() || tensors == 0) return;
  DeviceMemory lags(context_->backend(), tensors * static_cast<int64_t>(sizeof(int64_t)));
  coefficients_ = make_coefficients(options_.size(), true);
  lags_ = std::move(lags);
}

void Optimizer::step(const StepScalars &scalars, const CallStream &call) {
  require_learning_rates();
  require_inverse_scale(scalars);
  require_whole_state();
  if (lists_.grads->plan().can_be_absent()) count_each_tensor();
  used_state_ = true;
  const uint32_t flags = options_[0].flags;
  ApplyJob job{};
  job.variant = variant_;
  job.grads = &lists_.grads->plan();
  job.params = &lists_.params->plan();
  job.model_copy = lists_.model_copy ? &lists_.model_copy->plan() : nullptr;
  for (int32_t s = 0; s < slot_count_; ++s) job.state[s] = &lists_.state[s]->plan();
  job.group_of = device_group_of_.as<int32_t>();
  job.groups = groups_.as<GroupRecord>();
  job.coefficients = coefficients_.as<Coefficients<double>>();
  job.group_count = group_count();
  job.lags = lags_.as<int64_t>();
  job.ratios = ratios_.as<double>();
  job.record = record_.as<OptimizerRecord>();
  job.inv_scale = scalars.inv_scale;
  job.clip = scalars.clip;
  job.found_inf = scalars.found_inf;
  job.clip_value = scalars.clip_value;
  job.update = scalars.update;
  job.checked = lists_.grads->record();
  job.half_done = &half_stepped_;
  job.device_lrs = std::any_of(device_lrs_.begin(), device_lrs_.end(), [](const float *lr) { return lr != nullptr; });
  job.maximize = (flags & GSC_OPTIMIZER_MAXIMIZE) != 0;
  job.zero_grads = (flags & GSC_OPTIMIZER_ZERO_GRADS) != 0;
  job.write_grads = (flags & GSC_OPTIMIZER_WRITE_GRADS) != 0;
  for_each_list([&](const TensorList &list, const Argument &) { list.precede(call); });
  call.backend.apply(job, call.stream);
}

void Optimizer::zero_grads(gsc_stream stream) {
  const CallStream call = begin(stream);
  call.backend.elementwise({Elementwise::kFill, nullptr, &grads().plan(), 0.0, 0.0, nullptr}, stream);
  grads().mark(call);
}

OptimizerRecord Optimizer::steps(gsc_stream stream) const {
  OptimizerRecord record;
  begin(stream).backend.read_sync(&record, record_.as<OptimizerRecord>(), sizeof record, stream);
  // set_steps may have begun there: what is saved can be loaded again.
  return {std::min(record.applied, kMostSteps), std::min(record.skipped, kMostSteps)};
}

void Optimizer::set_steps(int64_t applied, int64_t skipped, gsc_stream stream) {
  if (applied < 0 || applied > kMostSteps) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "applied", "is %lld; it must be in 0..2^53", static_cast<long long>(applied));
  }
  if (skipped < 0 || skipped > kMostSteps) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "skipped", "is %lld; it must be in 0..2^53", static_cast<long long>(skipped));
  }
  const OptimizerRecord record{applied, skipped};
  used_state_ = true;
  const CallStream call = begin(stream);
  const Vec<int64_t> none(counts_each_tensor() ? group_of_.size() : 0, 0, context_->memory());
  write_counts(record_.as<OptimizerRecord>(), &record, sizeof record, none, call);
}

void Optimizer::write_counts(void *to, const void *counts, int64_t bytes, const Vec<int64_t> &lags,
                             const CallStream &call) {
  const bool was_half_loaded = half_loaded_;
  half_loaded_ = !lags.empty() || was_half_loaded;
  call.backend.write(to, counts, bytes, call.stream);
  if (!lags.empty()) call.backend.write(lags_.as<int64_t>(), lags.data(), lags_.bytes(), call.stream);
  half_loaded_ = was_half_loaded;
  grads().mark(call);
}

void Optimizer::require_tensors(int64_t count) const {
  const int64_t tensors = lists_.params->plan().size();
  if (count == tensors) return;
  fail(GSC_ERROR_INVALID_ARGUMENT, "count", "is %lld, but the optimizer has %lld tensors",
       static_cast<long long>(count), static_cast<long long>(tensors));
}

void Optimizer::tensor_steps(int64_t *out_steps, int64_t count, gsc_stream stream) const {
  require_tensors(count);
  const int64_t applied = steps(stream).applied;
  std::fill_n(out_steps, count, int64_t{0});
  if (counts_each_tensor()) context_->backend().read_sync(out_steps, lags_.as<int64_t>(), lags_.bytes(), stream);
  for (int64_t i = 0; i < count; ++i) out_steps[i] = std::clamp<int64_t>(applied - out_steps[i], 0, kMostSteps);
}

void Optimizer::set_tensor_steps(const int64_t *steps, int64_t count, gsc_stream stream) {
  require_tensors(count);
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (steps[i] < 0 || steps[i] > kMostSteps) {
      fail(GSC_ERROR_INVALID_ARGUMENT, Argument("steps").tensor(i), "is %lld; it must be in 0..2^53%s",
           static_cast<long long>(steps[i]), NameSuffix(&lists_.params->names(), i).c_str());
    }
    most = std::max(most, steps[i]);
  }
  Vec<int64_t> lags(context_->memory());
  lags.reserve(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) lags.push_back(most - steps[i]);
  count_each_tensor();
  used_state_ = true;
  const CallStream call = begin(stream);
  write_counts(&record_.as<OptimizerRecord>()->applied, &most, sizeof most, lags, call);
}

}  // namespace gsc
