// SPDX-License-Identifier: Apache-2.0
// The contract between the host code of this backend and its kernels: which kernels there are, what they read, and how
// they are dispatched. The structs are read by C++ and, translated by core/vulkan/translate, by the kernels. All pointers
// in them are device addresses (VkDeviceAddress).
//
// A dispatch. Every kernel has one push constant of 8 bytes: the device address of its arguments (`Args` below), which
// must be aligned to 8 bytes and stay as they are until the dispatch has run. No descriptors. `Args` can be written by
// vkCmdUpdateBuffer, with a barrier before and after, since a command buffer may be submitted many times.
//
// Workgroups. A kernel walks its work with a stride of gl_NumWorkGroups.x, so any number of workgroups from 1 on, in x
// alone, gives the same bits: dispatch as many as there is work for, at most maxComputeWorkGroupCount[0]. `Work` below
// says what a workgroup takes. The size of a workgroup is specialization constant 0: 32, 64, 128 or 256, which does not
// change the bits either. Small lists want small workgroups.
//
// Specialization constant 1 is the kernel's `Special`, see the enumeration. Kernels that do not name one ignore it.
//
// Order. A dispatch reads what dispatches before it have written: a barrier from compute shader writes to compute shader
// reads and writes is needed between all of them.
#pragma once

#include <cstdint>

#include "core/rules/diagnose.h"
#include "core/rules/elementwise.h"
#include "core/rules/record_job.h"
#include "core/rules/state_conversion.h"
#include "core/rules/step.h"

