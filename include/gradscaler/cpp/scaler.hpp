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
  float init_scale = 65536.0f;
  float min_scale = 0.0f;
  float max_scale = 0.0f;
  int32_t growth_interval = 2000;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  bool enabled = true;
  int32_t hysteresis = 1;
  HysteresisRefill hysteresis_refill = HysteresisRefill::on_growth;
  GrowthTiming growth_timing = GrowthTiming::at_interval;
  double overflow_tolerance = 0.0;
  float recovery_threshold = 0.0f;
  int32_t recovery_interval = 0;
  FloorAction floor_action = FloorAction::clamp;
  int32_t floor_patience = 1;
  int32_t history_capacity = 16;
  double skip_norm = 0.0;
  double spike_factor = 0.0;
  double spike_deviations = 5.0;
  int32_t spike_window = 128;
  int32_t spike_warmup = 0;
  int32_t spike_patience = 10;
  SpikeAction spike_action = SpikeAction::step;
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
    visit_fields(*this, c, []<typename C>(const auto &field, C &out) { out = static_cast<C>(field); });
    return c;
  }
  static ScalerOptions from_c(const gsc_scaler_options &c) {
    ScalerOptions options;
    options.flags = c.flags;
    visit_fields(options, c,
                 []<typename Field>(Field &field, const auto &value) { field = static_cast<Field>(value); });
    return options;
  }

 private:
  template <typename Options, typename C, typename Visit>
  static void visit_fields(Options &options, C &c, const Visit &visit) {
    // gen-api: pairs gsc_scaler_options
    visit(options.init_scale, c.init_scale);
    visit(options.min_scale, c.min_scale);
    visit(options.max_scale, c.max_scale);
    visit(options.growth_interval, c.growth_interval);
    visit(options.growth_factor, c.growth_factor);
    visit(options.backoff_factor, c.backoff_factor);
    visit(options.enabled, c.enabled);
    visit(options.hysteresis, c.hysteresis);
    visit(options.hysteresis_refill, c.hysteresis_refill);
    visit(options.growth_timing, c.growth_timing);
    visit(options.overflow_tolerance, c.overflow_tolerance);
    visit(options.recovery_threshold, c.recovery_threshold);
    visit(options.recovery_interval, c.recovery_interval);
    visit(options.floor_action, c.floor_action);
    visit(options.floor_patience, c.floor_patience);
    visit(options.history_capacity, c.history_capacity);
    visit(options.skip_norm, c.skip_norm);
    visit(options.spike_factor, c.spike_factor);
    visit(options.spike_deviations, c.spike_deviations);
    visit(options.spike_window, c.spike_window);
    visit(options.spike_warmup, c.spike_warmup);
    visit(options.spike_patience, c.spike_patience);
    visit(options.spike_action, c.spike_action);
    // gen-api: end
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
    return detail::read(gsc_scaler_get_scale_sync, get(), stream);
  }
  /// Null: all lists of the last update. Throws at the floor under FloorAction::error, and when spikes do not end under
  /// SpikeAction::error; the overload below has the report.
  gsc_report get_report_sync(TensorListRef grads = {}, gsc_stream stream = nullptr) {
    gsc_report report{};
    get_report_sync(report, grads, stream);
    return report;
  }
  /// Fills in `report` even if it throws Error with GSC_ERROR_SCALE_FLOOR or GSC_ERROR_SPIKES.
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
    return detail::read(gsc_scaler_get_state_sync, get(), stream);
  }
  void set_state(const gsc_scaler_state &state, gsc_stream stream = nullptr) {
    detail::check(gsc_scaler_set_state(get(), &state, stream));
  }
  ScalerOptions get_options() const { return ScalerOptions::from_c(detail::read(gsc_scaler_get_options, get())); }
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
