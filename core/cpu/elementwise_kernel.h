// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels outside the optimizer: casts, scaling, accumulation, clamping and filling. They go block by block through
// buffers of the arithmetic type, so that one loop serves every dtype. Included by kernels.cpp only.
#pragma once

#include "core/cpu/convert.h"
#include "core/cpu/kernels.h"

namespace gsc::cpu {
namespace {

template <Elementwise Op, typename T>
[[gnu::always_inline]] inline void compute_block(T a, T b, const T *__restrict x, T *__restrict y, int n) {
  for (int i = 0; i < n; ++i) {
    y[i] = compute_element<Op>(a, b, Op == Elementwise::kFill ? T(0) : x[i], Op == Elementwise::kAxpby ? y[i] : T(0));
  }
}

template <typename T>
void compute_span(const ElementwiseSpan &span) {
  const int64_t src_bytes = dtype_bytes(span.src_dtype);
  const int64_t dst_bytes = dtype_bytes(span.dst_dtype);
  for (int64_t i = 0; i < span.n; i += kBlock) {
    const int n = min_int(span.n - i, kBlock);
    T x[kBlock];
    T y[kBlock];
    if (span.op != Elementwise::kFill) load_block(span.src_dtype, at(span.src, i * src_bytes), x, n);
    if (span.op == Elementwise::kAxpby) load_block(span.dst_dtype, at(span.dst, i * dst_bytes), y, n);
    with_operation(span.op, [&](auto tag) {
      compute_block<decltype(tag)::kOp>(static_cast<T>(span.a), static_cast<T>(span.b), x, y, n);
    });
    store_block(span.dst_dtype, at(span.dst, i * dst_bytes), y, n);
  }
}

void elementwise(const ElementwiseSpan &span) {
  const auto bytes = static_cast<size_t>(span.n * dtype_bytes(span.dst_dtype));
  if (span.op == Elementwise::kFill && span.a == 0.0) {
    std::memset(span.dst, 0, bytes);
  } else if (is_copy(span.op, span.src_dtype, span.dst_dtype)) {
    if (span.src != span.dst && span.n > 0) std::memmove(span.dst, span.src, bytes);
  } else if (is_wide(span.src_dtype) || is_wide(span.dst_dtype) || span.op == Elementwise::kFill) {
    compute_span<double>(span);
  } else {
    compute_span<float>(span);
  }
}

}  // namespace
}  // namespace gsc::cpu
