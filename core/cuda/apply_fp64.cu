// SPDX-License-Identifier: Apache-2.0
// The optimizer kernels in fp64.
#include "core/cuda/apply.cuh"

namespace gsc::cuda {

cudaError_t preload_apply_fp64() { return ApplyLauncher<PlainKernels<double>>::preload(); }

cudaError_t launch_apply_fp64(const ApplyParams &p, int units, cudaStream_t stream) {
  return ApplyLauncher<PlainKernels<double>>::launch(p, units, stream);
}

cudaError_t launch_moments_fp64(const ApplyParams &p, int units, cudaStream_t stream) {
  return ApplyLauncher<PlainKernels<double>>::launch_moments(p, units, stream);
}

}  // namespace gsc::cuda
