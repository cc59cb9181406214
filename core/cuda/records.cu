// SPDX-License-Identifier: Apache-2.0
// Small kernels on records: what the host has to say travels in their parameters, so that it is ordered on the stream,
// needs no staging memory and can be captured in a graph. The rules are those of core/rules/records.h and policy.h.
#include "core/cuda/device.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/records.h"
#include "core/rules/report.h"

namespace gsc::cuda {

static __global__ void conclude_kernel(ListRecord *record, const __grid_constant__ ClipRule rule) {
  conclude_check(*record, rule);
}

/// More lists than a batch holds come in several launches; what they add up to waits in the record.
static __global__ void update_kernel(ScalerRecord *record, const __grid_constant__ PointerBatch lists, int count,
                                     bool first, bool last) {
  UpdateSummary summary = first ? empty_summary() : record->last;
  for (int i = 0; i < count; ++i) add_to_summary(summary, *static_cast<const ListRecord *>(lists.pointers[i]));
  if (last) {
    conclude_update(*record, summary);
  } else {
    record->last = summary;
  }
}

static __global__ void set_policy_kernel(ScalerRecord *record, const __grid_constant__ Policy policy) {
  replace_policy(*record, policy);
}

static __global__ void set_scale_kernel(ScalerRecord *record, float scale) { store_scale(record->state, scale); }

static __global__ void report_kernel(const ScalerRecord *record, const ListRecord *list, gsc_report *out) {
  pack_report(*record, list, *out);
}

static __global__ void update_scale_kernel(const __grid_constant__ Policy policy, float *scale, int32_t *growth_tracker,
                                           const float *found_inf) {
  PolicyState state{};
  state.scale = *scale;
  state.growth_tracker = *growth_tracker;
  policy_update(policy, state, *found_inf != 0.0F);
  *scale = state.scale;
  *growth_tracker = state.growth_tracker;
}

cudaError_t preload_records() {
  return preload_all(conclude_kernel, update_kernel, set_policy_kernel, set_scale_kernel, report_kernel,
                     update_scale_kernel);
}

cudaError_t launch_conclude(ListRecord *record, const ClipRule &rule, cudaStream_t stream) {
  return enqueue(conclude_kernel, 1, 1, stream, record, rule);
}

cudaError_t launch_update(ScalerRecord *record, const PointerBatch &lists, int count, bool first, bool last,
                          cudaStream_t stream) {
  return enqueue(update_kernel, 1, 1, stream, record, lists, count, first, last);
}

cudaError_t launch_set_policy(ScalerRecord *record, const Policy &policy, cudaStream_t stream) {
  return enqueue(set_policy_kernel, 1, 1, stream, record, policy);
}

cudaError_t launch_set_scale(ScalerRecord *record, float scale, cudaStream_t stream) {
  return enqueue(set_scale_kernel, 1, 1, stream, record, scale);
}

cudaError_t launch_report(const ScalerRecord *record, const ListRecord *list, gsc_report *out, cudaStream_t stream) {
  return enqueue(report_kernel, 1, 1, stream, record, list, out);
}

cudaError_t launch_update_scale(const Policy &policy, float *scale, int32_t *growth_tracker, const float *found_inf,
                                cudaStream_t stream) {
  return enqueue(update_scale_kernel, 1, 1, stream, policy, scale, growth_tracker, found_inf);
}

}  // namespace gsc::cuda
