// SPDX-License-Identifier: Apache-2.0
// Statistics of every tensor on the device, with the same bits as the CPU's diagnose_kernel.h.
#include "core/cuda/diagnose.h"
#include "core/cuda/launch.cuh"
#include "core/cuda/tile.cuh"
#include "core/rules/diagnose.h"

namespace gsc::cuda {

constexpr int kBlocks = 4;  // per multiprocessor

/// One chunk by one warp: the sum of squares in reduction.h's order with columns in double, and the counts.
template <typename D>
GSC_DEVICE ChunkDiagnosis diagnose_chunk(char *data, int n, int lane, unsigned *bins) {
  constexpr int kWidth = Tile<D>::kWidth;
  constexpr int kElements = Tile<D>::kElements;
  const int64_t inf_bits = Tile<Fp64>::kInf;
  int infs = 0;
  int nans = 0;
  int zeros = 0;
  int subnormals = 0;
  int first = INT32_MAX;
  int64_t largest = 0;
  int64_t smallest = inf_bits;
  double total = 0.0;
  for (int t = 0; t * kElements < n; ++t) {
    const Tile<D> tile{data + t * kTileBytes, least(n - t * kElements, kElements), lane, Tile<D>::shift_of(data)};
    double columns[kWidth] = {};
    for (int row = 0; row < tile.rows(); ++row) {
      const Words<16> g = tile.load(row);
      const int count = tile.valid(row);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (k >= count) continue;
        const int64_t bits = magnitude_bits(static_cast<double>(element_of<D>(g, k)));
        const double x = magnitude(bits);
        if (bits >= inf_bits) {
          infs += bits == inf_bits ? 1 : 0;
          nans += bits > inf_bits ? 1 : 0;
          first = least(first, t * kElements + (row * kGroups + lane) * kWidth + k);
          continue;
        }
        columns[k] += x * x;
        largest = bits > largest ? bits : largest;
        if (bits == 0) {
          ++zeros;
          continue;
        }
        subnormals += x < D::kSmallestNormal ? 1 : 0;
        smallest = bits < smallest ? bits : smallest;
        atomicAdd(&bins[exponent_bin(static_cast<uint64_t>(bits))], 1U);
      }
    }
    total += fold<kWidth>(columns);
  }
  ChunkDiagnosis r;
  r.inf_count = warp_sum(infs);
  r.nan_count = warp_sum(nans);
  r.zero_count = warp_sum(zeros);
  r.subnormal_count = warp_sum(subnormals);
  first = warp_min(first);
  r.first_nonfinite = first == INT32_MAX ? -1 : first;
  r.amax = magnitude(warp_max(largest));
  smallest = warp_min(smallest);
  r.amin = smallest < inf_bits ? magnitude(smallest) : 0.0;
  r.sum_sq = total;
  return r;
}

/// One warp per chunk. Does not use the plan's number of warps.
static __global__ void __launch_bounds__(kThreads) diagnose_kernel(const __grid_constant__ DiagnoseParams p) {
  __shared__ unsigned histograms[kWarps][GSC_EXPONENT_BINS];
  unsigned *bins = histograms[warp_index()];
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t chunk = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index(); chunk < p.plan.chunk_count;
       chunk += step) {
    for (int b = lane_index(); b < GSC_EXPONENT_BINS; b += 32) bins[b] = 0;
    __syncwarp();
    const Part part = whole_chunk(p.plan, chunk);
    const DeviceTensor &t = p.plan.tensors[part.tensor];
    const Place place = place_of(p.plan, part, t);
    char *data = address(t, place.offset);
    const ChunkDiagnosis r =
        with_dtype(t.dtype, [&](auto d) { return diagnose_chunk<decltype(d)>(data, place.n, lane_index(), bins); });
    if (lane_index() == 0) p.out[chunk] = r;
    // All lanes have counted: the counts can be read, and cleared for the next chunk.
    __syncwarp();
    if (p.histogram == nullptr) continue;
    for (int b = lane_index(); b < GSC_EXPONENT_BINS; b += 32) {
      if (bins[b] != 0) add_to(&p.histogram[part.tensor * GSC_EXPONENT_BINS + b], bins[b]);
    }
  }
}

cudaError_t preload_diagnose() { return preload_all(diagnose_kernel); }

cudaError_t launch_diagnose(const DiagnoseParams &p, int units, cudaStream_t stream) {
  return enqueue(diagnose_kernel, blocks_for(p.plan.chunk_count, 1, int64_t{units} * kBlocks), kThreads, stream, p);
}

}  // namespace gsc::cuda
