// SPDX-License-Identifier: Apache-2.0
// An optimizer: lists of parameters, gradients, an optional 16-bit copy and state, parameter groups, step counts.
// It hands complete jobs to the backend. The scaler or the caller decides when to step, and under which device scalars.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>

#include "core/objects/context.h"
#include "core/objects/optimizer_table.h"
#include "core/objects/step_slices.h"
#include "core/objects/tensor_list.h"
#include "core/rules/step.h"

namespace gsc {

/// State slots of an optimizer: those of its formula, the average of the weights, the remainder of split masters.
inline constexpr int kMaxSlots = kMaxStates + 2;
static_assert(3 + kMaxSlots + 2 <= CallStream::kMostUses);

class Optimizer final : public Object {
 public:
  static constexpr Tag kTag = Tag::kOptimizer;

  struct Lists {
    Ref<TensorList> params;
    Ref<TensorList> grads;
    Ref<TensorList> model_copy;  ///< may be empty
    Ref<TensorList> state[kMaxSlots];
  };

  /// `state` NULL with state_count 0: made here.
  static Ref<Optimizer> create(const Ref<Context> &context, const gsc_optimizer_options &options, Lists lists,
                               int32_t state_count);

  /// State slots that an optimizer with these options has.
  static int32_t slots_of(const gsc_optimizer_options &options);
  /// What they hold; a remainder counts as a moment.
  static Slot slot_holds(const gsc_optimizer_options &options, int32_t slot);

  Optimizer(Ref<Context> context, const gsc_optimizer_options &options, Lists lists);

  const Ref<Context> &context() const { return context_; }
  TensorList &grads() const { return *lists_.grads; }
  /// A step leaves other gradients in memory than it found.
  bool writes_grads() const {
    return (options_[0].flags & (GSC_OPTIMIZER_WRITE_GRADS | GSC_OPTIMIZER_ZERO_GRADS)) != 0;
  }
  bool zeroes_grads() const { return (options_[0].flags & GSC_OPTIMIZER_ZERO_GRADS) != 0; }
  int32_t state_count() const { return slot_count_; }
  /// NULL for a slot that does not exist.
  TensorList *state(int32_t slot) const { return lists_.state[slot].get(); }
  const char *slot_name(int32_t slot) const;
  Slot slot_holds(int32_t slot) const { return slot_holds(options_[0], slot); }

  int32_t add_group(int64_t first, int64_t count, const gsc_optimizer_options &options);
  int32_t group_count() const { return static_cast<int32_t>(options_.size()); }
  const gsc_optimizer_options &options(int32_t group) const;
  void set_options(int32_t group, const gsc_optimizer_options &options, gsc_stream stream);
  void set_lr(int32_t group, double lr, gsc_stream stream);
  void set_device_lr(int32_t group, const float *lr, gsc_stream stream);

  /// New addresses of `changed`, sorted by a check that has run, must not lie in the optimizer's other lists.
  void require_no_overlap(const OverlapCheck &addresses, const TensorList &changed) const;

  /// For every call on the optimizer, whatever it does: the order of an optimizer is that of each of its lists.
  void use(CallStream &call) const;

  /// `by`: a scaler has checked the gradients with the inverse scale, or the caller vouches for it.
  enum class By { kScaler, kCaller };
  /// Refuses a step that cannot be taken now. Allocates the first time that a gradient may be absent.
  void prepare_step();
  /// A step that was prepared, or a part of it.
  void step(const StepScalars &scalars, CallStream &call, By by = By::kScaler);
  void run(const StepScalars &scalars, const StepPart &part, CallStream &call, By by = By::kScaler);
  /// Bytes that a step reads and writes for each element of a tensor.
  int64_t step_bytes(int64_t tensor) const;
  bool needs_norms() const { return gsc::needs_norms(variant_); }
  /// A step in slices was begun, and neither finished nor discarded.
  bool is_between_slices() const;
  void require_no_slices() const;
  /// Refuses an optimizer one of whose lists, or of whose state's, is between the slices of another's step.
  void require_free_lists() const;
  void require_free_state() const;
  /// Marks all lists as those of a step in slices, until its end.
  void begin_slices(uint64_t id) const noexcept;
  void end_slices(uint64_t id) const noexcept;
  /// Which parts of a step change state or parameters, besides the sweep that applies it: the coefficients, the sweep of
  /// moments, the ratios.
  bool preparing_moves() const { return averages(variant_) || (counts_each_tensor() && grads().plan().has_absent()); }
  bool moments_move() const { return !gradients_last(variant_); }
  bool ratios_move() const { return has_numbers(variant_); }
  /// A step that no scaler takes.
  void step_alone(const StepScalars &scalars, gsc_stream stream);
  /// Refuses an invalid learning rate in memory that the host can read; a device skips the step instead.
  void require_learning_rates() const;
  /// Refuses an optimizer that the device left half loaded or half stepped.
  void require_whole_state() const;
  void zero_grads(gsc_stream stream);
  /// Takes parameters to the averages of their iterates, or back.
  void set_evaluating(int32_t evaluating, gsc_stream stream);
  bool evaluating() const { return evaluating_; }

  OptimizerRecord steps(gsc_stream stream) const;
  void set_steps(int64_t applied, int64_t skipped, gsc_stream stream);
  /// Applied steps of each tensor, in host memory.
  void tensor_steps(int64_t *steps, int64_t count, gsc_stream stream) const;
  void set_tensor_steps(const int64_t *steps, int64_t count, gsc_stream stream);
  /// Where each tensor begins in stochastic rounding.
  void set_offsets(const int64_t *offsets, int64_t count, gsc_stream stream);

