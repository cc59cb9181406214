// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TORCH_OPTIMIZERS_HPP
#define GRADSCALER_ADAPTERS_TORCH_OPTIMIZERS_HPP
//
// AdamW, Adam, SGD, Adagrad and RMSprop: the classes of torch::optim with a step() of this library. Constructors, options,
// parameter groups, schedulers, zero_grad() and archives are libtorch's own; an archive of one class can be loaded by the
// other. Parameters without a gradient are left out, as there, and so are their step counts.
//
// The formulas are those of PyTorch's optimizers in Python; libtorch's own differ from them by rounding. State of fp16
// and bf16 parameters is fp32. Gradients must lie in memory as their parameters do.
//
// Steps are counted where the tensors are, so that nothing waits: step() of the states in state() is brought up to date
// by save(). Include <gradscaler/adapters/torch.hpp>.
//
#include <cstddef>
#include <cstdint>
#include <gradscaler/adapters/torch/plan.hpp>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace gradscaler::torch {

namespace detail {

/// Hyper-parameters, state and step counts of an optimizer of torch::optim, in this library's terms.
template <class Base>
struct Traits;

template <class OptionsType, class StateType, OptimizerKind kind>
struct AdamTraits {
  using Options = OptionsType;
  using State = StateType;
  static OptimizerOptions options(const Options &o) {
    return {.kind = kind,
            .flags = o.amsgrad() ? static_cast<uint32_t>(GSC_OPTIMIZER_AMSGRAD) : 0u,
            .lr = o.lr(),
            .beta1 = std::get<0>(o.betas()),
            .beta2 = std::get<1>(o.betas()),
            .eps = o.eps(),
            .weight_decay = o.weight_decay()};
  }
  static std::vector<at::Tensor *> slots(State &state, const Options &o) {
    std::vector<at::Tensor *> found = {&state.exp_avg(), &state.exp_avg_sq()};
    if (o.amsgrad()) found.push_back(&state.max_exp_avg_sq());
    return found;
  }
  static double first_value(const Options &) { return 0.0; }
  static int64_t steps(const State &state) { return state.step(); }
  static void set_steps(State &state, int64_t steps) { state.step(steps); }
};
template <>
struct Traits<::torch::optim::AdamW>
    : AdamTraits<::torch::optim::AdamWOptions, ::torch::optim::AdamWParamState, OptimizerKind::adamw> {};
template <>
struct Traits<::torch::optim::Adam>
    : AdamTraits<::torch::optim::AdamOptions, ::torch::optim::AdamParamState, OptimizerKind::adam> {};

template <>
struct Traits<::torch::optim::SGD> {
  using Options = ::torch::optim::SGDOptions;
  using State = ::torch::optim::SGDParamState;
  static OptimizerOptions options(const Options &o) {
    return {.kind = OptimizerKind::sgd,
            .flags = o.nesterov() ? static_cast<uint32_t>(GSC_OPTIMIZER_NESTEROV) : 0u,
            .lr = o.lr(),
            .weight_decay = o.weight_decay(),
            .momentum = o.momentum(),
            .dampening = o.dampening()};
  }
  static std::vector<at::Tensor *> slots(State &state, const Options &o) {
    return o.momentum() != 0 ? std::vector<at::Tensor *>{&state.momentum_buffer()} : std::vector<at::Tensor *>{};
  }
  static double first_value(const Options &) { return 0.0; }
  /// libtorch has no count here: a buffer is there from the first step on, which treats dampening differently.
  static int64_t steps(const State &state) { return state.momentum_buffer().defined() ? 1 : 0; }
  static void set_steps(State &, int64_t) {}
};

template <>
struct Traits<::torch::optim::Adagrad> {
  using Options = ::torch::optim::AdagradOptions;
  using State = ::torch::optim::AdagradParamState;
  static OptimizerOptions options(const Options &o) {
    return {.kind = OptimizerKind::adagrad,
            .lr = o.lr(),
            .eps = o.eps(),
            .weight_decay = o.weight_decay(),
            .lr_decay = o.lr_decay(),
            .initial_accumulator_value = o.initial_accumulator_value()};
  }
  static std::vector<at::Tensor *> slots(State &state, const Options &) { return {&state.sum()}; }
  static double first_value(const Options &o) { return o.initial_accumulator_value(); }
  static int64_t steps(const State &state) { return state.step(); }
  static void set_steps(State &state, int64_t steps) { state.step(steps); }
};

template <>
struct Traits<::torch::optim::RMSprop> {
  using Options = ::torch::optim::RMSpropOptions;
  using State = ::torch::optim::RMSpropParamState;
  static OptimizerOptions options(const Options &o) {
    return {.kind = OptimizerKind::rmsprop,
            .flags = o.centered() ? static_cast<uint32_t>(GSC_OPTIMIZER_CENTERED) : 0u,
            .lr = o.lr(),
            .eps = o.eps(),
            .weight_decay = o.weight_decay(),
            .momentum = o.momentum(),
            .alpha = o.alpha()};
  }
  static std::vector<at::Tensor *> slots(State &state, const Options &o) {
    std::vector<at::Tensor *> found = {&state.square_avg()};
    if (o.momentum() > 0 || o.centered()) found.push_back(&state.momentum_buffer());
    if (o.centered()) found.push_back(&state.grad_avg());
    return found;
  }
  static double first_value(const Options &) { return 0.0; }
  static int64_t steps(const State &state) { return state.step(); }
  static void set_steps(State &state, int64_t steps) { state.step(steps); }
};

/// The parameters of an optimizer that have a gradient, each checked. Nothing is changed.
inline std::vector<Member> members_with_grads(::torch::optim::Optimizer &optimizer) {
  std::vector<Member> found;
  const auto &groups = optimizer.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::vector<at::Tensor> &params = groups[group].params();
    for (std::size_t index = 0; index < params.size(); ++index) {
      const at::Tensor &grad = params[index].grad();
      if (!grad.defined()) continue;
      Member member;
      member.param = params[index];
      member.grad = grad;
      member.place = {"gradient", group, index};
      buffer_of(grad, member.place);
      found.push_back(std::move(member));
    }
  }
  return found;
}

