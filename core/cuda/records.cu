// SPDX-License-Identifier: Apache-2.0
// Small kernels on records. Host data is passed in their parameters, so that it is stream-ordered, needs no staging
// memory and can be captured in a graph. The rules are those of core/rules/records.h and policy.h.
#include "core/cuda/device.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/records.h"

namespace gsc::cuda {

static __global__ void record_kernel(const __grid_constant__ RecordJob job) {
  run_sized_record_job(job, empty_summary());
}

/// More lists than fit in a batch take several launches, of which only the last changes what can be read.
static __global__ void update_kernel(ScalerRecord *record, const __grid_constant__ PointerBatch lists, int count,
                                     bool first, bool last) {
  UpdateSummary summary = first ? empty_summary() : record->running;
  for (int i = 0; i < count; ++i) add_to_summary(summary, *static_cast<const ListRecord *>(lists.pointers[i]));
  if (last) {
    conclude_update(*record, summary);
  } else {
    record->running = summary;
  }
}

cudaError_t preload_records() { return preload_all(record_kernel, update_kernel); }

cudaError_t launch_record(const RecordJob &job, cudaStream_t stream) {
  return enqueue(record_kernel, 1, 1, stream, job);
}

cudaError_t launch_update(ScalerRecord *record, const PointerBatch &lists, int count, bool first, bool last,
                          cudaStream_t stream) {
  return enqueue(update_kernel, 1, 1, stream, record, lists, count, first, last);
}

}  // namespace gsc::cuda
