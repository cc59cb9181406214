// SPDX-License-Identifier: Apache-2.0
// Small kernels on records and tables: what the host has to say travels in their parameters, so that it is ordered on
// the stream, needs no staging memory and can be captured in a graph. The rules are those of core/rules/records.h and
// core/rules/policy.h.
#pragma once

#include "core/cuda/device.cuh"
#include "core/rules/report.h"

namespace gsc::cuda {

static __global__ void write_kernel(unsigned char *to, const __grid_constant__ Payload payload, int bytes) {
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += static_cast<int>(blockDim.x)) to[i] = payload.bytes[i];
}

/// `count` tensors from number `first` on, whose chunks end before `end_chunk`, and the tensor of each of the chunks.
static __global__ void __launch_bounds__(kThreads)
    write_tensors_kernel(DeviceTensor *tensors, int32_t *tensor_of, const __grid_constant__ TensorBatch batch,
                         int64_t first, int count, int64_t end_chunk) {
  for (int i = warp_index(); i < count; i += kWarps) {
    const int64_t end = i + 1 < count ? batch.tensors[i + 1].first_chunk : end_chunk;
    if (lane_index() == 0) tensors[first + i] = batch.tensors[i];
    for (int64_t chunk = batch.tensors[i].first_chunk + lane_index(); chunk < end; chunk += 32) {
      tensor_of[chunk] = static_cast<int32_t>(first + i);
    }
  }
}

static __global__ void write_pointers_kernel(DeviceTensor *to, const __grid_constant__ PointerBatch batch, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    to[i].data = const_cast<void *>(batch.pointers[i]);
  }
}

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

}  // namespace gsc::cuda