/// What GradScaler needs of an optimizer of this header.
class Fused {
 public:
  virtual ~Fused() = default;
  /// Arranges the plan for the gradients that there are now; false if there are none. On error nothing changes.
  virtual bool prepare() = 0;
  /// Another one after load().
  const std::shared_ptr<Plan> &plan() const { return plan_; }

 protected:
  std::shared_ptr<Plan> plan_ = std::make_shared<Plan>();
};

/// What a fused step asks of parameters beyond what unscaling asks of gradients.
inline void require_steppable(const std::vector<Member> &members) {
  for (const Member &member : members) {
    const Place place{"value", member.place.group, member.place.index};
    buffer_of(member.param, place);
    if (member.param.device() != members[0].param.device()) {
      bad_argument(place.str() + " is on " + member.param.device().str() + ", others are on " +
                   members[0].param.device().str() + "; make one optimizer for each device");
    }
    if (!same_layout(member.param, member.grad)) {
      bad_argument(member.place.str() + c10::str(" has sizes ", member.grad.sizes(), " and strides ",
                                                 member.grad.strides(), ", but the parameter has ",
                                                 member.param.sizes(), " and ", member.param.strides(),
                                                 "; copy it into a tensor that lies in memory as the parameter does"));
    }
  }
}

/// `slot` as state of `param`: another tensor if it is not there, not in fp32 or fp64, or not laid out like it.
inline at::Tensor slot_for(const at::Tensor &slot, const at::Tensor &param, double first_value) {
  const at::ScalarType dtype = param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (slot.defined() && slot.scalar_type() == dtype && slot.device() == param.device() && same_layout(slot, param)) {
    return slot;
  }
  at::Tensor made = at::full_like(param.detach(), first_value, param.options().dtype(dtype).requires_grad(false));
  if (slot.defined()) made.copy_(slot);
  return made;
}

}  // namespace detail

