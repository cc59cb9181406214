// SPDX-License-Identifier: Apache-2.0
// Casting, scaling, accumulating, clamping and filling on the device, with the same bits as the CPU's
// elementwise_kernel.h.
#include "core/cuda/elements.cuh"
#include "core/cuda/elementwise.h"
#include "core/cuda/launch.cuh"

namespace gsc::cuda {

constexpr int kBlocks = 4;  // per multiprocessor

/// Calls f(tensor, place, team) for every part of a chunk of this thread's team.
template <typename F>
GSC_DEVICE void for_parts(const PlanView &plan, const F &f) {
  const Team team = make_team(plan.warps_per_chunk);
  const int64_t step = static_cast<int64_t>(gridDim.x) * team.count;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * team.count + team.index; i < plan.part_count(); i += step) {
    const Part part = part_of(plan, i);
    f(part.tensor, place_of(plan, part, plan.tensors[part.tensor]), team);
  }
}

// Bytes in flight per thread: 48 KB per multiprocessor, twice what saturates the memory bus.
constexpr int kBytesInFlight = 48;

/// y = op(x, y)
template <typename T, int Width>
GSC_DEVICE void compute(const ElementwiseRule &rule, const T (&x)[Width], T (&y)[Width]) {
  const T a = static_cast<T>(rule.a);
  const T b = static_cast<T>(rule.b);
  with_operation(rule.op, [&](auto tag) {
#pragma unroll
    for (int k = 0; k < Width; ++k) y[k] = compute_element<decltype(tag)::kOp>(a, b, x[k], y[k]);
  });
}

/// Size: bytes of an element of src, and with ReadsDst of dst; 0 if looked up, at most those of T.
template <typename T, int Size, bool ReadsDst>
GSC_DEVICE void compute_span(const ElementwiseRule &rule, const char *src, int32_t src_dtype, char *dst,
                             int32_t dst_dtype, int n, const Team &team) {
  constexpr int kWidth = kPackWidth<T>;
  // If looked up, they are at least 2 and 4 bytes, so that two packs of each are 48 bytes.
  constexpr int kPackBytes = kWidth * (Size == 0 ? static_cast<int>(sizeof(T)) : Size) * (ReadsDst ? 2 : 1);
  constexpr int kPacks = ReadsDst && Size == 0 ? 2 : kBytesInFlight / kPackBytes;
  const int src_bytes = static_cast<int>(dtype_bytes(src_dtype));
  const int dst_bytes = static_cast<int>(dtype_bytes(dst_dtype));
  const int head = first_pack(pack_heads<kWidth>(src, src_dtype) & pack_heads<kWidth>(dst, dst_dtype), n);
  const int end = n - (n - head) % kWidth;
  const int stride = team.threads() * kWidth;
  for (int i = head + team.thread() * kWidth; i < end; i += stride * kPacks) {
    Batch<T, Size, kPacks> from;
    [[maybe_unused]] Batch<T, Size, kPacks> to;
    from.load(src_dtype, src + i * src_bytes, stride * src_bytes, (end - i) * src_bytes);
    if constexpr (ReadsDst) to.load(dst_dtype, dst + i * dst_bytes, stride * dst_bytes, (end - i) * dst_bytes);
#pragma unroll
    for (int r = 0; r < kPacks; ++r) {
      if (i + r * stride >= end) break;
      T x[kWidth];
      T y[kWidth] = {};
      Elements<T, kWidth>::unpack(src_dtype, from.raw[r], x);
      if constexpr (ReadsDst) Elements<T, kWidth>::unpack(dst_dtype, to.raw[r], y);
      compute(rule, x, y);
      store_elements(dst_dtype, dst + (i + r * stride) * dst_bytes, y);
    }
  }
  for (int i = team.thread(); i < n - end + head; i += team.threads()) {
    const int at = i < head ? i : end + i - head;
    using E = Elements<T, 1>;
    T x[1];
    T y[1] = {};
    E::unpack(src_dtype, E::load(src_dtype, src + at * src_bytes), x);
    if constexpr (ReadsDst) E::unpack(dst_dtype, E::load(dst_dtype, dst + at * dst_bytes), y);
    compute(rule, x, y);
    store_elements(dst_dtype, dst + at * dst_bytes, y);
  }
}

