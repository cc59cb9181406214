// SPDX-License-Identifier: Apache-2.0
// Work on records alone: launchers.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"
#include "core/rules/records.h"
#include "gradscaler/gradscaler.h"

namespace gsc::cuda {

cudaError_t preload_records();
cudaError_t launch_conclude(ListRecord *record, const ClipRule &rule, cudaStream_t stream);
cudaError_t launch_update(ScalerRecord *record, const PointerBatch &lists, int count, bool first, bool last,
                          cudaStream_t stream);
cudaError_t launch_set_policy(ScalerRecord *record, const Policy &policy, cudaStream_t stream);
cudaError_t launch_set_scale(ScalerRecord *record, float scale, cudaStream_t stream);
cudaError_t launch_report(const ScalerRecord *record, const ListRecord *list, gsc_report *out, cudaStream_t stream);
cudaError_t launch_update_scale(const Policy &policy, float *scale, int32_t *growth_tracker, const float *found_inf,
                                cudaStream_t stream);

}  // namespace gsc::cuda
