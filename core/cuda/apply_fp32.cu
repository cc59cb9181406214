// SPDX-License-Identifier: Apache-2.0
// Launchers of the optimizer kernels in fp32, and of those that are the same for both types.
#include "core/cuda/kernel_step.cuh"
#include "core/cuda/launch_apply.cuh"

namespace gsc::cuda {

cudaError_t preload_apply_fp32() {
  const cudaError_t result = preload_all(prepare_kernel, lamb_trust_kernel);
  return result == cudaSuccess ? ApplyLauncher<float>::preload() : result;
}

cudaError_t launch_apply_fp32(const ApplyParams &p, int units, cudaStream_t stream) {
  return ApplyLauncher<float>::launch(p, units, stream);
}

cudaError_t launch_lamb_moments_fp32(const ApplyParams &p, int units, cudaStream_t stream) {
  return ApplyLauncher<float>::launch_moments(p, units, stream);
}

cudaError_t launch_prepare(const ApplyParams &p, cudaStream_t stream) {
  return enqueue(prepare_kernel, (p.group_count + kThreads - 1) / kThreads, kThreads, stream, p);
}

cudaError_t launch_lamb_trust(const ApplyParams &p, cudaStream_t stream) {
  if (p.grads.size == 0) return cudaSuccess;
  return enqueue(lamb_trust_kernel, (p.grads.size + kWarps - 1) / kWarps, kThreads, stream, p);
}

}  // namespace gsc::cuda
