// SPDX-License-Identifier: Apache-2.0
// The launches of a step, and the parts of it that do not sweep over tensors: coefficients of many groups, and the
// ratios of formulas that need norms. The sweeps are in sweeps/.
#include "core/cuda/launch.cuh"
#include "core/cuda/step.cuh"
#include "core/rules/step_coefficients.h"

namespace gsc::cuda {

/// Of a tensor that was absent from `lag` of the steps so far.
GSC_DEVICE Coefficients<double> coefficients_of(const ApplyParams &p, int32_t group, int64_t lag) {
  return group_coefficients(p.step, p.step.groups[group], p.step.record->applied + 1 - lag);
}

/// Only for steps with more groups than each block computes by itself, or with coefficients of each tensor. It raises
/// lags, and advances averages.
static __global__ void prepare_kernel(const __grid_constant__ ApplyParams p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (!has_tensor_coefficients(p.step)) {
    if (row < p.step.group_count) p.step.coefficients[row] = coefficients_of(p, static_cast<int32_t>(row), 0);
    return;
  }
  const bool skip = read_scalars(p).skip;
  if (row >= p.grads.size || skip) return;
  const DeviceTensor &t = p.grads.tensors[row];
  if (t.data == nullptr && t.count > 0) {
    p.step.lags[row] += 1;
    return;
  }
  const int32_t group = p.step.group_of[row];
  const int64_t lag = p.step.lags != nullptr ? p.step.lags[row] : 0;
  if (!p.step.averages) {
    p.step.coefficients[row] = coefficients_of(p, group, lag);
  } else if (t.count > 0) {
    p.step.coefficients[row] = average_coefficients(p.step, p.step.groups[group], step_number(p.step) - lag,
                                                    *static_cast<Average *>(p.numbers[row].data));
  }
}

/// The ratio of every tensor, one warp per tensor.
static __global__ void __launch_bounds__(kThreads) ratios_kernel(const __grid_constant__ ApplyParams p) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (t >= p.grads.size || read_scalars(p).skip) return;
  const int64_t begin = p.grads.tensors[t].first_chunk;
  const int64_t end = t + 1 < p.grads.size ? p.grads.tensors[t + 1].first_chunk : p.grads.chunk_count;
  const ChunkPartial *partials = p.partials + begin;
  const double param_sum = warp_join(end - begin, [&](int64_t i) { return partials[i].norms.param; });
  const double direction_sum = warp_join(end - begin, [&](int64_t i) { return partials[i].norms.direction; });
  const DeviceTensor &grad = p.grads.tensors[t];
  if (lane_index() != 0 || grad.data == nullptr || grad.count == 0) return;
  const Coefficients<double> c = shares_groups(p)
                                     ? coefficients_of(p, p.step.group_of[t], 0)
                                     : p.step.coefficients[p.step.lags != nullptr ? t : p.step.group_of[t]];
  double *number = p.numbers != nullptr ? static_cast<double *>(p.numbers[t].data) : nullptr;
  p.step.ratios[t] = make_ratio(p.step.variant, param_sum, direction_sum, c, number);
}

#define GSC_DECLARE(enumerator, formula) extern const Sweeps enumerator;
namespace sweeps {
GSC_FOR_EACH_VARIANT(GSC_DECLARE)
}
#undef GSC_DECLARE

static const Sweeps &sweeps_of(Variant variant) {
#define GSC_ADDRESS(enumerator, formula) &sweeps::enumerator,
  static constexpr const Sweeps *kTable[] = {GSC_FOR_EACH_VARIANT(GSC_ADDRESS)};
#undef GSC_ADDRESS
  return *kTable[static_cast<int>(variant)];
}

cudaError_t preload_apply() {
  cudaError_t result = preload_all(prepare_kernel, ratios_kernel);
  for (int v = 0; v < kVariantCount; ++v) {
    const Sweeps &sweeps = sweeps_of(static_cast<Variant>(v));
    for (const ApplyKernel *kernels : {sweeps.apply, sweeps.moments}) {
      for (int a = 0; a < kArithmetics; ++a) {
        if (result == cudaSuccess && kernels[a] != nullptr) result = preload(kernels[a]);
      }
    }
  }
  return result;
}

cudaError_t launch_prepare(const ApplyParams &p, cudaStream_t stream) {
  const int64_t rows = has_tensor_coefficients(p.step) ? p.grads.size : p.step.group_count;
  if (rows == 0) return cudaSuccess;
  return enqueue(prepare_kernel, (rows + kThreads - 1) / kThreads, kThreads, stream, p);
}

cudaError_t launch_ratios(const ApplyParams &p, cudaStream_t stream) {
  if (p.grads.size == 0) return cudaSuccess;
  return enqueue(ratios_kernel, (p.grads.size + kWarps - 1) / kWarps, kThreads, stream, p);
}

static cudaError_t launch_sweep(ApplyKernel kernel, const ApplyParams &p, int64_t blocks, cudaStream_t stream) {
  const int64_t parts = (p.last_chunk - p.first_chunk) << p.grads.split;
  return enqueue(kernel, blocks_for(parts, p.grads.warps_per_chunk, blocks), kThreads, stream, p);
}

cudaError_t launch_apply(Arithmetic arithmetic, const ApplyParams &p, int units, cudaStream_t stream) {
  const ApplyKernel kernel = sweeps_of(p.step.variant).apply[static_cast<int>(arithmetic)];
  return launch_sweep(kernel, p, int64_t{units} * apply_blocks(arithmetic), stream);
}

cudaError_t launch_moments(Arithmetic arithmetic, const ApplyParams &p, int units, cudaStream_t stream) {
  const ApplyKernel kernel = sweeps_of(p.step.variant).moments[static_cast<int>(arithmetic)];
  return launch_sweep(kernel, p, int64_t{units} * kMomentsBlocks, stream);
}

}  // namespace gsc::cuda
