// SPDX-License-Identifier: Apache-2.0
// Parameter groups: their hyper-parameters and learning rates, on the host and on the device.
#include <algorithm>
#include <utility>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/objects/optimizer.h"

namespace gsc {

void Optimizer::require_group(int32_t group) const {
  if (group < 0 || group >= group_count()) {
    refuse("group", "is %d, but the optimizer has %d groups", group, group_count());
  }
}

const gsc_optimizer_options &Optimizer::options(int32_t group) const {
  require_group(group);
  return options_[group];
}

/// A group runs in the same pass as the others, so its formula and flags must be theirs.
void Optimizer::validate_group(const gsc_optimizer_options &options) const {
  const gsc_optimizer_options &first = options_[0];
  if (options.kind != first.kind) {
    refuse(kOptions.field("kind"), "is %s, but the optimizer is %s", require_kind(options.kind).name,
           require_kind(first.kind).name);
  }
  validate(options);
  if (options.flags != first.flags) {
    refuse(kOptions.field("flags"), "is 0x%x, but the optimizer's is 0x%x", options.flags, first.flags);
  }
  const auto require_same = [](Literal field, int64_t value, int64_t expected) {
    if (value == expected) return;
    refuse(kOptions.field(field), "is %lld, but the optimizer's is %lld", static_cast<long long>(value),
           static_cast<long long>(expected));
  };
  require_same("state_format", options.state_format, first.state_format);
  require_same("master_format", options.master_format, first.master_format);
  require_same("seed", options.seed, first.seed);
  if (variant_ != variant_of(options) && options.momentum != 0.0) {
    refuse(kOptions.field("momentum"), "is %s, but the optimizer was created without a momentum buffer",
           Decimal(options.momentum).c_str());
  }
  if (!has_ema() && options.ema_decay != 0.0) {
    refuse(kOptions.field("ema_decay"), "is %s, but the optimizer was created without an average",
           Decimal(options.ema_decay).c_str());
  }
}

int32_t Optimizer::add_group(int64_t first, int64_t count, const gsc_optimizer_options &options) {
  const int64_t tensors = lists_.params->plan().size();
  if (first < 0 || count < 0 || first > tensors || count > tensors - first) {
    refuse("first", "is %lld and count is %lld, but the optimizer has %lld tensors", static_cast<long long>(first),
           static_cast<long long>(count), static_cast<long long>(tensors));
  }
  validate_group(options);
  const auto begin = group_of_.begin() + first;
  const auto taken = std::find_if(begin, begin + count, [](int32_t g) { return g != 0; });
  if (taken != begin + count) {
    refuse("first", "is %lld and count is %lld, but tensor %lld already belongs to group %d",
           static_cast<long long>(first), static_cast<long long>(count),
           static_cast<long long>(taken - group_of_.begin()), *taken);
  }
  const bool starts_elsewhere =
      variant_ == Variant::kAdagrad && made_state_ && options.initial_accumulator_value != first_sum_;
  if (starts_elsewhere && used_state_) {
    refuse(kOptions.field("initial_accumulator_value"),
           "is %s, but the state began at %s and has been used since; add the group before the first step",
           Decimal(options.initial_accumulator_value).c_str(), Decimal(first_sum_).c_str());
  }
  const std::size_t groups = options_.size() + 1;
  options_.reserve(groups);
  device_lrs_.reserve(groups);
  DeviceMemory group_records(context_->backend(), static_cast<int64_t>(groups * sizeof(GroupRecord)));
  DeviceMemory coefficients = make_coefficients(groups);
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
    let_go({&group_records, &coefficients, &group_of});
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
  if (momentum_picks_formula(old.kind) && (old.momentum == 0.0) != (options.momentum == 0.0)) {
    refuse(kOptions.field("momentum"), "is %s, but whether group %d has momentum is fixed at creation",
           Decimal(options.momentum).c_str(), group);
  }
  if (group == 0 && (old.ema_decay == 0.0) != (options.ema_decay == 0.0)) {
    refuse(kOptions.field("ema_decay"), "is %s, but whether there is an average is fixed at creation",
           Decimal(options.ema_decay).c_str());
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
  CallStream call(*context_, stream);
  use(call);
  write_group(group, options, lr, call.stream());
  call.mark();
  options_[group] = options;
  device_lrs_[group] = lr;
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

}  // namespace gsc
