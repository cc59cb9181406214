// SPDX-License-Identifier: Apache-2.0
// The one interface between the core and a device. A backend owns device memory and runs passes over plans; it knows
// records (records.h) but no handles, stages or policies' callers. Every call is enqueued on the stream and returns
// without waiting, except those whose name ends in _sync. On the CPU the work is done on return.
// Failures of the device are thrown as gsc::Error.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "core/device/plan.h"
#include "core/rules/elementwise.h"
#include "core/rules/optim/variants.h"
#include "core/rules/records.h"

namespace gsc {

/// One pass that looks at gradients, and multiplies them in place if `unscale`.
struct CheckJob {
  Plan *plan;
  ListRecord *record;
  const float *inv_scale;  ///< device word; NULL: 1
  int64_t first_chunk;     ///< chunks [first_chunk, last_chunk) of the plan
  int64_t last_chunk;
  bool unscale;
  bool begin;     ///< first job of this check: forget what was counted before
  bool finish;    ///< all chunks have been looked at: write the totals to the record ...
  bool conclude;  ///< ... and conclude the check under `rule`; false if a reducer comes in between
  ClipRule rule;
};

/// One optimizer step.
struct ApplyJob {
  Variant variant;
  Plan *grads;
  const Plan *params;
  const Plan *model_copy;  ///< NULL: none
  const Plan *state[kMaxStates];
  const int32_t *group_of;             ///< per tensor; device memory
  const GroupRecord *groups;           ///< device memory
  Coefficients<double> *coefficients;  ///< device memory, one per group, written by the job
  int32_t group_count;
  double *trust;  ///< LAMB: one word per tensor in device memory
  OptimizerRecord *record;
  const float *inv_scale;  ///< device words; NULL stands for 1, 1 and 0
  const float *clip;
  const float *found_inf;
  double clip_value;  ///< +inf: none
  bool maximize;
  bool zero_grads;
  bool write_grads;
  bool device_lrs;            ///< some group's learning rate is read from device memory
  ScalerRecord *update;       ///< not NULL: the scaler's update follows in the same job, ...
  const ListRecord *checked;  ///< ... with this list as the only one of the iteration
};

/// Element-wise work between pairs of tensors of equal counts.
struct LinearJob {
  Linear op;
  const Plan *src;
  const Plan *dst;
  double a;             ///< kAxpby, kClamp
  double b;             ///< kAxpby
  const float *factor;  ///< kScale: device word
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend &) = delete;
  Backend &operator=(const Backend &) = delete;
  virtual ~Backend() = default;

  /// Zeroed device memory, aligned to 64 bytes; throws std::bad_alloc.
  virtual void *allocate(int64_t bytes) = 0;
  virtual void release(void *memory, int64_t bytes) noexcept = 0;
  virtual void write(void *device, const void *host, int64_t bytes, gsc_stream stream) = 0;
  virtual void read_sync(void *host, const void *device, int64_t bytes, gsc_stream stream) = 0;
  /// The stream that creation enqueues its work on, and waiting for it: nobody has named a stream by then.
  [[nodiscard]] virtual gsc_stream setup_stream() const { return nullptr; }
  virtual void finish_setup() {}
  /// Throws if a tensor's data is not memory of this device. `what` names the argument.
  virtual void validate_memory(const gsc_tensor *tensors, int64_t count, const char *what) = 0;
  /// Device memory can be read by the host without waiting.
  [[nodiscard]] virtual bool host_visible() const = 0;
  /// How many parallel tasks a plan should be cut into.
  [[nodiscard]] virtual int32_t wanted_tasks() const = 0;

  /// Ordering between two backends of one kind. An event stands for the work enqueued on a stream when it was recorded;
  /// what is done on return needs none. The stream is always one of the backend that is asked.
  virtual void *make_event() { return nullptr; }
  virtual void destroy_event(void * /*event*/) noexcept {}
  virtual void record_event(void * /*event*/, gsc_stream /*stream*/) {}
  /// What is enqueued on `stream` from now on starts after what the event, perhaps another backend's, stands for. Work
  /// that is captured in a graph and work that is not cannot wait for each other, and do not.
  virtual void wait_event(const void * /*event*/, gsc_stream /*stream*/) {}
  /// Device memory of this backend from device memory of `source`, which is of the same kind.
  virtual void copy_from(void *to, const Backend & /*source*/, const void *from, int64_t bytes, gsc_stream /*stream*/) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  /// A list's plan has been built, or has new addresses: keep what the device needs of it in plan.mirror().
  virtual void bind(Plan &plan, gsc_stream stream) = 0;
  /// The plan is about to go.
  virtual void unbind(Plan &plan) noexcept = 0;

  virtual void check(const CheckJob &job, gsc_stream stream) = 0;
  virtual void conclude(ListRecord *record, const ClipRule &rule, gsc_stream stream) = 0;
  virtual void apply(const ApplyJob &job, gsc_stream stream) = 0;
  virtual void update(ScalerRecord *record, const ListRecord *const *lists, int64_t count, gsc_stream stream) = 0;
  virtual void set_policy(ScalerRecord *record, const Policy &policy, gsc_stream stream) = 0;
  virtual void set_scale(ScalerRecord *record, float scale, gsc_stream stream) = 0;
  /// Writes a gsc_report of the scaler, and of `list` or, if NULL, of the last update, to host memory.
  virtual void report(const ScalerRecord *record, const ListRecord *list, gsc_report *out, gsc_stream stream) = 0;

  virtual void linear(const LinearJob &job, gsc_stream stream) = 0;
  virtual void fill(const Plan &plan, double value, gsc_stream stream) = 0;
  /// Norms to device memory from a check with inv_scale 1; out_tensor_norms may be NULL.
  virtual void norm(Plan &plan, bool amax, double *out_norm, double *out_tensor_norms, gsc_stream stream) = 0;
  /// In-place unscaling on words of the caller's.
  virtual void unscale_check(const Plan &plan, float *found_inf, const float *inv_scale, gsc_stream stream) = 0;
  virtual void update_scale(const Policy &policy, float *scale, int32_t *growth_tracker, const float *found_inf,
                            gsc_stream stream) = 0;
  virtual void diagnose_sync(const Plan &plan, gsc_tensor_diagnosis *out, int64_t *histogram, gsc_stream stream) = 0;
};

}  // namespace gsc
