// SPDX-License-Identifier: Apache-2.0
// The scaler: its record in device memory, and the stage machine that takes lists of gradients through an iteration
//     READY -> CHECKED or UNSCALED -> STEPPED -> (update) READY.
// scaler.cpp has the iteration, scaler_check.cpp its checks, scaler_slices.cpp steps in slices, scaler_devices.cpp lists
// of other devices, scaler_state.cpp the reports, options and checkpoints.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/objects/context.h"
#include "core/objects/optimizer.h"
#include "core/objects/scale_use.h"
#include "core/objects/tensor_list.h"

namespace gsc {

class Scaler final : public Object {
 public:
  static constexpr Tag kTag = Tag::kScaler;

  static Ref<Scaler> create(const Ref<Context> &context, const gsc_scaler_options &options);
  Scaler(Ref<Context> context, const gsc_scaler_options &options);

  const Ref<Context> &context() const { return context_; }
  bool enabled() const { return options_.enabled != 0; }

  // The iteration.
  void scale(const gsc_tensor *src, const gsc_tensor *dst, int64_t count, gsc_stream stream);
  void unscale(TensorList &grads, gsc_stream stream);
  void check(TensorList &grads, gsc_stream stream);
  void check_range(TensorList &grads, int64_t first, int64_t count, gsc_stream stream);
  void clip_grad_norm(TensorList &grads, double max_norm, int32_t norm_type, gsc_stream stream);
  void clip_grad_value(TensorList &grads, double clip_value, gsc_stream stream);
  void step(Optimizer &optimizer, gsc_stream stream);
  /// Returns the bytes that are left. From any number of threads at once for one optimizer.
  int64_t step_slice(Optimizer &optimizer, int64_t max_bytes, gsc_stream stream);
  void step_and_update(Optimizer &optimizer, gsc_stream stream);
  bool should_step_sync(TensorList &grads, gsc_stream stream);
  void update(gsc_stream stream);
  void discard(TensorList &grads);
  void discard_all();
  void set_scale(float scale, gsc_stream stream);
  void set_reducer(const gsc_reducer *reducer);

  // Reports, options, state.
  float get_scale(gsc_stream stream) const;
  /// Returns GSC_OK, or the error that GSC_FLOOR_ERROR or GSC_SPIKE_ERROR asks for.
  gsc_status get_report_sync(const TensorList *grads, gsc_report &out, gsc_stream stream);
  void read_report_async(const TensorList *grads, gsc_report *out, uint32_t out_size, gsc_stream stream);
  int64_t history_sync(gsc_history_entry *out, int64_t capacity, gsc_stream stream);
  gsc_device_state device_state(const TensorList *grads) const;
  gsc_scaler_state get_state(gsc_stream stream) const;
  void set_state(const gsc_scaler_state &state, gsc_stream stream);
  const gsc_scaler_options &options() const { return options_; }
  void set_options(const gsc_scaler_options &options, gsc_stream stream);

 private:
  ~Scaler() override;
  friend class Context;
  void destroy() noexcept override { Context::unmake(this); }

  ScalerRecord *record() const { return record_.as<ScalerRecord>(); }
  /// Makes the list part of this scaler's iteration. Requires a device of the same kind, and no other scaler's
  /// iteration. Errors name the list, or its optimizer.
  enum class From { kCaller, kOptimizer };
  void enter(TensorList &grads, CallStream &call, From from = From::kCaller);
  /// Orders `call` after earlier work on the list, and on the scaler if it is of this device.
  void precede(const TensorList &grads, CallStream &call);
  /// The record by which the norm of a list is judged; NULL: no norm is too large.
  ScalerRecord *judge_of(const TensorList &grads) const;
  /// A check of no chunks.
  CheckJob check_job(TensorList &grads) const;
  /// Before the first job of a check, or a step without one: what a list with a device factor is multiplied by.
  void multiply_by_factor(TensorList &grads, CallStream &call);
  /// Device scalar that gradients which are still scaled are multiplied by.
  const float *multiplier_of(const TensorList &grads) const;
  /// Checks tensors [first, last) of a list, and concludes the check if they were the last.
  void run_check(TensorList &grads, int64_t first, int64_t last, bool unscale, CallStream &call);
  /// Gradients that are unscaled, by a check whose result is lost: refused until they are discarded.
  [[noreturn]] static void lose_unscaled(TensorList &grads, const Error &e);
  /// Concludes a check of all tensors: joins ranks if there is a reducer, and sets the stage.
  void conclude_check(TensorList &grads, CallStream &call);
  /// The reducer's failure, if there is one.
  struct Complaint {
    gsc_status status = GSC_OK;
    const char *text = "";
  };
  /// Adds the sums of all ranks and concludes the check.
  Complaint join_ranks(TensorList &grads, bool is_written, gsc_stream stream);
  /// Takes back a failed check. Only a pending clip stays in the iteration.
  void forget_check(TensorList &grads);
  void check_whole(TensorList &grads, bool unscale, CallStream &call);
  /// Checks the tensors that have not been checked, and computes the clip factor.
  void complete(TensorList &grads, CallStream &call);
  /// Multiplies the gradients in memory by the factor in the record.
  static void apply_norm(TensorList &grads, CallStream &call);
  /// Ends the iteration: all lists become READY, and what log_report warns of is logged.
  void finish_update(CallStream &call);
  void reset_lists();
  /// Refuses to change the scaler while a step in slices uses it.
  void require_no_slices() const;
  /// Refuses an update if check_range has checked only a part of a list other than `except`.
  void require_whole_checks(const TensorList *except) const;
  void begin_step(Optimizer &optimizer, CallStream &call);
  /// The step whose checks begin_step has made.
  void step_begun(Optimizer &optimizer, CallStream &call);
  StepScalars step_scalars(const TensorList &grads) const;
  StepScalars disabled_scalars(TensorList &grads, CallStream &call);
  void step_disabled(Optimizer &optimizer, CallStream &call);
  void require_checked(const TensorList *grads) const;
  /// A record with these options, no state and an empty history.
  ScalerRecord new_record(const gsc_scaler_options &options) const;
  ScalerRecord read_record(CallStream &call) const;
  /// Warns of a scale at its floor and of spikes that do not end.
  void log_report(const gsc_report &report) const;
  /// Warns once if `state` is that of a scale without an inverse. The callback may use and destroy objects.
  enum class Cause { kUpdate, kCaller };
  void log_underflow(const PolicyState &state, Cause cause) const { log_underflow(state, cause, Offender()); }
  /// A tensor in which an update found inf or NaN, as the words that follow these; none if it is unknown.
  struct Offender {
    char text[160] = "";
  };
  void log_underflow(const PolicyState &state, Cause cause, const Offender &offender) const;
  /// The first of the iteration, whose records the host can read.
  Offender first_offender() const;

