// SPDX-License-Identifier: Apache-2.0
// Launchers of the element-wise kernels and of diagnose.
#include "core/cuda/kernel_linear.cuh"
#include "core/cuda/launch.cuh"

namespace gsc::cuda {
namespace {

constexpr int kBlocks = 4;  // of a multiprocessor

}  // namespace

cudaError_t preload_linear() { return preload_all(linear_kernel, fill_kernel, diagnose_kernel); }

cudaError_t launch_linear(const LinearParams &p, int units, cudaStream_t stream) {
  return enqueue(linear_kernel, blocks_for(p.dst.chunk_count, p.dst.warps_per_chunk, units, kBlocks), kThreads, stream,
                 p);
}

cudaError_t launch_fill(const FillParams &p, int units, cudaStream_t stream) {
  return enqueue(fill_kernel, blocks_for(p.plan.chunk_count, p.plan.warps_per_chunk, units, kBlocks), kThreads, stream,
                 p);
}

cudaError_t launch_diagnose(const DiagnoseParams &p, int units, cudaStream_t stream) {
  return enqueue(diagnose_kernel, blocks_for(p.plan.chunk_count, 1, units, kBlocks), kThreads, stream, p);
}

}  // namespace gsc::cuda
