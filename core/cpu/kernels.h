// SPDX-License-Identifier: Apache-2.0
// The CPU kernels as a table of functions over contiguous spans of one tensor. kernels.cpp is compiled once per
// instruction set; kernel_table() picks one at run time. Kernels do not allocate, do not start threads, do not know
// tensor lists or policies, and give the same bits for every instruction set (reduction.h has the order of the sums).
#pragma once

#include <cstdint>

#include "core/device/tensor.h"
#include "core/rules/elementwise.h"
#include "core/rules/optim/variants.h"
#include "core/rules/reduction.h"
#include "gradscaler/gradscaler.h"

namespace gsc::cpu {

/// What a check asks the memory for while it reads. Processors differ in how far their own prefetchers get; which one
/// wins on which is measured (dispatch.cpp).
enum class ReadAhead : uint8_t {
  kNone,
  kNextTile,   ///< line by line, a tile ahead
  kFourPages,  ///< lines of the next four pages in turn, which starts four of the processor's own streams
};

/// Element-wise work on `n` elements.
struct ElementwiseSpan {
  const void *src;  ///< not read by kFill
  void *dst;        ///< may be src
  int64_t n;
  int32_t src_dtype;
  int32_t dst_dtype;
  Elementwise op;
  double a, b;     ///< narrowed to the arithmetic type before use
  bool streaming;  ///< the arrays are larger than the caches: store past them what is only written
};

/// One span of a tensor in an optimizer's step.
struct ApplySpan {
  int64_t n;
  void *param;              ///< fp16, bf16, fp32: arithmetic in fp32; fp64: in fp64
  void *grad;               ///< any dtype; written only with zero_grads or write_grads
  void *model_copy;         ///< NULL: none
  void *state[kMaxStates];  ///< fp32, or fp64 for fp64 parameters
  const Coefficients<double> *coefficients;
  float inv_scale;  ///< g = clamp((g * inv_scale) * clip, clip_value), two multiplications as unscale and clip do
  float clip;
  double clip_value;  ///< +inf: none
  int32_t param_dtype, grad_dtype, copy_dtype;
  bool zero_grads, write_grads;
  bool streaming;  ///< the step is larger than the caches: store the model copy past them
  // For formulas that need norms only
  double ratio;      ///< for the last sweep
  ChunkNorms norms;  ///< out of the first sweep, in reduction.h's order
};

/// See gsc_tensor_diagnosis. Sums are kept by the caller over spans.
struct DiagnoseSpan {
  const void *data;
  int64_t n;
  int32_t dtype;
  int64_t inf_count, nan_count, zero_count, subnormal_count,
      first_nonfinite;        ///< out; first counts from data, -1: none
  double amax, amin, sum_sq;  ///< out
  int64_t *histogram;         ///< GSC_EXPONENT_BINS counters to add to, or NULL
};

struct Kernels {
  const char *name;
  /// Read only. inv_scale is what the gradients will be multiplied by in the arithmetic type.
  /// fp64_limit, for fp64 gradients only: kFp64Limit or kFp64AsFp32Limit (core/rules/check.h).
  void (*check)(int32_t dtype, const void *data, int64_t n, float inv_scale, double fp64_limit, ReadAhead ahead,
                ChunkStat *out);
  /// The same for many small tensors in one call: all of tensors[0], tensors[1], ... as long as they have its dtype, one
  /// tile at most but not nothing, and not an inf or NaN. Returns how many, at most count; out[i] is what check would
  /// find in tensors[i].
  int64_t (*check_small)(const Tensor *tensors, int64_t count, float inv_scale, double fp64_limit, ChunkPartial *out);
  /// data *= inv_scale. The statistics are of the values before; the finite test covers the narrowed result too.
  void (*unscale)(int32_t dtype, void *data, int64_t n, float inv_scale, double fp64_limit, ReadAhead ahead,
                  ChunkStat *out);
  void (*elementwise)(const ElementwiseSpan &span);
  void (*diagnose)(DiagnoseSpan *span);
  void (*moments[kVariantCount])(ApplySpan *span);  ///< the first sweep of formulas that need norms; NULL for others
  void (*apply[kVariantCount])(ApplySpan *span);
};

const Kernels *baseline_kernels();
const Kernels *avx2_kernels();
const Kernels *avx512_kernels();

}  // namespace gsc::cpu
