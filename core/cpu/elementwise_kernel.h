// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels outside the optimizer: casts, scaling, accumulation and clamping. They go block by block through
// buffers of the arithmetic type, so that one loop serves every dtype. Included by kernels.cpp only.
#pragma once

#include "core/cpu/columns.h"
#include "core/cpu/kernels.h"

namespace gsc::cpu {
namespace {

template <typename T>
void linear_block(Linear op, T a, T b, const T *__restrict x, T *__restrict y, int n) {
  switch (op) {
    case Linear::kCast:
      for (int i = 0; i < n; ++i) y[i] = x[i];
      return;
    case Linear::kScale:
      for (int i = 0; i < n; ++i) y[i] = a * x[i];
      return;
    case Linear::kAxpby:
      for (int i = 0; i < n; ++i) y[i] = a * x[i] + b * y[i];
      return;
    case Linear::kClamp:
      for (int i = 0; i < n; ++i) {
        const T low = x[i] < -a ? -a : x[i];
        y[i] = low > a ? a : low;
      }
      return;
  }
}

template <typename T>
void linear_span(const LinearSpan &span) {
  const int64_t src_bytes = dtype_bytes(span.src_dtype);
  const int64_t dst_bytes = dtype_bytes(span.dst_dtype);
  for (int64_t i = 0; i < span.n; i += kBlock) {
    const int n = min_int(span.n - i, kBlock);
    T x[kBlock];
    T y[kBlock];
    load_block(span.src_dtype, at(span.src, i * src_bytes), x, n);
    if (span.op == Linear::kAxpby) load_block(span.dst_dtype, at(span.dst, i * dst_bytes), y, n);
    linear_block(span.op, static_cast<T>(span.a), static_cast<T>(span.b), x, y, n);
    store_block(span.dst_dtype, at(span.dst, i * dst_bytes), y, n);
  }
}

void linear(const LinearSpan &span) {
  if (span.op == Linear::kCast && span.src_dtype == span.dst_dtype) {
    if (span.src != span.dst && span.n > 0) {
      std::memmove(span.dst, span.src, static_cast<size_t>(span.n * dtype_bytes(span.src_dtype)));
    }
  } else if (span.src_dtype == GSC_FP64 || span.dst_dtype == GSC_FP64) {
    linear_span<double>(span);
  } else {
    linear_span<float>(span);
  }
}

}  // namespace
}  // namespace gsc::cpu
