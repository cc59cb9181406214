// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TORCH_PLAN_HPP
#define GRADSCALER_ADAPTERS_TORCH_PLAN_HPP
//
// Assigns parameters to optimizers of this library. libtorch leaves out parameters without a gradient and counts steps
// for each parameter; an optimizer of this library steps on all of its tensors and counts once. So parameters that have
// been stepped on together share one, a cohort, and a cohort is split when a gradient is missing. There is nearly
// always just one. Include <gradscaler/adapters/torch.hpp>.
//
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gradscaler/adapters/torch/formats.hpp>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gradscaler::torch::detail {

/// A parameter that has a gradient in this step.
struct Member {
  at::Tensor param;
  at::Tensor grad;
  /// State of libtorch's optimizer, and remainders last.
  std::vector<Slot> slots;
  const SlotLayout *layout = nullptr;
  OptimizerOptions options;
  /// Steps that the state has behind it; of a member that is in no cohort yet.
  int64_t steps = 0;
  Place place;
  /// Where it begins among all parameters of the optimizer, by which stochastic rounding draws.
  int64_t offset = 0;
  const void *key() const { return param.unsafeGetTensorImpl(); }
};

inline auto values_of(const OptimizerOptions &o) {
  return std::tie(o.kind, o.flags, o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.momentum, o.dampening, o.lr_decay,
                  o.initial_accumulator_value, o.alpha);
}
/// What all members of a cohort have in common, besides their number of steps and of slots.
inline auto common_values_of(const OptimizerOptions &o) {
  return std::make_tuple(o.flags, o.state_format, o.master_format, o.seed);
}

/// Parameters with the same number of steps behind them, and the optimizer over them.
class Cohort {
 public:
  Cohort(std::vector<Member> members, int64_t steps) : members_(std::move(members)), steps_(steps) {
    for (Member &member : members_) member.grad.reset();
  }
  const std::vector<Member> &members() const { return members_; }

  /// Points the optimizer at the gradients and hyper-parameters of this step; `now` are the members of the cohort.
  void follow(const std::vector<Member> &now, gsc_stream stream) {
    std::vector<Tensor> params, grads;
    for (std::size_t i = 0; i < now.size(); ++i) {
      params.push_back(buffer_of(now[i].param, now[i].place));
      grads.push_back(buffer_of(now[i].grad, now[i].place));
      const auto is_same = [](const Slot &a, const Slot &b) { return a.is_same(b); };
      if (!std::equal(now[i].slots.begin(), now[i].slots.end(), members_[i].slots.begin(), members_[i].slots.end(),
                      is_same)) {
        const Place place{"state", now[i].place.group, now[i].place.index};
        bad_state(place.str() + " was replaced after a step; use load(), or make a new optimizer");
      }
    }
    if (!optimizer_) {
      make(now, params, grads, stream);
      return;
    }
    if (!params_.fits(params) || !grads_.fits(grads)) {
      bad_state("a parameter has another size or dtype than at its first step; make a new optimizer");
    }
    params_.follow(context(), params, stream);
    grads_.follow(context(), grads, stream);
    follow_options(now, stream);
  }

  Optimizer &optimizer() { return *optimizer_; }
  TensorListRef grads() const { return grads_.list(); }
  /// Steps applied, also before this optimizer was made. Blocks on a CUDA device.
  int64_t applied(gsc_stream stream) const { return optimizer_ ? optimizer_->get_steps_sync(stream).applied : steps_; }

 private:
  const Context &context() const { return context_of(resolve(members_[0].param.device())); }

  void make(const std::vector<Member> &now, const std::vector<Tensor> &params, const std::vector<Tensor> &grads,
            gsc_stream stream) {
    params_.follow(context(), params, stream);
    grads_.follow(context(), grads, stream);
    std::vector<TensorList> state;
    for (std::size_t slot = 0; slot < now[0].slots.size(); ++slot) {
      std::vector<Tensor> buffers;
      for (const Member &member : now) buffers.push_back(buffer_of(member.slots[slot]));
      state.emplace_back(context(), buffers);
    }
    const std::vector<TensorListRef> slots(state.begin(), state.end());
    Optimizer made(context(), now[0].options, params_.list(), grads_.list(), {}, slots);
    std::vector<std::size_t> firsts = {0};
    for (std::size_t i = 1; i < now.size(); ++i) {
      if (now[i].place.group != now[i - 1].place.group) firsts.push_back(i);
    }
    for (std::size_t group = 1; group < firsts.size(); ++group) {
      const std::size_t end = group + 1 < firsts.size() ? firsts[group + 1] : now.size();
      made.add_group(static_cast<int64_t>(firsts[group]), static_cast<int64_t>(end - firsts[group]),
                     now[firsts[group]].options);
    }
    made.set_steps({steps_, 0}, stream);
    std::vector<int64_t> offsets;
    for (const Member &member : now) offsets.push_back(member.offset);
    made.set_offsets(offsets, stream);
    optimizer_ = std::move(made);
    firsts_ = std::move(firsts);
    for (const std::size_t first : firsts_) options_.push_back(now[first].options);
  }

  void follow_options(const std::vector<Member> &now, gsc_stream stream) {
    for (std::size_t group = 0; group < firsts_.size(); ++group) {
      const OptimizerOptions &wanted = now[firsts_[group]].options;
      if (values_of(wanted) == values_of(options_[group])) continue;
      optimizer_->set_options(static_cast<int32_t>(group), wanted, stream);
      options_[group] = wanted;
    }
  }

  std::vector<Member> members_;
  int64_t steps_;
  FollowingList params_, grads_;
  std::optional<Optimizer> optimizer_;
  /// First member and hyper-parameters of each group of the optimizer.
  std::vector<std::size_t> firsts_;
  std::vector<OptimizerOptions> options_;
};

/// All cohorts of an optimizer, and those of the current step.
class Plan {
 public:
  /// Arranges the members of a step, which is not empty and all on one device.
  void arrange(std::vector<Member> now) {
    device_ = resolve(now[0].param.device());
    const gsc_stream stream = current_stream(device_);
    std::unordered_map<const void *, std::size_t> present;
    for (std::size_t i = 0; i < now.size(); ++i) present.emplace(now[i].key(), i);
    split(present, stream);
    gather_new(now);

    active_.clear();
    std::unordered_map<Cohort *, std::vector<Member>> members;
    for (Member &member : now) {
      Cohort *cohort = cohort_of_.at(member.key());
      if (members.find(cohort) == members.end()) active_.push_back(cohort);
      members[cohort].push_back(member);
    }
    for (Cohort *cohort : active_) cohort->follow(members[cohort], stream);
    if (active_.size() > 1) {
      std::vector<Tensor> grads;
      for (const Member &member : now) grads.push_back(buffer_of(member.grad, member.place));
      all_.follow(context_of(device_), grads, stream);
    }
    now_ = std::move(now);
  }

  /// The gradients of the step as one list.
  TensorListRef grads() const { return active_.size() == 1 ? active_[0]->grads() : all_.list(); }
  const std::vector<Cohort *> &active() const { return active_; }
  at::Device device() const { return device_; }
  /// Whether `later` has the gradients that were arranged, at the same addresses.
  bool has_grads_of(const std::vector<Member> &later) const {
    return std::equal(later.begin(), later.end(), now_.begin(), now_.end(), [](const Member &a, const Member &b) {
      return a.grad.is_same(b.grad) && a.grad.const_data_ptr() == b.grad.const_data_ptr();
    });
  }
  std::vector<at::Tensor> params() const { return tensors(&Member::param); }
  std::vector<at::Tensor> grad_tensors() const { return tensors(&Member::grad); }
  /// Releases the gradients, so that zero_grad() can free them.
  void release() { now_.clear(); }

  /// Calls visit(member, steps applied) for every parameter that has been stepped on. Blocks on a CUDA device.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto &cohort : cohorts_) {
      const int64_t applied = cohort->applied(current_stream(device_));
      for (const Member &member : cohort->members()) visit(member, applied);
    }
  }

 private:
  std::vector<at::Tensor> tensors(at::Tensor Member::*which) const {
    std::vector<at::Tensor> found;
    for (const Member &member : now_) found.push_back(member.*which);
    return found;
  }

  void add(std::vector<Member> members, int64_t steps) {
    cohorts_.push_back(std::make_unique<Cohort>(std::move(members), steps));
    for (const Member &member : cohorts_.back()->members()) cohort_of_[member.key()] = cohorts_.back().get();
  }

  /// Splits each cohort in which some members have a gradient and others do not.
  void split(const std::unordered_map<const void *, std::size_t> &present, gsc_stream stream) {
    for (std::size_t i = 0, count = cohorts_.size(); i < count; ++i) {
      std::vector<Member> with, without;
      for (const Member &member : cohorts_[i]->members()) {
        (present.find(member.key()) != present.end() ? with : without).push_back(member);
      }
      if (with.empty() || without.empty()) continue;
      const std::unique_ptr<Cohort> whole = std::move(cohorts_[i]);
      const int64_t steps = whole->applied(stream);
      add(std::move(with), steps);
      add(std::move(without), steps);
    }
    std::erase(cohorts_, nullptr);
  }

  /// Parameters of no cohort make new ones, by what all members of one have in common.
  void gather_new(const std::vector<Member> &now) {
    using Common = decltype(common_values_of(OptimizerOptions()));
    std::map<std::tuple<int64_t, std::size_t, Common>, std::vector<Member>> fresh;
    for (const Member &member : now) {
      if (cohort_of_.find(member.key()) == cohort_of_.end()) {
        fresh[{member.steps, member.slots.size(), common_values_of(member.options)}].push_back(member);
      }
    }
    for (auto &[common, members] : fresh) add(std::move(members), std::get<0>(common));
  }

  std::vector<std::unique_ptr<Cohort>> cohorts_;
  std::unordered_map<const void *, Cohort *> cohort_of_;
  std::vector<Cohort *> active_;
  std::vector<Member> now_;
  FollowingList all_;
  at::Device device_ = at::kCPU;
};

}  // namespace gradscaler::torch::detail

#endif  // GRADSCALER_ADAPTERS_TORCH_PLAN_HPP
