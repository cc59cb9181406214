// SPDX-License-Identifier: Apache-2.0
// Writing to device memory from a kernel's parameters: ordered on the stream, without staging memory, capturable.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/plan.h"

namespace gsc::cuda {

cudaError_t preload_memory();
/// At most kParameterBytes.
cudaError_t launch_write(void *to, const void *host, int bytes, cudaStream_t stream);

}  // namespace gsc::cuda
