// SPDX-License-Identifier: Apache-2.0
// The one interface between the core and a device. A backend owns device memory and runs passes over plans; it knows
// records (records.h) but no handles, stages or policies' callers. Every call is enqueued on the stream and returns
// without waiting, except those whose name ends in _sync. On the CPU the work is done on return.
// Failures of the device are thrown as gsc::Error.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/base/error.h"
#include "core/device/jobs.h"
#include "core/rules/state_conversion.h"

namespace gsc {

/// A stream for as long as the program runs: another one at the same address has another id.
struct StreamId {
  uint64_t stream = 0;   ///< 0: work is done on return, so there is nothing to order
  uint64_t capture = 0;  ///< the graph capture that the stream takes part in; 0: none
  /// Its address is always valid, so an event can be recorded on it at any time.
  bool is_default = false;
  /// Work on it is recorded and may run again, without a call.
  bool is_recorded = false;
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
  /// Released memory goes back in the order of the setup stream, which the caller has made wait for work that uses it.
  /// Otherwise the backend waits for all work of the device before it frees memory.
  virtual bool frees_in_order() const { return false; }
  /// That allocate has given out, unless it is host memory.
  virtual int64_t device_bytes() const { return 0; }
  /// For records and tables: `host` has been read on return.
  virtual void write(void *device, const void *host, int64_t bytes, gsc_stream stream) = 0;
  /// For whole tensors.
  virtual void write_sync(void *device, const void *host, int64_t bytes, gsc_stream stream) = 0;
  virtual void read_sync(void *host, const void *device, int64_t bytes, gsc_stream stream) = 0;
  /// The stream for the work of creating objects, before the caller has passed one, and the wait for it.
  virtual gsc_stream setup_stream() const { return nullptr; }
  virtual void finish_setup() {}
  /// Throws if a tensor's data is not memory of this device. `what` names the argument.
  virtual void validate_memory(const gsc_tensor *tensors, int64_t count, const Argument &what) = 0;
  /// Device memory can be read by the host without waiting.
  virtual bool host_visible() const = 0;
  /// A report without waiting goes to a device address, which the host cannot read.
  virtual bool report_is_address() const { return false; }
  /// How many parallel tasks a plan should be cut into.
  virtual int32_t wanted_tasks() const = 0;

  /// Ordering between streams of this backend, and between backends of one kind. An event marks the work enqueued on a
  /// stream when it was recorded; a backend whose work is done on return needs none.
  virtual StreamId identify(gsc_stream /*stream*/) { return {}; }
  virtual void *make_event() { return nullptr; }
  virtual void destroy_event(void * /*event*/) noexcept {}
  virtual void record_event(void * /*event*/, gsc_stream /*stream*/) {}
  /// Work enqueued on `stream` from now on waits for the event, which may be another backend's. Both were recorded
  /// outside captures, or in the same capture.
  virtual void wait_event(void * /*event*/, gsc_stream /*stream*/) {}
  /// Device memory of this backend from device memory of `source`, which is of the same kind.
  virtual void copy_from(void *to, const Backend & /*source*/, const void *from, int64_t bytes, gsc_stream /*stream*/) {
    std::memcpy(to, from, bytes);
  }

  /// A list's plan has been built: keep what the device needs of it in plan.mirror().
  virtual void bind(Plan &plan) = 0;
  /// The plan is about to get these addresses. If this fails, all of the old ones remain.
  virtual void rebind(const Plan &plan, void *const *data, gsc_stream stream) = 0;
  /// The plan is about to go.
  virtual void unbind(Plan &plan) noexcept = 0;

  virtual void check(const CheckJob &job, gsc_stream stream) = 0;
  virtual void apply(const ApplyJob &job, gsc_stream stream) = 0;
  virtual void elementwise(const ElementwiseJob &job, gsc_stream stream) = 0;
  virtual void norm(const NormJob &job, gsc_stream stream) = 0;
  virtual void record(const RecordJob &job, gsc_stream stream) = 0;
  /// Not for src and dst of one dtype. The caller has checked the dtypes.
  virtual void convert(const StateConversion &job, gsc_stream stream) = 0;
  virtual void diagnose_sync(const DiagnoseJob &job, gsc_stream stream) = 0;
};

}  // namespace gsc
