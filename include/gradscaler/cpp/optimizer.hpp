// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_OPTIMIZER_HPP
#define GRADSCALER_CPP_OPTIMIZER_HPP
//
// gradscaler::Optimizer over gsc_optimizer, with options that have named initializers. The scaler that drives it is
// in scaler.hpp. Contracts are those of gradscaler.h. Include <gradscaler/gradscaler.hpp>.
//
#include <cstddef>
#include <cstdint>
#include <gradscaler/cpp/tensor_list.hpp>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

namespace gradscaler {

/// Hyper-parameters of gsc_optimizer_options. Those not set have the default of the kind.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  /// GSC_OPTIMIZER_* bits.
  uint32_t flags = 0;
  // gen-api: optional_fields gsc_optimizer_options
  /// StateFormat: the format of state that the library allocates. State lists of the caller have their own dtypes.
  std::optional<StateFormat> state_format = std::nullopt;
  /// Learning rate, >= 0. All numbers here must be finite when converted to float. fp64 parameters use the doubles.
  std::optional<double> lr = std::nullopt;
  /// Decay of the first moment, in [0, 1).
  std::optional<double> beta1 = std::nullopt;
  /// Decay of the second moment, in [0, 1). Lion: of its state.
  std::optional<double> beta2 = std::nullopt;
  /// Added to the denominator, >= 0.
  std::optional<double> eps = std::nullopt;
  /// Weight decay, >= 0; decoupled or added to the gradient, depending on the kind.
  std::optional<double> weight_decay = std::nullopt;
  /// SGD, RMSprop: momentum, >= 0. Default 0. There is a momentum buffer if group 0 has momentum. LARS: also.
  /// Schedule-Free SGD: in (0, 1).
  std::optional<double> momentum = std::nullopt;
  /// SGD: dampening of the momentum. Default 0. NovoGrad: exp_avg gets 1 - dampening of a gradient.
  std::optional<double> dampening = std::nullopt;
  /// Adagrad: decay of the learning rate, >= 0. Default 0.
  std::optional<double> lr_decay = std::nullopt;
  /// Adagrad: initial value of a group's `sum` in state that the library allocates, >= 0. Default 0.
  std::optional<double> initial_accumulator_value = std::nullopt;
  /// Seed of stochastic rounding. Default 0.
  std::optional<int64_t> seed = std::nullopt;
  /// MasterFormat. Other values than MasterFormat::none need fp16 or bf16 parameters.
  std::optional<MasterFormat> master_format = std::nullopt;
  /// RMSprop: decay of the means, in [0, 1). AdEMAMix: weight of the slow mean, >= 0.
  std::optional<double> alpha = std::nullopt;
  /// Adadelta: decay of the means, in [0, 1).
  std::optional<double> rho = std::nullopt;
  /// NAdam: how fast the momentum grows, >= 0.
  std::optional<double> momentum_decay = std::nullopt;
  /// RMSprop: added inside the root, >= 0. Default 0. AdaBelief: added to the second moment at each step.
  std::optional<double> eps_root = std::nullopt;
  /// AdEMAMix: decay of the slow mean of gradients, in [0, 1).
  std::optional<double> beta3 = std::nullopt;
  /// AdEMAMix: steps over which alpha grows from 0; Schedule-Free: lr. In 0..2^53. Default 0.
  std::optional<int64_t> warmup_steps = std::nullopt;
  /// AdEMAMix: steps over which the half-life of the slow mean grows from that of beta1, in 0..2^53. Default 0.
  std::optional<int64_t> beta3_warmup = std::nullopt;
  /// Schedule-Free: step t counts as t to this power in the average, >= 0. Default 0. The package calls it r.
  std::optional<double> weight_step_power = std::nullopt;
  /// Schedule-Free: and as the largest learning rate so far to this power, >= 0.
  std::optional<double> weight_lr_power = std::nullopt;
  /// LARS: factor of the ratio of norms, >= 0.
  std::optional<double> trust_coefficient = std::nullopt;
  /// Any kind: decay of an exponential moving average of the parameters, in [0, 1). Default 0. The average is the
  /// state slot `ema` if group 0 has a decay above 0, and a copy of the parameters in a group where it is 0.
  std::optional<double> ema_decay = std::nullopt;
  // gen-api: end

