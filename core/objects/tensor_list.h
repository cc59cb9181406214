// SPDX-License-Identifier: Apache-2.0
// A list of tensors: a plan over them, their names, the record of the last check in device memory, and the list's state
// in the current iteration. Scaler changes its stage.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/error.h"
#include "core/device/names.h"
#include "core/device/plan.h"
#include "core/objects/context.h"
#include "core/objects/iteration.h"
#include "core/objects/other_context.h"
#include "core/objects/overlap_check.h"
#include "core/rules/records.h"

namespace gsc {

class Optimizer;
class TensorList;

/// One use of a list by an optimizer, in the list's chain of uses.
struct ListUse {
  TensorList *list = nullptr;
  const Optimizer *user = nullptr;
  ListUse *next = nullptr;
  ListUse **place = nullptr;  ///< the pointer to this use: `next` of the previous one, or the list's first
};

class TensorList final : public Object {
 public:
  static constexpr Tag kTag = Tag::kTensorList;

  /// Validates and plans; names may be NULL.
  static Ref<TensorList> create(const Ref<Context> &context, const gsc_tensor *tensors, int64_t count,
                                const char *const *names);

  /// `scales` is scales_of(tensors). `names` is empty or has an entry per tensor. `owned` is memory of the tensors that
  /// the list frees.
  TensorList(Ref<Context> context, const gsc_tensor *tensors, int64_t count, const Vec<gsc_tensor> &scales, Names names,
             DeviceMemory owned = {});
  /// The scales as tensors of bytes, one per tensor; empty if no tensor has any.
  static Vec<gsc_tensor> scales_of(const gsc_tensor *tensors, int64_t count, std::pmr::memory_resource *memory);

  const Ref<Context> &context() const { return context_; }
  const Plan &plan() const { return plan_; }
  Plan &plan() { return plan_; }
  /// The scales of optimizer state, a tensor of bytes for each tensor of the list; NULL if none has any.
  const Plan *scales() const { return scales_ ? &scales_->plan() : nullptr; }
  /// Throws unless `count` is the number of tensors.
  void require_count(int64_t count) const;
  /// Throws if a tensor has a dtype that only optimizer state may have.
  void require_elements(const Argument &what) const;
  ListRecord *record() const { return record_.as<ListRecord>(); }
  /// What the norms of the list have been. Waits for the stream; the write waits for the work on it.
  NormAverage read_norms(gsc_stream stream) const;
  void write_norms(const NormAverage &norms, gsc_stream stream);

  void set_pointers(void *const *data, int64_t count, gsc_stream stream);
  /// `present` has a byte per tensor, NULL: all; `data` may be NULL.
  void set_present(const uint8_t *present, void *const *data, int64_t count, gsc_stream stream);
  /// A device scalar that steps multiply gradients by; NULL: none.
  const float *device_factor() const { return device_factor_; }
  void set_device_factor(const float *factor);
  /// On a device that the host reads. `what` is the list, or an optimizer that has it.
  void require_device_factor(const Argument &what) const;
  /// Device memory for the norm of every tensor, which checks write; NULL: they are not kept.
  double *device_norms() const { return device_norms_; }
  void set_device_norms(double *norms, int64_t count);
  const char *name(int64_t index) const;
  const Names &names() const { return names_; }
  gsc_tensor at(int64_t index) const;

  /// Under the context's uses_mutex().
  void add_use(ListUse &use);
  void remove_use(ListUse &use) noexcept;
  ListUse *first_use() const { return uses_; }

  /// Id of the list's scaler in this iteration; 0: none. Ends the iteration of a destroyed scaler.
  uint64_t owner();
  /// Called when scaler `id` is destroyed, maybe by a finalizer, while other threads use the list.
  void abandon(uint64_t id) noexcept { abandoned_by_.store(id, std::memory_order_release); }
  /// Id of the step in slices of an optimizer that the list belongs to, as its gradients or in any other role; 0: none.
  /// Any thread may ask, since optimizers of several threads may have the list.
  uint64_t slices() const noexcept { return slices_.load(std::memory_order_relaxed); }
  /// Refuses a list that a step in slices is not done with. Every call that uses a list asks, but for getters. `what` is
  /// the list, or an optimizer that has it.
  enum class Named { kItself, kByItsOptimizer };
  void require_no_slices(const Argument &what, Named named = Named::kItself) const;
  void begin_slices(uint64_t id) noexcept { slices_.store(id, std::memory_order_relaxed); }
  void end_slices(uint64_t id) noexcept { slices_.compare_exchange_strong(id, 0, std::memory_order_relaxed); }
  /// Of gradients: ends the step in slices that their iteration has, for all lists of its optimizer.
  void cancel_slices() noexcept;
  /// READY, in no scaler's iteration.
  void end_iteration() noexcept {
    cancel_slices();
    iteration.end();
  }

  /// Of the calls that use the list, also those of optimizers.
  StreamOrder &order() const { return order_; }

  Iteration iteration;
  uint64_t checked_by = 0;     ///< id of the scaler that wrote the record; 0: none yet
  OtherContext other_context;  ///< used while the scaler is of another context

 private:
  ~TensorList() override;
  friend class Context;
  void destroy() noexcept override { Context::unmake(this); }
  void require_index(int64_t index) const;
  /// Fails while the list is in a scaler's iteration.
  void require_no_owner();
  /// Sets the addresses of present tensors to `data`, or leaves them if that is NULL; absent ones get NULL. `commit`
  /// changes the plan when nothing can fail any more. is_present(i): whether tensor i is present from now on.
  template <typename P, typename F>
  void move(const P &is_present, void *const *data, gsc_stream stream, const F &commit);

  Ref<Context> context_;
  DeviceMemory owned_;
  Plan plan_;
  Ref<TensorList> scales_;    ///< empty if no tensor has any
  bool holds_state_ = false;  ///< some dtype is one that only optimizer state may have
  Names names_;               ///< empty if no tensor has a name
  DeviceMemory record_;
  const float *device_factor_ = nullptr;
  double *device_norms_ = nullptr;
  ListUse *uses_ = nullptr;
  // For move(); kept, so that moving the list again allocates nothing.
  Vec<gsc_tensor> moved_;
  Vec<void *> addresses_;
  OverlapCheck overlap_;
  mutable StreamOrder order_;
  std::atomic<uint64_t> abandoned_by_{0};
  std::atomic<uint64_t> slices_{0};
};

}  // namespace gsc
