// SPDX-License-Identifier: Apache-2.0
// Launching a kernel on a stream. Included by the .cu files only. The tests' emulation has its own enqueue().
#pragma once

#include <initializer_list>
#include <tuple>

#include "core/cuda/teams.h"

namespace gsc::cuda {

#if defined(GSC_CUDA_EMULATION)
using emulation::count_blocks;
using emulation::enqueue;
using emulation::preload;
#else
template <typename... P, typename... A>
cudaError_t enqueue(void (*kernel)(P...), int64_t blocks, int threads, cudaStream_t stream, const A &...arguments) {
  std::tuple<std::remove_const_t<P>...> values(arguments...);
  return std::apply(
      [&](auto &...value) {
        void *addresses[] = {&value...};
        return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(static_cast<unsigned>(blocks)),
                                dim3(static_cast<unsigned>(threads)), addresses, 0, stream);
      },
      values);
}

template <typename... P>
cudaError_t preload(void (*kernel)(P...)) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(kernel));
}

/// Resident blocks of the kernel per multiprocessor.
template <typename... P>
cudaError_t count_blocks(int &blocks, void (*kernel)(P...), int threads) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void *>(kernel), threads, 0);
}
#endif

template <typename... K>
cudaError_t preload_all(K... kernels) {
  cudaError_t result = cudaSuccess;
  (void)((result = preload(kernels), result == cudaSuccess) && ...);
  return result;
}

}  // namespace gsc::cuda
