// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_CPP_SCALER_HPP
#define GRADSCALER_CPP_SCALER_HPP
//
// gradscaler::GradScaler over gsc_scaler, with options that have named initializers. Contracts are those of
// gradscaler.h. Include <gradscaler/gradscaler.hpp>.
//
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gradscaler/cpp/optimizer.hpp>
#include <iterator>
#include <limits>
#include <vector>

namespace gradscaler {

/// Fields and defaults of gsc_scaler_options: PyTorch's policy.
struct ScalerOptions {
  /// GSC_SCALER_* bits.
  uint32_t flags = 0;
  // gen-api: fields gsc_scaler_options
  /// First scale, finite and > 0, within min_scale and max_scale. Default 65536.
  float init_scale = 65536.0f;
  /// Floor of the scale; 0: none. Default 0. A scale that GradScaler::set_scale sets below it stays until it grows.
  float min_scale = 0.0f;
  /// Ceiling of the scale; 0: none. Default 0.
  float max_scale = 0.0f;
  /// Clean steps between growths, >= 1. Default 2000.
  int32_t growth_interval = 2000;
  /// Growth multiplies the scale by this, > 1. Refused if init_scale rounds back to itself. Default 2.
  double growth_factor = 2.0;
  /// Backoff multiplies the scale by this, in (0, 1). Refused if init_scale rounds back to itself. Default 0.5.
  double backoff_factor = 0.5;
  /// False: disabled. The scale is 1, gradients are not checked, every step is applied. Default true.
  bool enabled = true;
  /// Overflows until the scale backs off, >= 1. Default 1: each overflow.
  int32_t hysteresis = 1;
  /// When the count of overflows starts again: HysteresisRefill. Default HysteresisRefill::on_growth.
  HysteresisRefill hysteresis_refill = HysteresisRefill::on_growth;
  /// The clean step that grows: GrowthTiming. Default GrowthTiming::at_interval.
  GrowthTiming growth_timing = GrowthTiming::at_interval;
  /// Back off only if overflows / updates since the last rescale >= this, in [0, 1] (fairseq). Default 0.
  double overflow_tolerance = 0.0;
  /// While the scale is below this, recovery_interval replaces growth_interval (NVIDIA Modulus); 0: never. Default 0.
  float recovery_threshold = 0.0f;
  /// See recovery_threshold; >= 1 if that is set. Default 0.
  int32_t recovery_interval = 0;
  /// What happens at the floor: FloorAction. Default FloorAction::clamp.
  FloorAction floor_action = FloorAction::clamp;
  /// Consecutive skipped updates at the floor until it is reported, >= 1. Default 1.
  int32_t floor_patience = 1;
  /// Updates kept in the history ring, 0..2^20. Creation allocates 32 bytes of device memory for each. Default 16,
  /// which shows what led to a skip. To plot the scale, give the number of steps between two reads.
  int32_t history_capacity = 16;
  // gen-api: end

  /// The policy of another system, to start from.
  static ScalerOptions preset(Preset preset) {
    gsc_scaler_options c{};
    detail::check(gsc_scaler_options_init(&c, sizeof c, static_cast<int32_t>(preset)));
    return from_c(c);
  }
  gsc_scaler_options to_c() const {
    gsc_scaler_options c{};
    detail::check(gsc_scaler_options_init(&c, sizeof c, GSC_PRESET_TORCH));
    c.flags = flags;
    // gen-api: to_c gsc_scaler_options
    c.init_scale = init_scale;
    c.min_scale = min_scale;
    c.max_scale = max_scale;
    c.growth_interval = growth_interval;
    c.growth_factor = growth_factor;
    c.backoff_factor = backoff_factor;
    c.enabled = enabled ? 1 : 0;
    c.hysteresis = hysteresis;
    c.hysteresis_refill = static_cast<int32_t>(hysteresis_refill);
    c.growth_timing = static_cast<int32_t>(growth_timing);
    c.overflow_tolerance = overflow_tolerance;
    c.recovery_threshold = recovery_threshold;
    c.recovery_interval = recovery_interval;
    c.floor_action = static_cast<int32_t>(floor_action);
    c.floor_patience = floor_patience;
    c.history_capacity = history_capacity;
    // gen-api: end
    return c;
  }
  static ScalerOptions from_c(const gsc_scaler_options &c) {
    ScalerOptions options;
    options.flags = c.flags;
    // gen-api: from_c gsc_scaler_options
    options.init_scale = c.init_scale;
    options.min_scale = c.min_scale;
    options.max_scale = c.max_scale;
    options.growth_interval = c.growth_interval;
    options.growth_factor = c.growth_factor;
    options.backoff_factor = c.backoff_factor;
    options.enabled = c.enabled != 0;
    options.hysteresis = c.hysteresis;
    options.hysteresis_refill = static_cast<HysteresisRefill>(c.hysteresis_refill);
    options.growth_timing = static_cast<GrowthTiming>(c.growth_timing);
    options.overflow_tolerance = c.overflow_tolerance;
    options.recovery_threshold = c.recovery_threshold;
    options.recovery_interval = c.recovery_interval;
    options.floor_action = static_cast<FloorAction>(c.floor_action);
    options.floor_patience = c.floor_patience;
    options.history_capacity = c.history_capacity;
    // gen-api: end
    return options;
  }
};

/// The scale, its policy, counters and history.
class GradScaler : public detail::Handle<gsc_scaler> {
 public:
  GradScaler(const Context &context, const ScalerOptions &options = {}) {
    const gsc_scaler_options c = options.to_c();
    gsc_scaler *made = nullptr;
    detail::check(gsc_scaler_create(context.get(), &c, &made));
    take(made);
  }
  static GradScaler adopt(gsc_scaler *object) noexcept { return GradScaler(object, detail::Adopt{}); }

