// SPDX-License-Identifier: Apache-2.0
// The launchers: one function a kernel, defined in the .cu files. They choose the instance and the grid, enqueue, and
// return what the runtime says; checking arguments and turning errors into messages is the backend's business.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan_view.h"

namespace gsc::cuda {

/// Loads every kernel now: the first launch of one must not happen while a graph is being captured.
cudaError_t preload_check();
cudaError_t preload_apply_fp32();
cudaError_t preload_apply_fp64();
cudaError_t preload_linear();
cudaError_t preload_words();

cudaError_t launch_check(const CheckParams &p, bool unscale, int units, cudaStream_t stream);
cudaError_t launch_reset_counters(CheckCounters *counters, cudaStream_t stream);
cudaError_t launch_norm(const NormParams &p, cudaStream_t stream);

cudaError_t launch_prepare(const ApplyParams &p, cudaStream_t stream);
cudaError_t launch_apply_fp32(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_apply_fp64(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_lamb_moments_fp32(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_lamb_moments_fp64(const ApplyParams &p, int units, cudaStream_t stream);
cudaError_t launch_lamb_trust(const ApplyParams &p, cudaStream_t stream);

cudaError_t launch_linear(const LinearParams &p, int units, cudaStream_t stream);
cudaError_t launch_fill(const FillParams &p, int units, cudaStream_t stream);
cudaError_t launch_diagnose(const DiagnoseParams &p, int units, cudaStream_t stream);

cudaError_t launch_write(void *to, const void *host, int bytes, cudaStream_t stream);
cudaError_t launch_write_tensors(DeviceTensor *tensors, int32_t *tensor_of, const TensorBatch &batch, int64_t first,
                                 int count, int64_t end_chunk, cudaStream_t stream);
cudaError_t launch_write_pointers(DeviceTensor *to, const PointerBatch &batch, int count, cudaStream_t stream);
cudaError_t launch_conclude(ListRecord *record, const ClipRule &rule, cudaStream_t stream);
cudaError_t launch_update(ScalerRecord *record, const PointerBatch &lists, int count, bool first, bool last,
                          cudaStream_t stream);
cudaError_t launch_set_policy(ScalerRecord *record, const Policy &policy, cudaStream_t stream);
cudaError_t launch_set_scale(ScalerRecord *record, float scale, cudaStream_t stream);
cudaError_t launch_report(const ScalerRecord *record, const ListRecord *list, gsc_report *out, cudaStream_t stream);
cudaError_t launch_update_scale(const Policy &policy, float *scale, int32_t *growth_tracker, const float *found_inf,
                                cudaStream_t stream);

}  // namespace gsc::cuda