  // Checkpoints: optimizer_checkpoint.cpp.
  int64_t save_size() const;
  void save_sync(void *buffer, int64_t size, gsc_stream stream) const;
  void load_sync(const void *buffer, int64_t size, gsc_stream stream);

  StepSlices slices;  ///< the scaler's

 private:
  ~Optimizer() override;
  friend class Context;
  void destroy() noexcept override { Context::unmake(this); }

  OptimizerRecord read_steps(CallStream &call) const;
  void require_group(int32_t group) const;
  void require_tensors(int64_t count) const;
  /// Counts the steps of each tensor from now on. Allocates the first time.
  void count_each_tensor();
  /// Call it with memory that is or will be replaced, before it is released: that happens behind the work that uses it.
  /// If calls have been recorded, in graphs or command buffers, it is kept, since they may run again.
  void let_go(std::initializer_list<DeviceMemory *> replaced);
  bool counts_each_tensor() const { return lags_.bytes() > 0; }
  /// Writes step counts to the record, and `lags`, which may be empty; half of it would be as of a load.
  void write_counts(void *to, const void *counts, int64_t bytes, const Vec<int64_t> &lags, CallStream &call);
  /// Whether saved state of this dtype can be converted to that of a tensor.
  bool is_loadable(int32_t dtype, int32_t slot, int64_t tensor) const;
  /// Room for what a job writes.
  DeviceMemory make_coefficients(std::size_t groups) const;
  DeviceMemory make_coefficients(std::size_t groups, bool each_tensor) const;
  void validate_group(const gsc_optimizer_options &options) const;
  /// Whether fp64 gradients of smaller parameters are used in fp32: what does not fit there must count as an overflow
  /// for as long as the optimizer lives.
  bool converts_gradients() const;
  /// Calls f(list, name) for every list there is.
  template <typename F>
  void for_each_list(const F &f) const {
    f(*lists_.params, Argument("params"));
    f(*lists_.grads, Argument("grads"));
    if (lists_.model_copy) f(*lists_.model_copy, Argument("model_copy"));
    for (int32_t slot = 0; slot < kMaxSlots; ++slot) {
      if (lists_.state[slot]) f(*lists_.state[slot], Argument("state").at(slot));
    }
  }
  void make_state();
  void make_state(int32_t slot);
  /// Allocates one slot; dtype_of(param) gives the dtype of a tensor of it.
  template <typename F>
  Ref<TensorList> make_slot(Slot holds, const F &dtype_of) const;
  bool splits_masters() const { return remainder_dtype(options_[0].master_format) != 0; }
  bool has_ema() const { return options_[0].ema_decay > 0.0; }
  /// A step, but for its scalars.
  ApplyJob make_job();
  /// Some state is in codes, or parameters are not rounded to nearest.
  bool is_coded() const;
  /// What the state of tensors [first, first + count) begins with, if that is not 0.
  void fill_first_state(int64_t first, int64_t count, const gsc_optimizer_options &options);
  void upload_offsets();
  void change_group(int32_t group, const gsc_optimizer_options &options, const float *lr, gsc_stream stream);
  /// Writes a group to the device and leaves options_ and device_lrs_ as they are.
  void write_group(int32_t group, const gsc_optimizer_options &options, const float *lr, gsc_stream stream);
  /// Refuses an inverse scale in memory that the host can read, unless the step is skipped.
  void require_inverse_scale(const StepScalars &scalars) const;
  /// The scalars of a step without a scaler, with the device factor of the gradients.
  StepScalars with_device_factor(const StepScalars &scalars, CallStream &call);
  /// No scaler is in the middle of what only its own step would finish.
  void require_no_scaler_at_work(const StepScalars &scalars) const;
  /// Device arrays for `groups` groups, filled from options_ and device_lrs_.
  void upload_groups();

  Ref<Context> context_;
  Lists lists_;
  Variant variant_;
  int32_t slot_count_;
  bool converts_gradients_ = false;
  bool half_loaded_ = false;              ///< the last load_sync failed on the device
  bool half_stepped_ = false;             ///< a step did, after a part of it that must not be done twice
  bool evaluating_ = false;               ///< the parameters are the averages of their iterates
  bool made_state_ = false;               ///< the state is not the caller's ...
  std::atomic<bool> used_state_ = false;  ///< ... and may hold more than it began with; slices run side by side
  double first_sum_;                      ///< Adagrad's initial value in group 0
  Vec<gsc_optimizer_options> options_;    ///< per group
  Vec<const float *> device_lrs_;         ///< per group
  Vec<int32_t> group_of_;                 ///< per tensor
  DeviceMemory groups_;
  DeviceMemory coefficients_;
  DeviceMemory device_group_of_;
  DeviceMemory ratios_;
  DeviceMemory lags_;  ///< per tensor: applied steps that it was absent from; empty as long as all take all steps
  DeviceMemory record_;
  DeviceMemory offsets_;  ///< per tensor: index of its first element in stochastic rounding; empty unless is_coded()
  Vec<DeviceMemory> replaced_;                  ///< that recorded calls use
  mutable std::atomic<bool> recorded_ = false;  ///< a call was
  ListUse uses_[3 + kMaxSlots];
};

}  // namespace gsc
