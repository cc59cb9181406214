// SPDX-License-Identifier: Apache-2.0
// Casting, scaling, accumulating, clamping and filling on the device. What they compute is what the CPU's
// elementwise_kernel.h computes, to the bit.
#include "core/cuda/elements.cuh"
#include "core/cuda/elementwise.h"
#include "core/cuda/launch.cuh"

namespace gsc::cuda {

constexpr int kBlocks = 4;  // of a multiprocessor

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
GSC_DEVICE void compute_span(const ElementwiseRule &rule, const char *src, int32_t src_dtype, char *dst,
                             int32_t dst_dtype, int n, const Team &team) {
  const int src_bytes = static_cast<int>(dtype_bytes(src_dtype));
  const int dst_bytes = static_cast<int>(dtype_bytes(dst_dtype));
  const T a = static_cast<T>(rule.a);
  const T b = static_cast<T>(rule.b);
  const unsigned heads = pack_heads<kPackWidth<T>>(src, src_dtype) & pack_heads<kPackWidth<T>>(dst, dst_dtype);
  for_packs<T>(n, first_pack(heads, n), team, [&]<int Width>(int i) {
    using E = Elements<T, Width>;
    T x[Width];
    T y[Width] = {};
    E::unpack(src_dtype, E::load(src_dtype, src + i * src_bytes), x);
    if (rule.op == Elementwise::kAxpby) E::unpack(dst_dtype, E::load(dst_dtype, dst + i * dst_bytes), y);
    with_operation(rule.op, [&](auto tag) {
#pragma unroll
      for (int k = 0; k < Width; ++k) y[k] = compute_element<decltype(tag)::kOp>(a, b, x[k], y[k]);
    });
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
  if (is_aligned(src, 2) && is_aligned(dst, 2) && bytes % 2 == 0) {
    for (int i = team.thread() * 2; i < bytes; i += team.threads() * 2) {
      *reinterpret_cast<uint16_t *>(dst + i) = *reinterpret_cast<const uint16_t *>(src + i);
    }
    return;
  }
  for (int i = team.thread(); i < bytes; i += team.threads()) dst[i] = src[i];
}

// Left to itself, ptxas takes so few registers on some architectures that it has to spill.
static __global__ void __launch_bounds__(kThreads, 4) elementwise_kernel(const __grid_constant__ ElementwiseParams p) {
  const ElementwiseRule rule = resolve(p.op, p.a, p.b, p.factor, p.same);
  if (rule.nothing) return;
  for_chunks(p.dst, [&](const Place &place, const Team &team) {
    const DeviceTensor &src = p.src[place.tensor];
    const DeviceTensor &dst = p.dst.tensors[place.tensor];
    const char *from = address(src, place.offset);
    char *to = address(dst, place.offset);
    if (is_copy(rule.op, src.dtype, dst.dtype)) {
      if (from != to) copy_span(from, to, place.n * static_cast<int>(dtype_bytes(src.dtype)), team);
    } else if (is_wide(src.dtype) || is_wide(dst.dtype)) {
      compute_span<double>(rule, from, src.dtype, to, dst.dtype, place.n, team);
    } else {
      compute_span<float>(rule, from, src.dtype, to, dst.dtype, place.n, team);
    }
  });
}

static __global__ void __launch_bounds__(kThreads) fill_kernel(const __grid_constant__ ElementwiseParams p) {
  for_chunks(p.dst, [&](const Place &place, const Team &team) {
    const DeviceTensor &t = p.dst.tensors[place.tensor];
    fill_span(address(t, place.offset), t.dtype, place.n, p.a, team);
  });
}

cudaError_t preload_elementwise() { return preload_all(elementwise_kernel, fill_kernel); }

cudaError_t launch_elementwise(const ElementwiseParams &p, int units, cudaStream_t stream) {
  return enqueue(p.op == Elementwise::kFill ? fill_kernel : elementwise_kernel,
                 blocks_for(p.dst.chunk_count, p.dst.warps_per_chunk, units, kBlocks), kThreads, stream, p);
}

}  // namespace gsc::cuda
