// SPDX-License-Identifier: Apache-2.0
// The benchmarks' own kernels: peak memory bandwidth, noise as training data, and flushing the cache.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace bench {

/// Bytes and addresses must be multiples of 16. Each returns the launch's error.
/// By a kernel with 2, 4 or 8 loads of 16 bytes in flight, or for 0 by the runtime.
cudaError_t copy(int loads, void *to, const void *from, int64_t bytes, cudaStream_t stream);
/// Reads all of it. Evicts everything else from the cache and leaves no dirty lines.
cudaError_t read(const void *from, int64_t bytes, cudaStream_t stream);
/// Noise of magnitude 2^-8 to 1 in a dtype of the ABI: fp16, bf16 or fp32.
cudaError_t fill_noise(void *to, int32_t dtype, int64_t bytes, uint32_t seed, cudaStream_t stream);

}  // namespace bench
