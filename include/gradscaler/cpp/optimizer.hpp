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

/// Fields of gsc_optimizer_options. Those not set have the default of the kind.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  /// GSC_OPTIMIZER_* bits.
  uint32_t flags = 0;
  // gen-api: optional_fields gsc_optimizer_options
  std::optional<StateFormat> state_format = std::nullopt;
  std::optional<double> lr = std::nullopt;
  std::optional<double> beta1 = std::nullopt;
  std::optional<double> beta2 = std::nullopt;
  std::optional<double> eps = std::nullopt;
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> momentum = std::nullopt;
  std::optional<double> dampening = std::nullopt;
  std::optional<double> lr_decay = std::nullopt;
  std::optional<double> initial_accumulator_value = std::nullopt;
  std::optional<int64_t> seed = std::nullopt;
  std::optional<MasterFormat> master_format = std::nullopt;
  std::optional<double> alpha = std::nullopt;
  std::optional<double> rho = std::nullopt;
  std::optional<double> momentum_decay = std::nullopt;
  std::optional<double> eps_root = std::nullopt;
  std::optional<double> beta3 = std::nullopt;
  std::optional<int64_t> warmup_steps = std::nullopt;
  std::optional<int64_t> beta3_warmup = std::nullopt;
  std::optional<double> weight_step_power = std::nullopt;
  std::optional<double> weight_lr_power = std::nullopt;
  std::optional<double> trust_coefficient = std::nullopt;
  std::optional<double> ema_decay = std::nullopt;
  std::optional<double> param_min = std::nullopt;
  std::optional<double> param_max = std::nullopt;
  // gen-api: end

  gsc_optimizer_options to_c() const {
    gsc_optimizer_options c{};
    detail::check(gsc_optimizer_options_init(&c, sizeof c, static_cast<int32_t>(kind)));
    c.flags = flags;
    visit_fields(*this, c, []<typename C>(const auto &field, C &out) {
      if (field) out = static_cast<C>(*field);
    });
    return c;
  }
  static OptimizerOptions from_c(const gsc_optimizer_options &c) {
    OptimizerOptions options;
    options.kind = static_cast<OptimizerKind>(c.kind);
    options.flags = c.flags;
    visit_fields(options, c, []<typename Field>(std::optional<Field> &field, const auto &value) {
      field = static_cast<Field>(value);
    });
    return options;
  }

 private:
  template <typename Options, typename C, typename Visit>
  static void visit_fields(Options &options, C &c, const Visit &visit) {
    // gen-api: pairs gsc_optimizer_options
    visit(options.state_format, c.state_format);
    visit(options.lr, c.lr);
    visit(options.beta1, c.beta1);
    visit(options.beta2, c.beta2);
    visit(options.eps, c.eps);
    visit(options.weight_decay, c.weight_decay);
    visit(options.momentum, c.momentum);
    visit(options.dampening, c.dampening);
    visit(options.lr_decay, c.lr_decay);
    visit(options.initial_accumulator_value, c.initial_accumulator_value);
    visit(options.seed, c.seed);
    visit(options.master_format, c.master_format);
    visit(options.alpha, c.alpha);
    visit(options.rho, c.rho);
    visit(options.momentum_decay, c.momentum_decay);
    visit(options.eps_root, c.eps_root);
    visit(options.beta3, c.beta3);
    visit(options.warmup_steps, c.warmup_steps);
    visit(options.beta3_warmup, c.beta3_warmup);
    visit(options.weight_step_power, c.weight_step_power);
    visit(options.weight_lr_power, c.weight_lr_power);
    visit(options.trust_coefficient, c.trust_coefficient);
    visit(options.ema_decay, c.ema_decay);
    visit(options.param_min, c.param_min);
    visit(options.param_max, c.param_max);
    // gen-api: end
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
  int32_t get_group_count() const { return detail::read(gsc_optimizer_get_group_count, get()); }
  /// 1 while the parameters are the averaged weights, else 0.
  int32_t get_evaluating() const { return detail::read(gsc_optimizer_get_evaluating, get()); }
  /// Number of state slots.
  int32_t get_state_count() const { return detail::read(gsc_optimizer_get_state_count, get()); }
  /// Bytes that Optimizer::save_sync writes.
  int64_t get_save_size() const { return detail::read(gsc_optimizer_get_save_size, get()); }
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
  TensorListRef get_grads() const { return detail::read(gsc_optimizer_get_grads, get()); }
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
    return detail::read(gsc_optimizer_get_unchanged_sync, get(), stream);
  }
  /// Applied steps of each tensor.
  std::vector<int64_t> get_tensor_steps_sync(gsc_stream stream = nullptr) const {
    std::vector<int64_t> steps(static_cast<std::size_t>(get_grads().get_count()));
    detail::check(gsc_optimizer_get_tensor_steps_sync(get(), steps.data(), std::ssize(steps), stream));
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
