// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels: casts, scaling, accumulation, clamping and filling. A block goes through vector registers where
// the dtypes allow it, else through buffers of the arithmetic type, so that one loop serves every dtype. Large
// write-only results use non-temporal stores. Included by kernels.cpp only.
#pragma once

#include "core/cpu/convert.h"
#include "core/cpu/kernels.h"
#include "core/cpu/values.h"

namespace gsc::cpu {
namespace {

/// dst = op(src, dst) for the n elements of a block.
using BlockKernel = void (*)(const ElementwiseSpan &span, const void *src, void *dst, int n);

template <Elementwise Op, typename T>
[[gnu::always_inline]] inline void compute_block(T a, T b, const T *__restrict x, T *__restrict y, int n) {
  for (int i = 0; i < n; ++i) y[i] = compute_element<Op>(a, b, x[i], Op == Elementwise::kAxpby ? y[i] : T(0));
}

template <typename T>
void compute_in_buffers(const ElementwiseSpan &span, const void *src, void *dst, int n) {
  T x[kBlock];
  T y[kBlock];
  for (int i = 0; i < n; i += kBlock) {
    const int count = min_int(n - i, kBlock);
    const void *from = at(src, i * dtype_bytes(span.src_dtype));
    void *to = at(dst, i * dtype_bytes(span.dst_dtype));
    load_block(span.src_dtype, from, x, count);
    if (span.op == Elementwise::kAxpby) load_block(span.dst_dtype, to, y, count);
    with_operation(span.op, [&](auto tag) {
      compute_block<decltype(tag)::kOp>(static_cast<T>(span.a), static_cast<T>(span.b), x, y, count);
    });
    store_block(span.dst_dtype, to, y, count);
  }
}

template <bool kStream>
void copy_block(const ElementwiseSpan &span, const void *src, void *dst, int n) {
  const int64_t bytes = n * dtype_bytes(span.dst_dtype);
  if constexpr (kStream) {
    stream_copy(dst, src, bytes);
  } else {
    std::memmove(dst, src, bytes);
  }
}

template <typename S, typename D, bool kStream>
BlockKernel block_kernel(Elementwise op) {
  using T = std::conditional_t<is_wide(S::kCode) || is_wide(D::kCode), double, float>;
  if constexpr (Values<S, T>::kInVectors && Values<D, T>::kInVectors) {
    BlockKernel found = nullptr;
    with_operation(op, [&](auto tag) {
      found = [](const ElementwiseSpan &span, const void *src, void *dst, int n) {
        compute_in_vectors<decltype(tag)::kOp, S, D, T, kStream>(static_cast<T>(span.a), static_cast<T>(span.b),
                                                                 static_cast<const typename S::Stored *>(src),
                                                                 static_cast<typename D::Stored *>(dst), n);
      };
    });
    return found;
  } else {
    return compute_in_buffers<T>;
  }
}

template <bool kStream>
BlockKernel block_kernel(const ElementwiseSpan &span) {
  if (is_copy(span.op, span.src_dtype, span.dst_dtype)) return copy_block<kStream>;
  return with_dtype(span.src_dtype, [&](auto s) {
    return with_dtype(span.dst_dtype, [&](auto d) {
      return block_kernel<std::remove_cvref_t<decltype(s)>, std::remove_cvref_t<decltype(d)>, kStream>(span.op);
    });
  });
}

/// Minimum number of blocks per stream when a span is processed as four streams.
constexpr int64_t kBlocksOfPlace = 16;

/// Of the larger of two dtypes, at one place at a time: half as much or twice as much is slower for some of them.
constexpr int kPlaceBytes = 1024;

/// f(offset, n) for blocks that cover [0, n): the first has `first` elements, the last the remainder, all others
/// `block`. With `in_places` a long span is processed as four interleaved streams: a prefetcher that stops at a page
/// boundary keeps running in the other three.
template <typename F>
void for_blocks(int64_t n, int64_t first, int block, bool in_places, const F &f) {
  int64_t i = n < first ? n : first;
  if (i > 0) f(int64_t{0}, static_cast<int>(i));
  if (const int64_t place = (n - i) / block / 4 * block; in_places && place >= kBlocksOfPlace * block) {
    const int64_t end = i + place;
    for (; i < end; i += block) {
      for (int p = 0; p < 4; ++p) f(i + p * place, block);
    }
    i += 3 * place;
  }
  for (; i < n; i += block) f(i, min_int(n - i, block));
}

/// All operations except kFill.
void compute_span(const ElementwiseSpan &span) {
  const int64_t src_bytes = dtype_bytes(span.src_dtype);
  const int64_t dst_bytes = dtype_bytes(span.dst_dtype);
  const bool streaming = span.streaming && span.op != Elementwise::kAxpby && span.src != span.dst;
  const BlockKernel store = block_kernel<false>(span);
  const BlockKernel stream = streaming ? block_kernel<true>(span) : store;
  const int block = kPlaceBytes / static_cast<int>(src_bytes > dst_bytes ? src_bytes : dst_bytes);
  const int64_t first = streaming ? misaligned_elements(span.dst, dst_bytes) : 0;
  for_blocks(span.n, first, block, span.in_places, [&](int64_t i, int n) {
    (n == block ? stream : store)(span, at(span.src, i * src_bytes), at(span.dst, i * dst_bytes), n);
  });
  if (streaming) stream_fence();
}

void fill_span(const ElementwiseSpan &span) {
  const int64_t bytes = dtype_bytes(span.dst_dtype);
  double values[kBlock];
  alignas(kCacheLine) char block[sizeof values];
  for (double &value : values) value = span.a;
  store_block(span.dst_dtype, block, values, kBlock);
  if (span.streaming) {
    // In bytes, from a register: blocks of the same size for all dtypes.
    constexpr int kBytes = kRowBytes;
    const auto line = load_vector<Int32Vector>(block);
    for_blocks(span.n * bytes, misaligned_elements(span.dst, 1), kBytes, span.in_places, [&](int64_t i, int n) {
      char *dst = at(span.dst, i);
      if (n < kBytes) {
        std::memcpy(dst, block, n);
        return;
      }
#pragma GCC unroll 8
      for (int k = 0; k < kBytes; k += kVectorBytes) stream_vector(dst + k, line);
    });
    return stream_fence();
  }
  for (int64_t i = 0; i < span.n; i += kBlock) {
    std::memcpy(at(span.dst, i * bytes), block, byte_count(min_int(span.n - i, kBlock), bytes));
  }
}

void elementwise(const ElementwiseSpan &span) {
  if (span.op == Elementwise::kFill && span.a == 0.0 && !span.streaming) {
    std::memset(span.dst, 0, span.n * dtype_bytes(span.dst_dtype));
  } else if (span.op == Elementwise::kFill) {
    fill_span(span);
  } else if (!is_copy(span.op, span.src_dtype, span.dst_dtype) || span.src != span.dst) {
    compute_span(span);
  }
}

}  // namespace
}  // namespace gsc::cpu