  gsc_optimizer_options to_c() const {
    gsc_optimizer_options c{};
    detail::check(gsc_optimizer_options_init(&c, sizeof c, static_cast<int32_t>(kind)));
    c.flags = flags;
    // gen-api: optional_to_c gsc_optimizer_options
    if (state_format) c.state_format = static_cast<int32_t>(*state_format);
    c.lr = lr.value_or(c.lr);
    c.beta1 = beta1.value_or(c.beta1);
    c.beta2 = beta2.value_or(c.beta2);
    c.eps = eps.value_or(c.eps);
    c.weight_decay = weight_decay.value_or(c.weight_decay);
    c.momentum = momentum.value_or(c.momentum);
    c.dampening = dampening.value_or(c.dampening);
    c.lr_decay = lr_decay.value_or(c.lr_decay);
    c.initial_accumulator_value = initial_accumulator_value.value_or(c.initial_accumulator_value);
    c.seed = seed.value_or(c.seed);
    if (master_format) c.master_format = static_cast<int32_t>(*master_format);
    c.alpha = alpha.value_or(c.alpha);
    c.rho = rho.value_or(c.rho);
    c.momentum_decay = momentum_decay.value_or(c.momentum_decay);
    c.eps_root = eps_root.value_or(c.eps_root);
    c.beta3 = beta3.value_or(c.beta3);
    c.warmup_steps = warmup_steps.value_or(c.warmup_steps);
    c.beta3_warmup = beta3_warmup.value_or(c.beta3_warmup);
    c.weight_step_power = weight_step_power.value_or(c.weight_step_power);
    c.weight_lr_power = weight_lr_power.value_or(c.weight_lr_power);
    c.trust_coefficient = trust_coefficient.value_or(c.trust_coefficient);
    c.ema_decay = ema_decay.value_or(c.ema_decay);
    // gen-api: end
    return c;
  }
  static OptimizerOptions from_c(const gsc_optimizer_options &c) {
    OptimizerOptions options;
    options.kind = static_cast<OptimizerKind>(c.kind);
    options.flags = c.flags;
    // gen-api: from_c gsc_optimizer_options
    options.state_format = static_cast<StateFormat>(c.state_format);
    options.lr = c.lr;
    options.beta1 = c.beta1;
    options.beta2 = c.beta2;
    options.eps = c.eps;
    options.weight_decay = c.weight_decay;
    options.momentum = c.momentum;
    options.dampening = c.dampening;
    options.lr_decay = c.lr_decay;
    options.initial_accumulator_value = c.initial_accumulator_value;
    options.seed = c.seed;
    options.master_format = static_cast<MasterFormat>(c.master_format);
    options.alpha = c.alpha;
    options.rho = c.rho;
    options.momentum_decay = c.momentum_decay;
    options.eps_root = c.eps_root;
    options.beta3 = c.beta3;
    options.warmup_steps = c.warmup_steps;
    options.beta3_warmup = c.beta3_warmup;
    options.weight_step_power = c.weight_step_power;
    options.weight_lr_power = c.weight_lr_power;
    options.trust_coefficient = c.trust_coefficient;
    options.ema_decay = c.ema_decay;
    // gen-api: end
    return options;
  }
};

/// A fused optimizer. Keeps its lists alive, not their buffers.
class Optimizer : public detail::Handle<gsc_optimizer> {
 public:
  /// `state`: one list per slot of the kind, or empty: then the library allocates them.
  Optimizer(const Context &context, const OptimizerOptions &options, TensorListRef params, TensorListRef grads,
            TensorListRef model_copy = {}, std::span<const TensorListRef> state = {}) {
    const gsc_optimizer_options c = options.to_c();
    std::vector<gsc_tensor_list *> slots;
    for (const TensorListRef &slot : state) slots.push_back(slot.get());
    gsc_optimizer *made = nullptr;
    detail::check(gsc_optimizer_create(context.get(), &c, params.get(), grads.get(), model_copy.get(),
                                       slots.empty() ? nullptr : slots.data(), static_cast<int32_t>(slots.size()),
                                       &made));
    take(made);
  }
  static Optimizer adopt(gsc_optimizer *object) noexcept { return Optimizer(object, detail::Adopt{}); }