  // Steps in slices: scaler_slices.cpp.
  /// Never 0, never reused.
  static uint64_t new_id();
  void run_slices(Optimizer &optimizer, int64_t max_bytes, CallStream &call, SliceLock &lock);
  void begin_slices(Optimizer &optimizer, CallStream &call);
  void continue_slices(Optimizer &optimizer, int64_t max_bytes, CallStream &call, SliceLock &lock);
  void take_back(Optimizer &optimizer);
  /// Runs chunks of the phase; on the CPU without the lock.
  void run_range(Optimizer &optimizer, const ChunkRange &range, CallStream &call, SliceLock &lock);
  void run_chunks(Optimizer &optimizer, int64_t first, int64_t last, CallStream &call);
  /// All chunks of the phase have run: begins the next.
  void end_phase(Optimizer &optimizer, CallStream &call);
  void decide(Optimizer &optimizer, CallStream &call);
  void begin_sweeps(Optimizer &optimizer, CallStream &call);

  // Lists of other streams and devices: scaler_devices.cpp.
  bool is_of_other_context(const TensorList &grads) const { return grads.context().get() != context_.get(); }
  void require_usable(const TensorList &grads, const Argument &name = "grads") const;
  /// Copies the scaler's state to a list of another context. Allocates the first time.
  void send_state(TensorList &grads, CallStream &call);
  /// The same if the options were set since.
  void send_options(TensorList &grads, CallStream &call);
  /// Ends a call that enqueued work on a list. Later work of the scaler waits for it.
  static void leave(TensorList &grads, CallStream &call);
  /// What work on the list's device reads of the scaler.
  ScalerRecord *record_on(const TensorList &grads) const;
  /// What orders reads of a list's record on the scaler's device.
  StreamOrder &order_of_record(const TensorList &grads) const;
  /// The list's record on the scaler's device. The call then uses or marks order_of_record.
  const ListRecord *record_here(const TensorList &grads, CallStream &call) const;
  /// Remembers a list that leaves the iteration without an update.
  void remember_discarded(TensorList &grads);
  /// For every call that changes the scaler's state.
  void wait_for_lists(CallStream &call);
  /// Before the scaler's state is released: no device reads it any more, or none will when its memory is freed.
  void finish_lists() noexcept;

  Ref<Context> context_;
  gsc_scaler_options options_;
  uint64_t id_;               ///< never 0, never reused
  uint64_t options_set_ = 0;  ///< times
  gsc_reducer reducer_{};
  DeviceMemory record_;
  DeviceMemory history_;
  Vec<Ref<TensorList>> lists_;            ///< in this iteration
  Vec<Ref<TensorList>> discarded_;        ///< their work may still read the scaler's state
  Vec<const ListRecord *> list_records_;  ///< scratch for update
  mutable ScaleUse scale_use_;
  std::atomic<bool> slicing_{false};                 ///< see SliceLock
  mutable std::atomic<bool> told_underflow_{false};  ///< since the scale last had an inverse
  int32_t slicers_ = 0;                              ///< calls that take slices now
  mutable StreamOrder order_;                        ///< of changes of the state, and of reads of it without a list
};

}  // namespace gsc
