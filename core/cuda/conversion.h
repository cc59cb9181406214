// SPDX-License-Identifier: Apache-2.0
// State from one format to another: the launcher.
#pragma once

#include <cuda_runtime_api.h>

#include "core/rules/state_conversion.h"

namespace gsc::cuda {

cudaError_t preload_conversion();
/// `units`: multiprocessors of the device.
cudaError_t launch_conversion(const StateConversion &job, int32_t units, cudaStream_t stream);

}  // namespace gsc::cuda