  /// Number of the new group.
  int32_t add_group(int64_t first, int64_t count, const OptimizerOptions &options) {
    const gsc_optimizer_options c = options.to_c();
    int32_t group = 0;
    detail::check(gsc_optimizer_add_group(get(), first, count, &c, &group));
    return group;
  }
  // gen-api: getters gsc_optimizer
  /// Number of groups, >= 1.
  int32_t get_group_count() const {
    int32_t value = 0;
    detail::check(gsc_optimizer_get_group_count(get(), &value));
    return value;
  }
  /// 1 while the parameters are the averaged weights, else 0.
  int32_t get_evaluating() const {
    int32_t value = 0;
    detail::check(gsc_optimizer_get_evaluating(get(), &value));
    return value;
  }
  /// Number of state slots.
  int32_t get_state_count() const {
    int32_t value = 0;
    detail::check(gsc_optimizer_get_state_count(get(), &value));
    return value;
  }
  /// Bytes that Optimizer::save_sync writes.
  int64_t get_save_size() const {
    int64_t value = 0;
    detail::check(gsc_optimizer_get_save_size(get(), &value));
    return value;
  }
  // gen-api: end
  OptimizerOptions get_options(int32_t group = 0) const {
    gsc_optimizer_options c{};
    c.struct_size = sizeof c;
    detail::check(gsc_optimizer_get_options(get(), group, &c));
    return OptimizerOptions::from_c(c);
  }
  void set_options(int32_t group, const OptimizerOptions &options, gsc_stream stream = nullptr) {
    const gsc_optimizer_options c = options.to_c();
    detail::check(gsc_optimizer_set_options(get(), group, &c, stream));
  }
  void set_lr(double lr, int32_t group = 0, gsc_stream stream = nullptr) {
    detail::check(gsc_optimizer_set_lr(get(), group, lr, stream));
  }
  void set_device_lr(const float *device_lr, int32_t group = 0, gsc_stream stream = nullptr) {
    detail::check(gsc_optimizer_set_device_lr(get(), group, device_lr, stream));
  }
  void set_evaluating(bool evaluating, gsc_stream stream = nullptr) {
    detail::check(gsc_optimizer_set_evaluating(get(), evaluating ? 1 : 0, stream));
  }
  void step(gsc_stream stream = nullptr) { detail::check(gsc_optimizer_step(get(), stream)); }
  void step_scaled(const float *inv_scale, const float *found_inf, gsc_stream stream = nullptr) {
    detail::check(gsc_optimizer_step_scaled(get(), inv_scale, found_inf, stream));
  }
  void zero_grads(gsc_stream stream = nullptr) { detail::check(gsc_optimizer_zero_grads(get(), stream)); }

  /// Borrowed: valid as long as the optimizer.
  TensorListRef get_grads() const {
    gsc_tensor_list *list = nullptr;
    detail::check(gsc_optimizer_get_grads(get(), &list));
    return list;
  }
  struct StateSlot {
    /// Borrowed: valid as long as the optimizer.
    TensorListRef list;
    const char *name;
  };
  StateSlot get_state(int32_t slot) const {
    gsc_tensor_list *list = nullptr;
    const char *name = nullptr;
    detail::check(gsc_optimizer_get_state(get(), slot, &list, &name));
    return {list, name};
  }
  struct Steps {
    int64_t applied;
    int64_t skipped;
  };
  Steps get_steps_sync(gsc_stream stream = nullptr) const {
    Steps steps{};
    detail::check(gsc_optimizer_get_steps_sync(get(), &steps.applied, &steps.skipped, stream));
    return steps;
  }
  void set_steps(Steps steps, gsc_stream stream = nullptr) {
    detail::check(gsc_optimizer_set_steps(get(), steps.applied, steps.skipped, stream));
  }
  /// Elements that applied steps left as they were, if `count_unchanged` is set.
  int64_t get_unchanged_sync(gsc_stream stream = nullptr) const {
    int64_t unchanged = 0;
    detail::check(gsc_optimizer_get_unchanged_sync(get(), &unchanged, stream));
    return unchanged;
  }
  /// Applied steps of each tensor.
  std::vector<int64_t> get_tensor_steps_sync(gsc_stream stream = nullptr) const {
    gsc_tensor_list *grads = nullptr;
    int64_t count = 0;
    detail::check(gsc_optimizer_get_grads(get(), &grads));
    detail::check(gsc_tensor_list_get_count(grads, &count));
    std::vector<int64_t> steps(static_cast<std::size_t>(count));
    detail::check(gsc_optimizer_get_tensor_steps_sync(get(), steps.data(), count, stream));
    return steps;
  }
  void set_tensor_steps(std::span<const int64_t> steps, gsc_stream stream = nullptr) {
    detail::check(gsc_optimizer_set_tensor_steps(get(), steps.data(), std::ssize(steps), stream));
  }
  void set_offsets(std::span<const int64_t> offsets, gsc_stream stream = nullptr) {
    detail::check(gsc_optimizer_set_offsets(get(), offsets.data(), std::ssize(offsets), stream));
  }
  std::vector<std::byte> save_sync(gsc_stream stream = nullptr) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(get_save_size()));
    detail::check(gsc_optimizer_save_sync(get(), bytes.data(), std::ssize(bytes), stream));
    return bytes;
  }
  void load_sync(std::span<const std::byte> bytes, gsc_stream stream = nullptr) {
    detail::check(gsc_optimizer_load_sync(get(), bytes.data(), std::ssize(bytes), stream));
  }

 private:
  Optimizer(gsc_optimizer *object, detail::Adopt) noexcept : Handle(object) {}
};

}  // namespace gradscaler

#endif  // GRADSCALER_CPP_OPTIMIZER_HPP