namespace gsc::vulkan {

/// X(enumerator, file, Args)
#define GSC_FOR_EACH_VULKAN_KERNEL(X)                                                                             \
  X(kCheck, check, CheckArgs)              /* Special: CheckSpecial. Work: a chunk */                             \
  X(kNorm, norm, NormArgs)                 /* Work: a tensor; one workgroup more (work item `size`): the list */  \
  X(kRecord, record, RecordArgs)           /* One workgroup, of any size; one invocation works */                 \
  X(kPrepare, prepare, ApplyArgs)          /* Special: step.variant. Work: prepare_rows, one by invocation */     \
  X(kRatios, ratios, ApplyArgs)            /* Special: step.variant. Work: a tensor */                            \
  X(kApplyFp32, apply_fp32, ApplyArgs)     /* Special: traits(variant).sweep. Work: a part of a chunk */          \
  X(kApplyFp64, apply_fp64, ApplyArgs)     /* as kApplyFp32 */                                                    \
  X(kApplyCoded, apply_coded, ApplyArgs)   /* as kApplyFp32, if step.coded; for parameters that are not fp64 */   \
  X(kMomentsFp32, moments_fp32, ApplyArgs) /* Special: traits(variant).sweep, which needs norms. Work: a chunk */ \
  X(kMomentsFp64, moments_fp64, ApplyArgs)                                                                        \
  X(kMomentsCoded, moments_coded, ApplyArgs)                                                                      \
  X(kElementwise, elementwise, ElementwiseArgs) /* Work: a part of a chunk of dst */                              \
  X(kConversion, conversion, StateConversion)   /* Work: as many groups of 32 as fit into a workgroup */          \
  X(kDiagnose, diagnose, DiagnoseArgs)          /* Work: a chunk */                                               \
  X(kCopy, copy, CopyArgs)                      /* Work: kCopyBytes, of any bytes */

enum class Kernel : int32_t {
#define GSC_ENUMERATOR(enumerator, file, args) enumerator,
  GSC_FOR_EACH_VULKAN_KERNEL(GSC_ENUMERATOR)
#undef GSC_ENUMERATOR
};
#define GSC_ONE(enumerator, file, args) +1
inline constexpr int kKernelCount = 0 GSC_FOR_EACH_VULKAN_KERNEL(GSC_ONE);
#undef GSC_ONE

/// SPIR-V 1.5 of each kernel, in the order of Kernel. `controls` of each: the words that set float controls are
/// OpExecutionMode (opcode 16) with modes 4459 (DenormPreserve), 4461 (SignedZeroInfNanPreserve) and 4462 (RoundingModeRTE),
/// and OpCapability (opcode 17) 4464, 4466 and 4467, for widths 32 and 64. Where a device lacks one of them, leave out the
/// execution mode, and the capability if it was the last of its kind.
struct Shader {
  const char *name;
  const uint32_t *words;
  int32_t count;  ///< words
};
extern const Shader kShaders[kKernelCount];

/// Device features that the kernels need: Vulkan 1.2 with shaderInt64, shaderFloat64, storageBuffer16BitAccess,
/// storageBuffer8BitAccess and bufferDeviceAddress. Shared memory: at most 16 KiB.

enum class CheckSpecial : int32_t {
  kRead = 0,
  kUnscale = 1,
};

/// One tensor of a plan.
struct DeviceTensor {
  void *data;  ///< NULL: empty, with count 0, or absent, with the count of bound(i)
  int64_t count;
  int64_t first_chunk;
  int32_t dtype;
  int32_t reserved;
};

/// What a chunk leaves behind. A check fills in all of it, the first sweep of a formula that needs norms the first two.
struct ChunkResult {
  double sum_sq;  ///< or of the parameters
  double amax;    ///< or the sum of squares of the directions
  int32_t inf_count;
  int32_t nan_count;
  int32_t first;  ///< first of both kinds in the chunk, -1: none
  int32_t reserved;
};

/// A plan as kernels see it.
struct PlanView {
  const DeviceTensor *tensors;
  const int32_t *tensor_of;  ///< per chunk
  int64_t size;
  int64_t chunk_count;
  int32_t chunk_shift;  ///< log2 of chunk_elements()
  int32_t split;        ///< sweeps and element-wise operations take parts of chunks: 2^split each, at most 2^8
};

/// Counts workgroups that are done; 0 before and after each dispatch. One per plan that is checked or stepped.
struct Tickets {
  uint32_t check;
  uint32_t apply;
};

/// check, unscale, and norms before kNorm.
struct CheckArgs {
  PlanView plan;
  const float *inv_scale;  ///< NULL: 1
  int64_t first_chunk;     ///< looks at chunks [first_chunk, last_chunk)
  int64_t last_chunk;
  ChunkResult *results;  ///< one per chunk of the plan; NULL: nothing is counted, but *found_inf is set
  Tickets *tickets;      ///< needed with `finish`
  ListRecord *record;    ///< needed with `finish`
  float *found_inf;      ///< NULL, or becomes 1 if something is not finite
  ClipRule rule;
  const ScalerRecord *scaler;  ///< NULL: no norm is too large
  double fp64_limit;           ///< see core/rules/check.h
  bool finish;  ///< the results of all chunks are there, or in this dispatch: write the totals to the record
  bool conclude;
  bool amax_keeps_nonfinite;  ///< for kNorm: the amax of a chunk with inf or NaN is inf or NaN
};

struct NormArgs {
  PlanView plan;
  const ChunkResult *results;  ///< of a check; for `amax` with inv_scale NULL and amax_keeps_nonfinite
  const float *inv_scale;      ///< of the norms of tensors; NULL: 1
  double *out_norm;            ///< NULL: not wanted
  double *out_tensor_norms;    ///< NULL: none; then one workgroup is enough, with every count of them
  bool amax;
};

/// `job.lists` is an array in device memory, and `job.out` is a device address. An update of more lists than fit into the
/// array takes several dispatches: only the last one has `last`, and all but the first `more`.
struct RecordArgs {
  RecordJob job;
  bool more;  ///< kUpdate: continue the sums of the dispatch before
  bool last;  ///< kUpdate: conclude
};

/// A step. Dispatches, in this order: kPrepare always, before any that reads coefficients; for formulas that need norms
/// kMoments* and then kRatios; kApply*. If parameters of fp32 and fp64 are mixed, both kernels of a sweep run, and only
/// the last kApply* has `finish`. kPrepare and kRatios must run once per step.
struct ApplyArgs {
  PlanView grads;
  const DeviceTensor *params;
  const DeviceTensor *model_copy;  ///< NULL: none
  const DeviceTensor *state[kMaxStates];
  const DeviceTensor *scales[kMaxStates];  ///< NULL: no tensor of the slot has any
  const DeviceTensor *remainder;           ///< NULL: none
  const DeviceTensor *numbers;             ///< the slot with numbers per tensor; NULL: none
  const DeviceTensor *ema;                 ///< the average of the weights; NULL: none
  ChunkResult *results;                    ///< of the gradients' plan; needed for formulas that need norms
  Tickets *tickets;                        ///< of the gradients' plan; needed with `finish`
  StepParams step;                         ///< step.coefficients is always needed
  int64_t first_chunk;                     ///< chunks [first_chunk, last_chunk) of the gradients
  int64_t last_chunk;
  bool finish;          ///< count the step and update the scaler: the last dispatch of the step
  bool gradients_last;  ///< gradients_last(step.variant); kMoments* then neither write nor zero gradients
};

/// Rows of kPrepare: a row per invocation of all workgroups.
inline int64_t prepare_rows(const ApplyArgs &a) {
  return has_tensor_coefficients(a.step) ? a.grads.size : int64_t{a.step.group_count};
}

struct ElementwiseArgs {
  const DeviceTensor *src;  ///< not read by kFill; the tensors of dst if they are the same
  PlanView dst;
  const float *factor;  ///< kScale: device scalar
  double a;
  double b;
  Elementwise op;
  bool same;  ///< src and dst are the same tensors
};

struct DiagnoseArgs {
  PlanView plan;
  ChunkDiagnosis *out;  ///< one per chunk
  int64_t *histogram;   ///< GSC_EXPONENT_BINS per tensor, zeroed before; NULL: none
};

/// Bytes from one place to another that it does not overlap, both at any address: what is in bytes of the caller's has no
/// VkBuffer. Mostly aligned.
struct CopyArgs {
  const uint8_t *from;
  uint8_t *to;
  int64_t bytes;
};
inline constexpr int64_t kCopyBytes = 16384;

}  // namespace gsc::vulkan