template <typename T, int Size>
GSC_DEVICE void compute_span(const ElementwiseRule &rule, const char *src, int32_t src_dtype, char *dst,
                             int32_t dst_dtype, int n, const Team &team) {
  if (rule.op == Elementwise::kAxpby) {
    compute_span<T, Size, true>(rule, src, src_dtype, dst, dst_dtype, n, team);
  } else {
    compute_span<T, Size, false>(rule, src, src_dtype, dst, dst_dtype, n, team);
  }
}

/// Copies bits unchanged, NaN included.
GSC_DEVICE void copy_span(const char *src, char *dst, int bytes, const Team &team) {
  if (is_aligned(src, 16) && is_aligned(dst, 16)) {
    constexpr int kPacks = kBytesInFlight / 16;
    const int end = bytes / 16 * 16;
    const int stride = team.threads() * 16;
    for (int i = team.thread() * 16; i < end; i += stride * kPacks) {
      Words<16> w[kPacks];
#pragma unroll
      for (int r = 0; r < kPacks; ++r) w[r] = load_streaming<16>(src + (i + r * stride < end ? i + r * stride : i));
#pragma unroll
      for (int r = 0; r < kPacks; ++r) {
        if (i + r * stride < end) store_words<16>(dst + i + r * stride, w[r]);
      }
    }
    for (int i = end + team.thread(); i < bytes; i += team.threads()) dst[i] = src[i];
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

// Without the bound, ptxas limits registers so much on some architectures that it spills.
static __global__ void __launch_bounds__(kThreads, 4) elementwise_kernel(const __grid_constant__ ElementwiseParams p) {
  const ElementwiseRule rule = resolve(p.op, p.a, p.b, p.factor, p.same);
  if (rule.nothing) return;
  for_parts(p.dst, [&](int64_t tensor, const Place &place, const Team &team) {
    const DeviceTensor &src = p.src[tensor];
    const DeviceTensor &dst = p.dst.tensors[tensor];
    const char *from = address(src, place.offset);
    char *to = address(dst, place.offset);
    if (is_copy(rule.op, src.dtype, dst.dtype)) {
      if (from != to) copy_span(from, to, place.n * static_cast<int>(dtype_bytes(src.dtype)), team);
    } else if (is_wide(src.dtype) || is_wide(dst.dtype)) {
      compute_span<double, 0>(rule, from, src.dtype, to, dst.dtype, place.n, team);
    } else if (dtype_bytes(src.dtype) == 2 && (rule.op != Elementwise::kAxpby || dtype_bytes(dst.dtype) == 2)) {
      compute_span<float, 2>(rule, from, src.dtype, to, dst.dtype, place.n, team);
    } else {
      compute_span<float, 0>(rule, from, src.dtype, to, dst.dtype, place.n, team);
    }
  });
}

static __global__ void __launch_bounds__(kThreads) fill_kernel(const __grid_constant__ ElementwiseParams p) {
  for_parts(p.dst, [&](int64_t tensor, const Place &place, const Team &team) {
    const DeviceTensor &t = p.dst.tensors[tensor];
    fill_span(address(t, place.offset), t.dtype, place.n, p.a, team);
  });
}

cudaError_t preload_elementwise() { return preload_all(elementwise_kernel, fill_kernel); }

cudaError_t launch_elementwise(const ElementwiseParams &p, int units, cudaStream_t stream) {
  return enqueue(p.op == Elementwise::kFill ? fill_kernel : elementwise_kernel,
                 blocks_for(p.dst.part_count(), p.dst.warps_per_chunk, int64_t{units} * kBlocks), kThreads, stream, p);
}

}  // namespace gsc::cuda
