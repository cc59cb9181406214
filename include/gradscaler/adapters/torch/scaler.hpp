// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_ADAPTERS_TORCH_SCALER_HPP
#define GRADSCALER_ADAPTERS_TORCH_SCALER_HPP
//
// gradscaler::torch::GradScaler: torch.amp.GradScaler for the C++ frontend. Include <gradscaler/adapters/torch.hpp>.
//
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gradscaler/adapters/torch/optimizers.hpp>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace gradscaler::torch {

/// Scales losses, unscales gradients, skips the steps of optimizers whose gradients overflowed, and moves the scale.
/// Use it from one thread at a time.
class GradScaler {
 public:
  /// `device`: the CPU or a CUDA device, on which the scale lives. Defaults and the rest of `options` are PyTorch's.
  explicit GradScaler(at::Device device, const ScalerOptions &options = {})
      : device_(detail::resolve(device)), scaler_(detail::context_of(device_), options) {}

  /// outputs * scale, as an operation of autograd. Disabled: `outputs` itself.
  at::Tensor scale(const at::Tensor &outputs) const {
    return is_enabled() ? outputs * scale_tensor().to(outputs.device(), /*non_blocking=*/true) : outputs;
  }
  std::vector<at::Tensor> scale(const std::vector<at::Tensor> &outputs) const {
    std::vector<at::Tensor> scaled;
    for (const at::Tensor &output : outputs) scaled.push_back(scale(output));
    return scaled;
  }

  /// Divides the gradients of the optimizer's parameters by the scale, in place, so that you can read and change them
  /// before step(). Call it at most once between two updates.
  void unscale_(::torch::optim::Optimizer &optimizer) {
    if (!is_enabled()) return;
    Iteration &iteration = at_stage(optimizer, "unscale_");
    if (iteration.stage == Stage::unscaled) {
      detail::bad_state("unscale_() has already been called on these parameters since the last update()");
    }
    if (iteration.stage == Stage::clipped) {
      detail::bad_state("unscale_() is called after clip_grad_norm_(); call it before");
    }
    gather(optimizer, iteration, "unscale_");
    unscale(iteration);
  }

  /// torch::nn::utils::clip_grad_norm_ on the unscaled gradients, without waiting for the norm, which is in
  /// native().get_report_sync(). With an optimizer of this library, and without unscale_(), it is folded into step().
  /// Once between two updates, and before step(). All gradients on one device.
  void clip_grad_norm_(::torch::optim::Optimizer &optimizer, double max_norm, Norm norm = Norm::l2) {
    Iteration &iteration = at_stage(optimizer, "clip_grad_norm_");
    const bool fresh = iteration.stage == Stage::ready;
    if (fresh) gather(optimizer, iteration, "clip_grad_norm_");
    if (iteration.lists.size() > 1) {
      detail::bad_argument("clip_grad_norm_: the gradients are on several devices; use unscale_() and libtorch's own");
    }
    // Where the step is not one pass over one list, the clipped gradients must be in memory.
    const bool folds = iteration.plan && iteration.plan->active().size() == 1;
    if (fresh && !folds && is_enabled()) unscale(iteration);
    scaler_.clip_grad_norm(iteration.lists[0].list, max_norm, norm, iteration.lists[0].stream);
    if (!folds || !fresh) detail::wrote(iteration.grads);
    if (fresh && iteration.stage == Stage::ready) iteration.stage = Stage::clipped;
  }

  /// optimizer.step(), or nothing if a gradient is inf or NaN; they are unscaled first if they have not been. With an
  /// optimizer of this library all of it is one pass, and nothing waits for the device. Once between two updates.
  void step(::torch::optim::Optimizer &optimizer) {
    if (dynamic_cast<::torch::optim::LBFGS *>(&optimizer) != nullptr) {
      detail::bad_argument("step: LBFGS evaluates the loss several times a step, which loss scaling does not allow");
    }
    Iteration &iteration = at_stage(optimizer, "step");
    if (const auto *fused = dynamic_cast<const detail::Fused *>(&optimizer)) {
      step_fused(optimizer, *fused, iteration);
    } else {
      step_native(optimizer, iteration);
    }
    iteration.stage = Stage::stepped;
    iteration.grads.clear();
  }

  /// Ends the iteration: lowers the scale if a gradient was inf or NaN, raises it after enough clean steps.
  void update() {
    scaler_.update(stream());
    end_iteration();
  }
  /// Ends the iteration with a scale of the caller's.
  void update(float new_scale) {
    scaler_.set_scale(new_scale, stream());
    end_iteration();
  }
  /// Ends the iteration without an update of the scale; what unscale_() wrote stays written.
  void discard() {
    scaler_.discard();
    end_iteration();
  }

  /// Blocks on a CUDA device.
  float get_scale() const { return scaler_.get_scale_sync(stream()); }
  double get_growth_factor() const { return scaler_.get_options().growth_factor; }
  void set_growth_factor(double factor) { set_option(&ScalerOptions::growth_factor, factor); }
  double get_backoff_factor() const { return scaler_.get_options().backoff_factor; }
  void set_backoff_factor(double factor) { set_option(&ScalerOptions::backoff_factor, factor); }
  int32_t get_growth_interval() const { return scaler_.get_options().growth_interval; }
  void set_growth_interval(int32_t interval) { set_option(&ScalerOptions::growth_interval, interval); }
  bool is_enabled() const { return scaler_.get_options().enabled; }

  /// The scaler behind this: reports, history, limits, ranks. Its lists are those of the gradients.
  gradscaler::GradScaler &native() { return scaler_; }

  /// Writes the state under the names of PyTorch's state_dict and of gsc_scaler_state. Blocks on a CUDA device.
  void save(::torch::serialize::OutputArchive &archive) const {
    archive.write("enabled", c10::IValue(is_enabled()));
    if (!is_enabled()) return;
    gsc_scaler_state state = scaler_.get_state_sync(stream());
    for_each_field(state, [&](const char *name, const auto &value) {
      if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>) {
        archive.write(name, c10::IValue(static_cast<double>(value)));
      } else {
        archive.write(name, c10::IValue(static_cast<int64_t>(value)));
      }
    });
  }
  /// Restores what save() wrote, factors and interval included, and ends the iteration. On error nothing changes.
  void load(::torch::serialize::InputArchive &archive) {
    if (!is_enabled()) return;
    c10::IValue found;
    if (!archive.try_read("enabled", found) || !found.isBool()) detail::bad_argument("archive is not of a GradScaler");
    if (!found.toBool()) detail::bad_argument("archive is of a disabled GradScaler, which has no state");
    gsc_scaler_state state{};
    state.struct_size = sizeof state;
    state.format = GSC_SCALER_STATE_FORMAT;
    for_each_field(state, [&](const char *name, auto &value) {
      using Field = std::decay_t<decltype(value)>;
      constexpr bool real = std::is_floating_point_v<Field>;
      if (!archive.try_read(name, found) && std::string_view(name) == "spikes") return;  // of before there were any
      if (!archive.try_read(name, found) || !(real ? found.isDouble() : found.isInt())) {
        detail::bad_argument(std::string("archive has no field ") + name);
      }
      value = real ? static_cast<Field>(found.toDouble()) : static_cast<Field>(found.toInt());
    });
    scaler_.set_state(state, stream());
    end_iteration();
  }

 private:
  template <typename T>
  void set_option(T ScalerOptions::*option, T value) {
    ScalerOptions options = scaler_.get_options();
    options.*option = value;
    scaler_.set_options(options, stream());
  }

  enum class Stage { ready, clipped, unscaled, stepped };

  /// The gradients of one device.
  struct DeviceGrads {
    TensorListRef list;
    gsc_stream stream;
  };
  /// What has been done for one optimizer since the last update.
  struct Iteration {
    Stage stage = Stage::ready;
    /// The optimizer's parameters, by which it is known: another one may have its address by now.
    std::vector<detail::Identity> params;
    /// Those of them that had a gradient.
    std::unordered_set<const void *> with_grads;
    std::vector<DeviceGrads> lists;
    /// Held until the step, so that their addresses stay theirs.
    std::vector<at::Tensor> grads;
    /// Of an optimizer of this library.
    std::shared_ptr<detail::Plan> plan;
    /// Of an optimizer of libtorch: by device, kept from one iteration to the next.
    std::map<int, detail::FollowingList> own;
  };

  gsc_stream stream() const { return detail::current_stream(device_); }

  /// A copy of the current scale, which a graph may keep.
  at::Tensor scale_tensor() const {
    const float *word = scaler_.get_device_state().scale;
    return at::from_blob(const_cast<float *>(word), {}, at::TensorOptions().dtype(at::kFloat).device(device_)).clone();
  }

  Iteration &at_stage(const ::torch::optim::Optimizer &optimizer, const std::string &call) {
    Iteration &iteration = iterations_[&optimizer];
    std::vector<detail::Identity> params;
    for (const auto &group : optimizer.param_groups()) {
      params.insert(params.end(), group.params().begin(), group.params().end());
    }
    // An optimizer only gains parameters. With others it is another one, whose predecessor has died.
    const bool is_same = iteration.params.size() <= params.size() &&
                         std::equal(iteration.params.begin(), iteration.params.end(), params.begin());
    if (!is_same) iteration = {};
    iteration.params = std::move(params);
    if (iteration.stage == Stage::stepped) {
      detail::bad_state(call + "() is called after step() on these parameters; update() comes first");
    }
    return iteration;
  }

  /// Lists over the gradients that there are now.
  void gather(::torch::optim::Optimizer &optimizer, Iteration &iteration, const std::string &call) {
    const at::NoGradGuard no_grad;
    const std::vector<detail::Member> members = detail::members_with_grads(optimizer);
    for (const detail::Member &member : members) {
      if (member.grad.device().type() != device_.type()) {
        detail::bad_argument(call + ": " + member.place.str() + " is on " + member.grad.device().str() +
                             ", but the scaler is on " + device_.str() + "; make one scaler for each kind of device");
      }
      if (unscaled_.count(member.grad) != 0) {
        detail::bad_state(call + ": " + member.place.str() +
                          " has already been unscaled since the last update(), for another optimizer");
      }
    }
    std::vector<DeviceGrads> lists;
    std::vector<at::Tensor> grads;
    if (auto *fused = dynamic_cast<detail::Fused *>(&optimizer)) {
      if (fused->prepare()) {
        iteration.plan = fused->plan();
        lists = {{iteration.plan->grads(), detail::current_stream(iteration.plan->device())}};
        grads = iteration.plan->grad_tensors();
      }
    } else {
      std::map<int, std::vector<Tensor>> buffers;
      std::map<int, at::Device> devices;
      for (const detail::Member &member : members) {
        require_wide_enough(member);
        const at::Device device = detail::resolve(member.grad.device());
        devices.emplace(device.index(), device);
        buffers[device.index()].push_back(detail::buffer_of(member.grad, member.place));
        grads.push_back(member.grad);
      }
      for (const auto &[index, device] : devices) {
        const gsc_stream stream = detail::current_stream(device);
        detail::FollowingList &own = iteration.own[index];
        own.follow(detail::context_of(device), buffers[index], stream);
        lists.push_back({own.list(), stream});
      }
    }
    if (lists.empty()) detail::bad_state(call + ": no parameter of the optimizer has a gradient");
    iteration.lists = std::move(lists);
    iteration.grads = std::move(grads);
    iteration.with_grads.clear();
    for (const detail::Member &member : members) iteration.with_grads.insert(member.key());
  }

  /// libtorch's optimizers see gradients that were unscaled in memory, where fp16 may have no room for them.
  static void require_wide_enough(const detail::Member &member) {
    if (member.grad.scalar_type() != at::kHalf) return;
    detail::bad_argument(
        member.place.str() +
        " is fp16, in which unscaled gradients underflow: keep the parameter in fp32 and use autocast, "
        "or an optimizer of gradscaler::torch, which unscales in fp32");
  }

  void unscale(Iteration &iteration) {
    for (const DeviceGrads &grads : iteration.lists) scaler_.unscale(grads.list, grads.stream);
    detail::wrote(iteration.grads);
    unscaled_.insert(iteration.grads.begin(), iteration.grads.end());
    iteration.stage = Stage::unscaled;
  }

  /// Refuses gradients that appeared after unscale_() or clip_grad_norm_(): they are still scaled.
  static void require_unscaled(const ::torch::optim::Optimizer &optimizer, const Iteration &iteration) {
    const auto &groups = optimizer.param_groups();
    for (std::size_t group = 0; group < groups.size(); ++group) {
      const std::vector<at::Tensor> &params = groups[group].params();
      for (std::size_t index = 0; index < params.size(); ++index) {
        if (!params[index].grad().defined() || iteration.with_grads.count(params[index].unsafeGetTensorImpl()) != 0) {
          continue;
        }
        detail::bad_state("step: " + detail::Place{"gradient", group, index}.str() +
                          " came after unscale_() or clip_grad_norm_(), and is still scaled");
      }
    }
  }

  void step_native(::torch::optim::Optimizer &optimizer, Iteration &iteration) {
    if (is_enabled() && iteration.stage == Stage::ready) {
      gather(optimizer, iteration, "step");
      unscale(iteration);
    } else if (is_enabled()) {
      require_unscaled(optimizer, iteration);
    }
    // Without a list, of a disabled scaler that was not asked to clip, the step is always applied.
    bool apply = true;
    for (const DeviceGrads &grads : iteration.lists) apply &= scaler_.should_step_sync(grads.list, grads.stream);
    if (apply) optimizer.step();
  }

  void step_fused(::torch::optim::Optimizer &optimizer, const detail::Fused &fused, Iteration &iteration) {
    if (iteration.stage == Stage::ready) {
      gather(optimizer, iteration, "step");
    } else if (iteration.plan != fused.plan()) {
      detail::bad_state("step: the optimizer was made or loaded after unscale_() or clip_grad_norm_(); do that before");
    } else if (!iteration.plan->has_grads_of(detail::members_with_grads(optimizer))) {
      detail::bad_state("step: a gradient was replaced since unscale_() or clip_grad_norm_(); write into it instead");
    }
    detail::Plan &plan = *iteration.plan;
    if (plan.active().size() == 1) {
      scaler_.step(plan.active()[0]->optimizer(), iteration.lists[0].stream);
    } else {
      step_cohorts(plan, iteration);
    }
    detail::wrote(plan.params());
    plan.release();
  }

  /// One decision for all cohorts: that of the list over all of their gradients.
  void step_cohorts(const detail::Plan &plan, const Iteration &iteration) {
    const DeviceGrads &grads = iteration.lists[0];
    const float *inv_scale = nullptr, *found_inf = nullptr;
    if (is_enabled()) {
      if (iteration.stage == Stage::ready) scaler_.check(grads.list, grads.stream);
      const gsc_device_state words = scaler_.get_device_state(grads.list);
      inv_scale = iteration.stage == Stage::ready ? words.inv_scale : nullptr;
      found_inf = words.found_inf;
    } else if (iteration.stage == Stage::clipped) {
      // Always true; it clips.
      static_cast<void>(scaler_.should_step_sync(grads.list, grads.stream));
    }
    for (detail::Cohort *cohort : plan.active()) cohort->optimizer().step_scaled(inv_scale, found_inf, grads.stream);
  }

  void end_iteration() {
    for (auto &[optimizer, iteration] : iterations_) {
      if (iteration.plan) iteration.plan->release();
      iteration.plan.reset();
      iteration.stage = Stage::ready;
      iteration.lists.clear();
      iteration.grads.clear();
    }
    unscaled_.clear();
  }

  /// PyTorch's names where it has one.
  template <typename State, typename Visit>
  static void for_each_field(State &state, Visit visit) {
    visit("scale", state.scale);
    visit("growth_factor", state.growth_factor);
    visit("backoff_factor", state.backoff_factor);
    visit("growth_interval", state.growth_interval);
    visit("_growth_tracker", state.growth_tracker);
    visit("hysteresis_tracker", state.hysteresis_tracker);
    visit("overflows_since_rescale", state.overflows_since_rescale);
    visit("updates_since_rescale", state.updates_since_rescale);
    visit("consecutive_skips", state.consecutive_skips);
    visit("skips_at_floor", state.skips_at_floor);
    visit("updates", state.updates);
    visit("skipped", state.skipped);
    visit("spikes", state.spikes);
  }

  at::Device device_;
  /// Reading its state is const here, as in PyTorch.
  mutable gradscaler::GradScaler scaler_;
  std::unordered_map<const void *, Iteration> iterations_;
  /// Gradients that were divided in memory since the last update.
  std::unordered_set<detail::Identity, detail::Identity::Hash> unscaled_;
};

/// For torch::save(scaler, file) and torch::load(scaler, file).
inline ::torch::serialize::OutputArchive &operator<<(::torch::serialize::OutputArchive &archive,
                                                     const GradScaler &scaler) {
  scaler.save(archive);
  return archive;
}
inline ::torch::serialize::InputArchive &operator>>(::torch::serialize::InputArchive &archive, GradScaler &scaler) {
  scaler.load(archive);
  return archive;
}

}  // namespace gradscaler::torch

#endif  // GRADSCALER_ADAPTERS_TORCH_SCALER_HPP
