// SPDX-License-Identifier: Apache-2.0
// Launching an optimizer's step in arithmetic type T: picks the instance of the formula. Included by apply_fp32.cu and
// apply_fp64.cu, one for each type so that they compile side by side.
#pragma once

#include "core/cuda/kernel_apply.cuh"
#include "core/cuda/launch.cuh"

namespace gsc::cuda {

template <typename T>
struct ApplyLauncher {
  static constexpr int kBlocks = sizeof(T) == 4 ? 4 : 2;  ///< of a multiprocessor, as the kernels' launch bounds say
  using Kernel = void (*)(ApplyParams);

  static Kernel kernel(Variant variant) {
    switch (variant) {
#define GSC_CASE(enumerator, formula) \
  case Variant::enumerator:           \
    return apply_kernel<formula, T>;
      GSC_FOR_EACH_SINGLE_SWEEP(GSC_CASE)
#undef GSC_CASE
      case Variant::kLamb:
        break;
    }
    return lamb_apply_kernel<T>;
  }

  static cudaError_t preload() {
    cudaError_t result = preload_all(lamb_moments_kernel<T>);
    for (int v = 0; v < kVariantCount && result == cudaSuccess; ++v) {
      result = preload_all(kernel(static_cast<Variant>(v)));
    }
    return result;
  }

  static int64_t blocks(const ApplyParams &p, int units, int per_unit) {
    return blocks_for(p.grads.chunk_count, p.grads.warps_per_chunk, units, per_unit);
  }

  static cudaError_t launch(const ApplyParams &p, int units, cudaStream_t stream) {
    return enqueue(kernel(p.variant), blocks(p, units, kBlocks), kThreads, stream, p);
  }

  static cudaError_t launch_moments(const ApplyParams &p, int units, cudaStream_t stream) {
    return enqueue(lamb_moments_kernel<T>, blocks(p, units, 2), kThreads, stream, p);
  }
};

}  // namespace gsc::cuda