/// An optimizer of torch::optim, stepping through this library.
template <class Base>
class FusedOptimizer : public Base, public detail::Fused {
 public:
  using Base::Base;

  /// As libtorch's, without a scaler: no check, no unscaling.
  at::Tensor step(::torch::optim::Optimizer::LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      const at::AutoGradMode enabled(true);
      loss = closure();
    }
    if (!prepare()) return loss;
    for (detail::Cohort *cohort : plan_->active()) cohort->optimizer().step(detail::current_stream(plan_->device()));
    detail::wrote(plan_->params());
    plan_->release();
    return loss;
  }

  bool prepare() override {
    const at::NoGradGuard no_grad;
    std::vector<detail::Member> now = detail::members_with_grads(*this);
    if (now.empty()) return false;
    detail::require_steppable(now);
    for (detail::Member &member : now) {
      const auto &options = static_cast<const Options &>(this->param_groups()[member.place.group].options());
      const auto found = this->state().find(member.param.unsafeGetTensorImpl());
      State own = found != this->state().end() ? static_cast<const State &>(*found->second) : State();
      member.options = Traits::options(options);
      member.steps = Traits::steps(own);
      for (const at::Tensor *slot : Traits::slots(own, options)) {
        member.slots.push_back(detail::slot_for(*slot, member.param, Traits::first_value(options)));
      }
    }
    const std::vector<detail::Member> members = now;
    plan_->arrange(std::move(now));
    for (const detail::Member &member : members) keep_state(member);
    return true;
  }

  /// Blocks on a CUDA device.
  void save(::torch::serialize::OutputArchive &archive) const override {
    // A scaler skips steps without the host's knowledge: what is saved needs their counts. Where libtorch has none, a
    // state that no step has used is left out.
    auto &states = const_cast<FusedOptimizer *>(this)->state();
    std::vector<std::pair<void *, std::unique_ptr<::torch::optim::OptimizerParamState>>> unused;
    plan_->for_each([&](const detail::Member &member, int64_t applied) {
      const auto found = states.find(member.param.unsafeGetTensorImpl());
      if (found == states.end()) return;
      Traits::set_steps(static_cast<State &>(*found->second), applied);
      if (applied != 0 || Traits::steps(static_cast<State &>(*found->second)) == 0) return;
      unused.emplace_back(found->first, std::move(found->second));
      states.erase(found);
    });
    Base::save(archive);
    for (auto &[key, state] : unused) states[key] = std::move(state);
  }

  void load(::torch::serialize::InputArchive &archive) override {
    Base::load(archive);
    plan_ = std::make_shared<detail::Plan>();
  }

 private:
  using Traits = detail::Traits<Base>;
  using Options = typename Traits::Options;
  using State = typename Traits::State;

  void keep_state(const detail::Member &member) {
    auto &state = this->state()[member.param.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<State>();
    const auto &options = static_cast<const Options &>(this->param_groups()[member.place.group].options());
    const std::vector<at::Tensor *> slots = Traits::slots(static_cast<State &>(*state), options);
    for (std::size_t i = 0; i < slots.size(); ++i) *slots[i] = member.slots[i];
  }
};

using AdamW = FusedOptimizer<::torch::optim::AdamW>;
using Adam = FusedOptimizer<::torch::optim::Adam>;
using SGD = FusedOptimizer<::torch::optim::SGD>;
using Adagrad = FusedOptimizer<::torch::optim::Adagrad>;
using RMSprop = FusedOptimizer<::torch::optim::RMSprop>;

}  // namespace gradscaler::torch

#endif  // GRADSCALER_ADAPTERS_TORCH_OPTIMIZERS_HPP
