// SPDX-License-Identifier: Apache-2.0
// The exponential moving average of the weights, after a step on the same span, whose parameters are still in a cache.
// One kernel serves all formulas. Included by kernels.cpp only.
#pragma once

#include "core/cpu/coded/cursor.h"

namespace gsc::cpu {
namespace {

template <typename T>
[[gnu::noinline]] void average_block(T *__restrict average, const T *__restrict p, int64_t n, T weight) {
  for (int64_t i = 0; i < n; ++i) average[i] = average_weight(average[i], p[i], weight);
}

/// Of the parameters as they are stored; of masters, if those are split.
void average_weights(const ApplySpan *span) {
  const double weight = span->coefficients->ema_weight;
  if (is_wide(span->param_dtype)) {
    average_block(static_cast<double *>(span->ema), static_cast<const double *>(span->param), span->n, weight);
    return;
  }
  auto *average = static_cast<float *>(span->ema);
  const auto narrow_weight = static_cast<float>(weight);
  const bool splits = span->coded && span->remainder != nullptr;
  if (span->param_dtype == GSC_FP32) {
    average_block(average, static_cast<const float *>(span->param), span->n, narrow_weight);
    return;
  }
  for (int64_t i = 0; i < span->n; i += kBlock) {
    const int n = min_int(span->n - i, kBlock);
    const auto *params = static_cast<const uint16_t *>(span->param) + i;
    float buffer[kBlock];
    if (splits) {
      with_split(*span, [&](auto dtype, auto remainder) {
        using R = decltype(remainder);
        join_block<decltype(dtype), R>(params, static_cast<const R *>(span->remainder) + i, buffer, n);
      });
    } else {
      load_block(span->param_dtype, params, buffer, n);
    }
    average_block(average + i, buffer, n, narrow_weight);
  }
}

}  // namespace
}  // namespace gsc::cpu
