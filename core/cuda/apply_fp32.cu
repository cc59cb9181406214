// SPDX-License-Identifier: Apache-2.0
// The optimizer kernels in fp32.
#include "core/cuda/apply.cuh"

namespace gsc::cuda {

cudaError_t preload_apply_fp32() { return ApplyLauncher<PlainKernels<float>>::preload(); }

cudaError_t launch_apply_fp32(const ApplyParams &p, int units, cudaStream_t stream) {
  return ApplyLauncher<PlainKernels<float>>::launch(p, units, stream);
}

cudaError_t launch_moments_fp32(const ApplyParams &p, int units, cudaStream_t stream) {
  return ApplyLauncher<PlainKernels<float>>::launch_moments(p, units, stream);
}

}  // namespace gsc::cuda
