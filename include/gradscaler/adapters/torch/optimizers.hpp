// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TORCH_OPTIMIZERS_HPP
#define GRADSCALER_ADAPTERS_TORCH_OPTIMIZERS_HPP
//
// AdamW, Adam, SGD, Adagrad and RMSprop: the classes of torch::optim with a step() of this library. Constructors, options,
// parameter groups, schedulers, zero_grad() and archives are libtorch's own; an archive of one class can be loaded by the
// other. Parameters without a gradient are left out, as there, and so are their step counts.
//
// The formulas are those of PyTorch's optimizers in Python; libtorch's own differ from them by rounding. State of fp16
// and bf16 parameters is fp32, or in the formats that StateOptions names. Gradients must lie in memory as their
// parameters do.
//
// Steps are counted where the tensors are, so that nothing waits: step() of the states in state() is brought up to date
// by save(). Include <gradscaler/adapters/torch.hpp>.
//
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gradscaler/adapters/torch/plan.hpp>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace gradscaler::torch {

namespace detail {

/// Hyper-parameters, state and step counts of an optimizer of torch::optim, in this library's terms.
template <class Base>
struct Traits;

/// Of those that count steps and begin with zeros.
template <class OptionsType, class StateType>
struct CountedTraits {
  using Options = OptionsType;
  using State = StateType;
  static double first_value(const Options &) { return 0.0; }
  static int64_t steps(const State &state) { return state.step(); }
  static void set_steps(State &state, int64_t steps) { state.step(steps); }
};

template <class Options, class State, OptimizerKind kind>
struct AdamTraits : CountedTraits<Options, State> {
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
  static int64_t steps(const FormatState<State> &state) {
    return state.momentum_buffer().defined() ? std::max<int64_t>(state.steps, 1) : state.steps;
  }
  static void set_steps(FormatState<State> &state, int64_t steps) { state.steps = steps; }
};

template <>
struct Traits<::torch::optim::Adagrad>
    : CountedTraits<::torch::optim::AdagradOptions, ::torch::optim::AdagradParamState> {
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
};

template <>
struct Traits<::torch::optim::RMSprop>
    : CountedTraits<::torch::optim::RMSpropOptions, ::torch::optim::RMSpropParamState> {
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
    if (o.momentum() > 0) found.push_back(&state.momentum_buffer());
    if (o.centered()) found.push_back(&state.grad_avg());
    return found;
  }
};

/// The parameters of an optimizer that have a gradient, each checked. Nothing is changed.
inline std::vector<Member> members_with_grads(::torch::optim::Optimizer &optimizer) {
  std::vector<Member> found;
  int64_t offset = 0;
  const auto &groups = optimizer.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::vector<at::Tensor> &params = groups[group].params();
    for (std::size_t index = 0; index < params.size(); ++index) {
      const int64_t first = offset;
      offset += (params[index].numel() + kScaleBlock - 1) / kScaleBlock * kScaleBlock;
      const at::Tensor &grad = params[index].grad();
      if (!grad.defined()) continue;
      Member member;
      member.offset = first;
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

/// What a format asks of a parameter.
inline void require_format(const StateOptions &state, const Member &member) {
  const at::ScalarType dtype = member.param.scalar_type();
  const Place place{"value", member.place.group, member.place.index};
  if (state.state_format() != StateFormat::full && dtype == at::kDouble) {
    bad_argument(place.str() + " is Double, whose state is Double; put it into a group with StateFormat::full");
  }
  if (state.master_format() != MasterFormat::none && dtype != at::kHalf && dtype != at::kBFloat16) {
    bad_argument(place.str() + " is " + c10::toString(dtype) +
                 ", but masters are those of Half and BFloat16; put it into a group with MasterFormat::none");
  }
}

}  // namespace detail

/// An optimizer of torch::optim, stepping through this library.
template <class Base>
class FusedOptimizer : public Base, public detail::Fused {
  using Options = typename detail::Traits<Base>::Options;

 public:
  using Base::Base;
  /// The same with state in other formats than fp32.
  FusedOptimizer(std::vector<::torch::optim::OptimizerParamGroup> groups, const Options &options, StateOptions state)
      : Base(std::move(groups), options), state_options_{std::move(state)} {}
  FusedOptimizer(std::vector<at::Tensor> params, const Options &options, StateOptions state)
      : Base(std::move(params), options), state_options_{std::move(state)} {}

  /// Of a group. Those that were not set have the options of group 0, as given to the constructor.
  const StateOptions &state_options(std::size_t group) const {
    const auto found = groups_.find(group);
    return found != groups_.end() ? found->second : state_options_;
  }
  /// From the next step on: state that there is will be converted. Blocks on a CUDA device.
  void state_options(std::size_t group, StateOptions options) {
    for (void *key : note_steps()) this->state().erase(key);
    groups_[group] = std::move(options);
    chosen_by_.erase(group);
    plan_ = std::make_shared<detail::Plan>();
  }

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
    std::map<std::size_t, OptimizerOptions> chosen_by = chosen_by_;
    for (detail::Member &member : now) {
      const auto &options = static_cast<const Options &>(this->param_groups()[member.place.group].options());
      const StateOptions &state = state_options(member.place.group);
      detail::require_format(state, member);
      State none;
      State *const found = state_of(member);
      State &own = found ? *found : none;
      member.options = Traits::options(options);
      member.options.state_format = state.state_format();
      member.options.master_format = state.master_format();
      member.options.seed = state.seed();
      member.steps = Traits::steps(own);
      const auto dtype = static_cast<DType>(detail::buffer_of(member.param, member.place).dtype);
      const auto [chosen, is_first] = chosen_by.try_emplace(member.place.group, member.options);
      if (!is_first) chosen->second = with_rates_of(chosen->second, member.options);
      const detail::SlotLayout &layout = *(member.layout = &detail::slot_layout(chosen->second, dtype));
      const std::vector<at::Tensor *> slots = tensors_of(own, options, layout);
      const auto &dtypes = layout.dtypes[static_cast<std::size_t>(state.state_format())];
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const at::Tensor &scales = own.added[scale_name(layout, i)];
        const detail::Place place{"state", member.place.group, member.place.index};
        detail::Slot held = detail::held_slot(*slots[i], scales, layout, i, place, own.has_earlier_codes);
        member.slots.push_back(detail::slot_for(std::move(held), member.param, dtypes[i],
                                                is_remainder(layout, i) ? 0.0 : Traits::first_value(options)));
      }
    }
    const std::vector<detail::Member> members = now;
    plan_->arrange(std::move(now));
    for (const detail::Member &member : members) keep_state(member);
    chosen_by_ = std::move(chosen_by);
    return true;
  }

  /// Blocks on a CUDA device.
  void save(::torch::serialize::OutputArchive &archive) const override {
    // Where libtorch has no count of steps, a state that no step has used is left out.
    auto &states = const_cast<FusedOptimizer *>(this)->state();
    std::vector<std::pair<void *, std::unique_ptr<::torch::optim::OptimizerParamState>>> unused;
    for (void *key : const_cast<FusedOptimizer *>(this)->note_steps()) {
      const auto found = states.find(key);
      unused.emplace_back(key, std::move(found->second));
      states.erase(found);
    }
    Base::save(archive);
    for (auto &[key, state] : unused) states[key] = std::move(state);
  }

  /// Of any format; the state is converted to that of its group at the next step.
  void load(::torch::serialize::InputArchive &archive) override {
    c10::IValue version;
    if (archive.try_read("pytorch_version", version)) {
      ::torch::optim::serialize<State, Options>(archive, *this);
    } else {
      Base::load(archive);
    }
    plan_ = std::make_shared<detail::Plan>();
    chosen_by_.clear();
  }

 private:
  using Traits = detail::Traits<Base>;
  using State = detail::FormatState<typename Traits::State>;

  /// Null if there is none. State of libtorch's class becomes one of ours.
  State *state_of(const detail::Member &member) {
    const auto found = this->state().find(member.param.unsafeGetTensorImpl());
    if (found == this->state().end()) return nullptr;
    if (dynamic_cast<State *>(found->second.get()) == nullptr) {
      found->second = std::make_unique<State>(static_cast<const typename Traits::State &>(*found->second));
    }
    return static_cast<State *>(found->second.get());
  }

  static std::string scale_name(const detail::SlotLayout &layout, std::size_t slot) {
    return layout.names[slot] + "_scale";
  }

  /// `now` with how fast means moved when the formats of the group were chosen, if these have been. Without momentum
  /// there has been no buffer.
  static OptimizerOptions with_rates_of(const OptimizerOptions &before, OptimizerOptions now) {
    const auto has_momentum = [](const OptimizerOptions &o) { return o.momentum.value_or(0.0) > 0.0; };
    if (has_momentum(before) != has_momentum(now)) return now;
    std::tie(now.beta1, now.beta2, now.momentum, now.alpha) =
        std::tie(before.beta1, before.beta2, before.momentum, before.alpha);
    return now;
  }

  static bool is_remainder(const detail::SlotLayout &layout, std::size_t slot) {
    return layout.names[slot] == detail::SlotLayout::kRemainder;
  }

  /// Tensors of the slots, in the library's order: libtorch's, and the remainder.
  static std::vector<at::Tensor *> tensors_of(State &state, const Options &options, const detail::SlotLayout &layout) {
    std::vector<at::Tensor *> found = Traits::slots(state, options);
    if (found.size() < layout.names.size()) found.push_back(&state.added[detail::SlotLayout::kRemainder]);
    return found;
  }

  void keep_state(const detail::Member &member) {
    State *own = state_of(member);
    if (own == nullptr) {
      auto &state = this->state()[member.param.unsafeGetTensorImpl()];
      state = std::make_unique<State>();
      own = static_cast<State *>(state.get());
    }
    const auto &options = static_cast<const Options &>(this->param_groups()[member.place.group].options());
    const std::vector<at::Tensor *> slots = tensors_of(*own, options, *member.layout);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      *slots[i] = member.slots[i].values;
      own->added[scale_name(*member.layout, i)] = member.slots[i].scales;
    }
    own->has_earlier_codes = false;
    if (slots.empty() || !is_remainder(*member.layout, slots.size() - 1)) {
      own->added.erase(detail::SlotLayout::kRemainder);
    }
  }

  /// A scaler skips steps without the host's knowledge: brings the counts of the states up to date. Returns those that
  /// pass for stepped on, but are not.
  std::vector<void *> note_steps() {
    std::vector<void *> unused;
    plan_->for_each([&](const detail::Member &member, int64_t applied) {
      const auto found = this->state().find(member.param.unsafeGetTensorImpl());
      if (found == this->state().end()) return;
      State &state = static_cast<State &>(*found->second);
      Traits::set_steps(state, applied);
      if (applied == 0 && Traits::steps(state) != 0) unused.push_back(found->first);
    });
    return unused;
  }

  StateOptions state_options_;
  std::map<std::size_t, StateOptions> groups_;
  /// By group: with what the formats of its state were chosen. They stay if that changes.
  std::map<std::size_t, OptimizerOptions> chosen_by_;
};

using AdamW = FusedOptimizer<::torch::optim::AdamW>;
using Adam = FusedOptimizer<::torch::optim::Adam>;
using SGD = FusedOptimizer<::torch::optim::SGD>;
using Adagrad = FusedOptimizer<::torch::optim::Adagrad>;
using RMSprop = FusedOptimizer<::torch::optim::RMSprop>;

}  // namespace gradscaler::torch

#endif  // GRADSCALER_ADAPTERS_TORCH_OPTIMIZERS_HPP
