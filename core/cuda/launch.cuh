// SPDX-License-Identifier: Apache-2.0
// How a kernel is put on a stream, and how large its grid is. Included by the .cu files only. The emulation of the
// tests brings its own enqueue().
#pragma once

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include "core/cuda/plan.h"

namespace gsc::cuda {

#if defined(GSC_CUDA_EMULATION)
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
#endif

template <typename... K>
cudaError_t preload_all(K... kernels) {
  cudaError_t result = cudaSuccess;
  (void)((result = preload(kernels), result == cudaSuccess) && ...);
  return result;
}

/// Blocks for `chunks` chunks: as many as there is work for, at most `per_unit` on each multiprocessor, at least one.
inline int64_t blocks_for(int64_t chunks, int warps_per_chunk, int units, int per_unit) {
  const int64_t teams = kWarps / warps_per_chunk;
  return std::clamp<int64_t>((chunks + teams - 1) / teams, 1, static_cast<int64_t>(units) * per_unit);
}

}  // namespace gsc::cuda
