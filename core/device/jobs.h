// SPDX-License-Identifier: Apache-2.0
// The jobs of a backend: a struct for each kind of pass. Jobs on records alone are in core/rules/record_job.h.
#pragma once

#include <cstdint>

#include "core/device/plan.h"
#include "core/rules/elementwise.h"
#include "core/rules/record_job.h"
#include "core/rules/step.h"

namespace gsc {

/// One pass that looks at gradients, and multiplies them in place if `unscale`.
struct CheckJob {
  Plan *plan;
  ListRecord *record;      ///< NULL: nothing is counted, but *found_inf becomes 1 if something is not finite
  float *found_inf;        ///< device scalar, without a record only
  const float *inv_scale;  ///< device scalar; NULL: 1
  int64_t first_chunk;     ///< chunks [first_chunk, last_chunk) of the plan
  int64_t last_chunk;
  bool unscale;
  bool begin;     ///< first job of this check: forget what was counted before
  bool finish;    ///< all chunks have been looked at: write the totals to the record ...
  bool conclude;  ///< ... and conclude the check under `rule`; false if a reducer comes in between
  ClipRule rule;
  const ScalerRecord *scaler;  ///< by whose rules the norm is judged; NULL: it is not
  double *tensor_norms;        ///< device memory, written with the totals; NULL: not wanted
  bool *half_done;  ///< NULL, or becomes true if the job fails after it has looked at the chunks, and written them
};

/// What a job does of a step, in this order. Jobs of one step may run at once if they differ in their chunks alone.
struct StepPart {
  int64_t first_chunk = 0;  ///< chunks [first_chunk, last_chunk) of the gradients
  int64_t last_chunk = 0;
  bool prepare = true;  ///< coefficients, and what a step changes for each tensor
  bool moments = true;  ///< the first sweep of a formula that needs norms
  bool ratios = true;   ///< of all tensors, once the first sweep is done
  bool apply = true;    ///< the sweep that moves the parameters
  bool finish = true;   ///< count the step, and the scaler's update
};

/// One optimizer step.
struct ApplyJob {
  Plan *grads;
  const Plan *params;
  const Plan *model_copy;  ///< NULL: none
  const Plan *state[kMaxStates];
  const Plan *scales[kMaxStates];  ///< NULL: no tensor of the slot has any
  const Plan *remainder;           ///< NULL: none
  const Plan *numbers;             ///< the slot with numbers per tensor; NULL: none
  const Plan *ema;                 ///< the average of the weights; NULL: none
  StepParams step;
  StepPart part;
  bool *half_done;  ///< becomes true if the job fails after a part of it that must not be done twice
};

/// Element-wise work between pairs of tensors of equal counts.
struct ElementwiseJob {
  Elementwise op;
  const Plan *src;  ///< NULL for kFill
  const Plan *dst;
  double a;             ///< kAxpby, kClamp, kFill
  double b;             ///< kAxpby
  const float *factor;  ///< kScale: device scalar
};

/// Norms from a check with inv_scale 1.
struct NormJob {
  Plan *plan;
  bool amax;                 ///< GSC_NORM_INF instead of GSC_NORM_L2
  double *out_norm;          ///< device memory
  double *out_tensor_norms;  ///< device memory; NULL: not wanted
};

/// A detailed look at every tensor.
struct DiagnoseJob {
  const Plan *plan;
  gsc_tensor_diagnosis *out;  ///< host memory, one per tensor
  int64_t *histogram;         ///< host memory, GSC_EXPONENT_BINS per tensor; NULL: not wanted
};

}  // namespace gsc
