// SPDX-License-Identifier: Apache-2.0
// Operations on records only: launchers.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"
#include "core/rules/record_job.h"

namespace gsc::cuda {

cudaError_t preload_records();
/// Any kind except kUpdate.
cudaError_t launch_record(const RecordJob &job, cudaStream_t stream);
/// Part of an update's lists, at most a batch.
cudaError_t launch_update(ScalerRecord *record, const PointerBatch &lists, int count, bool first, bool last,
                          cudaStream_t stream);

}  // namespace gsc::cuda
