// SPDX-License-Identifier: Apache-2.0
// The CPU kernels as a table of functions over contiguous spans of one tensor. kernels.cpp and sweeps/ are
// compiled once per instruction set; find_kernels (dispatch.h) picks one at run time. Kernels do not allocate, start
// threads, or know tensor lists or policies, and give the same bits on every instruction set (reduction.h has the order
// of the sums).
#pragma once

#include <cstdint>

#include "core/device/tensor.h"
#include "core/rules/diagnose.h"
#include "core/rules/elementwise.h"
#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/variant.h"
#include "core/rules/reduction.h"
#include "gradscaler/gradscaler.h"

namespace gsc::cpu {

/// How a check or a diagnosis prefetches while it reads. Processors differ in how far their prefetchers reach; the best
/// choice for each is measured (dispatch.cpp).
enum class ReadAhead : uint8_t {
  kNone,
  kPageStarts,  ///< the next tile's first lines and those a page on, into the second-level cache
  kNextTile,    ///< line by line, a tile ahead
  kEightPages,  ///< a line of each of the next eight pages in turn, which starts eight hardware prefetch streams
};

/// Element-wise operation on `n` elements.
struct ElementwiseSpan {
  const void *src;  ///< not read by kFill
  void *dst;        ///< may be src
  int64_t n;
  int32_t src_dtype;
  int32_t dst_dtype;
  Elementwise op;
  double a, b;     ///< narrowed to the arithmetic type before use
  bool streaming;  ///< the arrays exceed the caches: non-temporal stores for write-only results
  bool in_places;  ///< a long span is processed at four places at a time
};

/// One span of a tensor in an optimizer step.
struct ApplySpan {
  int64_t n;
  void *param;              ///< fp16, bf16, fp32: arithmetic in fp32; fp64: in fp64
  void *grad;               ///< any dtype; written only with zero_grads or write_grads
  void *model_copy;         ///< NULL: none
  void *state[kMaxStates];  ///< fp32, or fp64 for fp64 parameters, or codes
  const Coefficients<double> *coefficients;
  float inv_scale;  ///< g = clamp((g * inv_scale) * clip, clip_value), two multiplications, as in unscale and clip
  float clip;
  double clip_value;  ///< +inf: none
  int32_t param_dtype, grad_dtype, copy_dtype;
  // Only if `coded`: see StepParams.
  int32_t state_dtype[kMaxStates];
  void *scales[kMaxStates];  ///< of the groups from the span's first element on; NULL: none
  void *remainder;           ///< NULL: none
  int32_t master;
  uint64_t seed;
  int64_t first;  ///< index of the span's first element in stochastic rounding, a multiple of kStateGroup
  int64_t step;   ///< the applied step, counted from 1
  bool coded;
  bool zero_grads, write_grads;
  bool streaming;      ///< the step exceeds the caches: non-temporal stores for the model copy
  int prefetch_bytes;  ///< how far ahead every array is fetched; 0: not at all
  bool count_unchanged;
  int64_t unchanged;  ///< in and out: elements whose parameter and remainder have the bits that they had
  // Only for formulas that need norms
  double ratio;      ///< for the last sweep
  ChunkNorms norms;  ///< out, of the first sweep, in reduction.h's order
  void *ema;         ///< only for average_weights: fp32, or fp64 for fp64 parameters
};

/// The sweeps of a formula.
struct Sweeps {
  void (*moments)(ApplySpan *span);  ///< the first of a formula that needs norms; NULL for others
  void (*apply)(ApplySpan *span);
};

struct Kernels {
  const char *name;
  /// Read only. inv_scale multiplies the gradients later, in the arithmetic type. fp64_limit, for fp64 gradients only:
  /// kFp64Limit or kFp64AsFp32Limit (core/rules/check.h).
  void (*check)(int32_t dtype, const void *data, int64_t n, float inv_scale, double fp64_limit, ReadAhead ahead,
                ChunkStat *out);
  /// The same for many small tensors in one call: tensors[0], tensors[1], ... until one has another dtype, is empty,
  /// exceeds a tile, or contains inf or NaN. Returns how many, at most count; out[i] is what check finds in tensors[i].
  int64_t (*check_small)(const Tensor *tensors, int64_t count, float inv_scale, double fp64_limit, ChunkPartial *out);
  /// data *= inv_scale. Statistics are of the values before; the finite test also covers the narrowed result.
  void (*unscale)(int32_t dtype, void *data, int64_t n, float inv_scale, double fp64_limit, ReadAhead ahead,
                  ChunkStat *out);
  void (*elementwise)(const ElementwiseSpan &span);
  /// histogram: GSC_EXPONENT_BINS counters to add to, or NULL.
  void (*diagnose)(int32_t dtype, const void *data, int64_t n, ReadAhead ahead, int64_t *histogram,
                   ChunkDiagnosis *out);
  const Sweeps *sweeps[kVariantCount];
  void (*average_weights)(const ApplySpan *span);  ///< after apply on the same span
};

const Kernels *baseline_kernels();
const Kernels *avx2_kernels();
const Kernels *avx512_kernels();
const Kernels *neon_bf16_kernels();

}  // namespace gsc::cpu
