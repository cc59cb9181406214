// SPDX-License-Identifier: Apache-2.0
// Writing to device memory from a kernel's parameters.
#include <cstring>

#include "core/cuda/device.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/memory.h"

namespace gsc::cuda {

/// Data passed in a kernel's parameters.
struct Payload {
  unsigned char bytes[kParameterBytes];
};

static __global__ void write_kernel(unsigned char *to, const __grid_constant__ Payload payload, int bytes) {
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += static_cast<int>(blockDim.x)) to[i] = payload.bytes[i];
}

cudaError_t preload_memory() { return preload_all(write_kernel); }

cudaError_t launch_write(void *to, const void *host, int bytes, cudaStream_t stream) {
  Payload payload;
  std::memcpy(payload.bytes, host, bytes);
  return enqueue(write_kernel, 1, kThreads, stream, static_cast<unsigned char *>(to), payload, bytes);
}

}  // namespace gsc::cuda
