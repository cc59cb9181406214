// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels outside the optimizer: casts, scaling, accumulation, clamping and filling, and the detailed look
// at every tensor (diagnose). What they compute is what the CPU's kernel_linear.h computes, to the bit.
#pragma once

#include "core/cuda/elements.cuh"
#include "core/cuda/kernel_check.cuh"

namespace gsc::cuda {

/// f(place, team) for every chunk that falls to this thread's team.
template <typename F>
GSC_DEVICE void for_chunks(const PlanView &plan, const F &f) {
  const Team team = make_team(plan.warps_per_chunk);
  const int64_t step = static_cast<int64_t>(gridDim.x) * team.count;
  for (int64_t chunk = static_cast<int64_t>(blockIdx.x) * team.count + team.index; chunk < plan.chunk_count;
       chunk += step) {
    f(place_of(plan, chunk), team);
  }
}

template <typename T>
GSC_DEVICE T linear_element(Linear op, T a, T b, T x, T y) {
  switch (op) {
    case Linear::kCast:
      return x;
    case Linear::kScale:
      return a * x;
    case Linear::kAxpby:
      return a * x + b * y;
    case Linear::kClamp:
      break;
  }
  const T low = x < -a ? -a : x;
  return low > a ? a : low;
}

template <typename T>
GSC_DEVICE void linear_span(Linear op, double a, double b, const char *src, int32_t src_dtype, char *dst,
                            int32_t dst_dtype, int n, const Team &team) {
  const int src_bytes = static_cast<int>(dtype_bytes(src_dtype));
  const int dst_bytes = static_cast<int>(dtype_bytes(dst_dtype));
  const unsigned heads = pack_heads<kPackWidth<T>>(src, src_dtype) & pack_heads<kPackWidth<T>>(dst, dst_dtype);
  for_packs<T>(n, first_pack(heads, n), team, [&]<int Width>(int i) {
    using E = Elements<T, Width>;
    T x[Width];
    T y[Width] = {};
    E::unpack(src_dtype, E::load(src_dtype, src + i * src_bytes), x);
    if (op == Linear::kAxpby) E::unpack(dst_dtype, E::load(dst_dtype, dst + i * dst_bytes), y);
#pragma unroll
    for (int k = 0; k < Width; ++k) y[k] = linear_element(op, static_cast<T>(a), static_cast<T>(b), x[k], y[k]);
    store_elements<T, Width>(dst_dtype, dst + i * dst_bytes, y);
  });
}

/// Bits as they are, NaN and all.
GSC_DEVICE void copy_span(const char *src, char *dst, int bytes, const Team &team) {
  if (is_aligned(src, 16) && is_aligned(dst, 16)) {
    for (int i = team.thread() * 16; i < bytes; i += team.threads() * 16) {
      if (bytes - i >= 16) {
        store_words<16>(dst + i, load_words<16>(src + i));
      } else {
        for (int k = i; k < bytes; ++k) dst[k] = src[k];
      }
    }
    return;
  }
  for (int i = team.thread() * 2; i < bytes; i += team.threads() * 2) {
    *reinterpret_cast<uint16_t *>(dst + i) = *reinterpret_cast<const uint16_t *>(src + i);
  }
}

// Left to itself, ptxas takes so few registers on some architectures that it has to spill.
static __global__ void __launch_bounds__(kThreads, 4) linear_kernel(const __grid_constant__ LinearParams p) {
  // b = 0 only writes dst, so that NaN in it does not spread.
  const Linear op = p.op == Linear::kAxpby && p.b == 0.0 ? Linear::kScale : p.op;
  const double a = p.op == Linear::kScale ? static_cast<double>(*p.factor) : p.a;
  if (p.op == Linear::kScale && p.same && a == 1.0) return;
  for_chunks(p.dst, [&](const Place &place, const Team &team) {
    const DeviceTensor &src = p.src[place.tensor];
    const DeviceTensor &dst = p.dst.tensors[place.tensor];
    const char *from = address(src, place.offset);
    char *to = address(dst, place.offset);
    if (op == Linear::kCast && src.dtype == dst.dtype) {
      if (from != to) copy_span(from, to, place.n * static_cast<int>(dtype_bytes(src.dtype)), team);
    } else if (src.dtype == GSC_FP64 || dst.dtype == GSC_FP64) {
      linear_span<double>(op, a, p.b, from, src.dtype, to, dst.dtype, place.n, team);
    } else {
      linear_span<float>(op, a, p.b, from, src.dtype, to, dst.dtype, place.n, team);
    }
  });
}

static __global__ void __launch_bounds__(kThreads) fill_kernel(const __grid_constant__ FillParams p) {
  for_chunks(p.plan, [&](const Place &place, const Team &team) {
    const DeviceTensor &t = p.plan.tensors[place.tensor];
    fill_span(address(t, place.offset), t.dtype, place.n, p.value, team);
  });
}

GSC_DEVICE double smallest_normal(int32_t dtype) {
  return dtype == GSC_FP16 ? 0x1p-14 : (dtype == GSC_FP64 ? 0x1p-1022 : 0x1p-126);
}

/// One chunk by one warp: the sum of squares in reduction.h's order with columns in double, the rest counted.
template <typename D>
GSC_DEVICE ChunkDiagnosis diagnose_chunk(char *data, int n, int lane, unsigned *bins) {
  constexpr int kWidth = Tile<D>::kWidth;
  constexpr int kElements = Tile<D>::kElements;
  const int64_t inf_bits = Tile<Fp64>::kInf;
  const double normal = smallest_normal(D::kDtype);
  int infs = 0;
  int nans = 0;
  int zeros = 0;
  int subnormals = 0;
  int first = INT32_MAX;
  int64_t largest = 0;
  int64_t smallest = inf_bits;
  double total = 0.0;
  for (int t = 0; t * kElements < n; ++t) {
    const Tile<D> tile{data + t * kTileBytes, min_of(n - t * kElements, kElements), lane, Tile<D>::shift_of(data)};
    double columns[kWidth] = {};
    for (int row = 0; row < tile.rows(); ++row) {
      const Words<16> g = tile.load(row);
      const int count = tile.valid(row);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (k >= count) continue;
        const int64_t bits = magnitude_bits(static_cast<double>(D::element(g, k)));
        const double x = magnitude(bits);
        if (bits >= inf_bits) {
          infs += bits == inf_bits ? 1 : 0;
          nans += bits > inf_bits ? 1 : 0;
          first = min_of(first, t * kElements + (row * kGroups + lane) * kWidth + k);
          continue;
        }
        columns[k] += x * x;
        largest = bits > largest ? bits : largest;
        if (bits == 0) {
          ++zeros;
          continue;
        }
        subnormals += x < normal ? 1 : 0;
        smallest = bits < smallest ? bits : smallest;
        const int bin = static_cast<int>(bits >> 52) - 1023 - GSC_EXPONENT_MIN;
        atomicAdd(&bins[bin < 0 ? 0 : (bin < GSC_EXPONENT_BINS ? bin : GSC_EXPONENT_BINS - 1)], 1U);
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

/// A warp takes a chunk; plan.warps_per_chunk is 1.
static __global__ void __launch_bounds__(kThreads) diagnose_kernel(const __grid_constant__ DiagnoseParams p) {
  __shared__ unsigned histograms[kWarps][GSC_EXPONENT_BINS];
  unsigned *bins = histograms[warp_index()];
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t chunk = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index(); chunk < p.plan.chunk_count;
       chunk += step) {
    for (int b = lane_index(); b < GSC_EXPONENT_BINS; b += 32) bins[b] = 0;
    __syncwarp();
    const Place place = place_of(p.plan, chunk);
    const DeviceTensor &t = p.plan.tensors[place.tensor];
    char *data = address(t, place.offset);
    ChunkDiagnosis r;
    switch (t.dtype) {
      case GSC_FP16:
        r = diagnose_chunk<Fp16>(data, place.n, lane_index(), bins);
        break;
      case GSC_BF16:
        r = diagnose_chunk<Bf16>(data, place.n, lane_index(), bins);
        break;
      case GSC_FP32:
        r = diagnose_chunk<Fp32>(data, place.n, lane_index(), bins);
        break;
      default:
        r = diagnose_chunk<Fp64>(data, place.n, lane_index(), bins);
        break;
    }
    if (lane_index() == 0) p.out[chunk] = r;
    if (p.histogram == nullptr) continue;
    __syncwarp();
    for (int b = lane_index(); b < GSC_EXPONENT_BINS; b += 32) {
      if (bins[b] != 0) add_to(&p.histogram[place.tensor * GSC_EXPONENT_BINS + b], bins[b]);
    }
  }
}

}  // namespace gsc::cuda