  // One iteration.

  /// dst = src * scale, for equally many tensors.
  void scale(Tensors src, Tensors dst, gsc_stream stream = nullptr) {
    const int64_t count = detail::same_count("src", src, "dst", dst);
    detail::check(gsc_scaler_scale(get(), src.data(), dst.data(), count, stream));
  }
  void unscale(TensorListRef grads, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_unscale(get(), grads.get(), stream));
  }
  void check(TensorListRef grads, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_check(get(), grads.get(), stream));
  }
  void check_range(TensorListRef grads, int64_t first, int64_t count, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_check_range(get(), grads.get(), first, count, stream));
  }
  void clip_grad_norm(TensorListRef grads, double max_norm, Norm norm = Norm::l2, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_clip_grad_norm(get(), grads.get(), max_norm, static_cast<int32_t>(norm), stream));
  }
  void clip_grad_value(TensorListRef grads, double clip_value, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_clip_grad_value(get(), grads.get(), clip_value, stream));
  }
  void step(Optimizer &optimizer, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_step(get(), optimizer.get(), stream));
  }
  /// The next slice of a step; the bytes that are left, 0 when it is done. See gsc_scaler_step_slice.
  int64_t step_slice(Optimizer &optimizer, int64_t max_bytes, gsc_stream stream = nullptr) {
    int64_t left = 0;
    detail::check(gsc_scaler_step_slice(get(), optimizer.get(), max_bytes, &left, stream));
    return left;
  }
  /// For your own optimizer: true if you must apply the step.
  [[nodiscard]] bool should_step_sync(TensorListRef grads, gsc_stream stream = nullptr) {
    int32_t apply = 0;
    detail::check(gsc_scaler_should_step_sync(get(), grads.get(), &apply, stream));
    return apply != 0;
  }
  void update(gsc_stream stream = nullptr) { detail::check(gsc_scaler_update(get(), stream)); }
  void step_and_update(Optimizer &optimizer, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_step_and_update(get(), optimizer.get(), stream));
  }
  /// Null: all lists.
  void discard(TensorListRef grads = {}) { detail::check(gsc_scaler_discard(get(), grads.get())); }
  void set_scale(float scale, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_set_scale(get(), scale, stream));
  }

  // Looking at it.

  float get_scale_sync(gsc_stream stream = nullptr) const {
    float scale = 0.0f;
    detail::check(gsc_scaler_get_scale_sync(get(), &scale, stream));
    return scale;
  }
  /// Null: all lists of the last update. Throws at the floor under FloorAction::error; the overload below has the
  /// report.
  gsc_report get_report_sync(TensorListRef grads = {}, gsc_stream stream = nullptr) {
    gsc_report report{};
    get_report_sync(report, grads, stream);
    return report;
  }
  /// Fills in `report` even if it throws Error with GSC_ERROR_SCALE_FLOOR.
  void get_report_sync(gsc_report &report, TensorListRef grads = {}, gsc_stream stream = nullptr) {
    report.struct_size = sizeof report;
    detail::check(gsc_scaler_get_report_sync(get(), grads.get(), &report, stream));
  }
  /// `report`: pinned memory for CUDA; it must outlive the copy on the stream.
  void read_report_async(gsc_report &report, TensorListRef grads = {}, gsc_stream stream = nullptr) {
    report.struct_size = sizeof report;
    detail::check(gsc_scaler_read_report_async(get(), grads.get(), &report, stream));
  }
  /// The newest entries, oldest first, at most `capacity`.
  std::vector<gsc_history_entry> get_history_sync(int64_t capacity = std::numeric_limits<int64_t>::max(),
                                                  gsc_stream stream = nullptr) {
    int64_t count = 0;
    detail::check(gsc_scaler_get_history_sync(get(), nullptr, 0, &count, stream));
    std::vector<gsc_history_entry> entries(static_cast<std::size_t>(std::clamp<int64_t>(capacity, 0, count)));
    detail::check(gsc_scaler_get_history_sync(get(), entries.data(), std::ssize(entries), &count, stream));
    return entries;
  }
  gsc_device_state get_device_state(TensorListRef grads = {}) {
    gsc_device_state state{};
    state.struct_size = sizeof state;
    detail::check(gsc_scaler_get_device_state(get(), grads.get(), &state));
    return state;
  }

  // Checkpoints, options and ranks.

  gsc_scaler_state get_state_sync(gsc_stream stream = nullptr) {
    gsc_scaler_state state{};
    state.struct_size = sizeof state;
    detail::check(gsc_scaler_get_state_sync(get(), &state, stream));
    return state;
  }
  void set_state(const gsc_scaler_state &state, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_set_state(get(), &state, stream));
  }
  ScalerOptions get_options() const {
    gsc_scaler_options c{};
    c.struct_size = sizeof c;
    detail::check(gsc_scaler_get_options(get(), &c));
    return ScalerOptions::from_c(c);
  }
  void set_options(const ScalerOptions &options, gsc_stream stream = nullptr) {
    const gsc_scaler_options c = options.to_c();
    detail::check(gsc_scaler_set_options(get(), &c, stream));
  }
  /// nullptr removes the reducer.
  void set_reducer(gsc_all_reduce_fn all_reduce, void *user = nullptr) {
    const gsc_reducer reducer{sizeof(gsc_reducer), 0, all_reduce, user};
    detail::check(gsc_scaler_set_reducer(get(), all_reduce != nullptr ? &reducer : nullptr));
  }

 private:
  GradScaler(gsc_scaler *object, detail::Adopt) noexcept : Handle(object) {}
};

}  // namespace gradscaler

#endif  // GRADSCALER_CPP_SCALER_HPP
