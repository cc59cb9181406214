// SPDX-License-Identifier: Apache-2.0
// The parameters of an optimizer step, except its tensors. The optimizer fills them in; a backend passes them unchanged
// to its kernels.
#pragma once

#include <cstdint>
#include <limits>

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/variant.h"
#include "core/rules/records.h"

namespace gsc {

/// Set by a scaler, or by the caller of a step without one.
struct StepScalars {
  const float *inv_scale = nullptr;  ///< device scalars; NULL stands for 1, 1 and 0
  const float *clip = nullptr;
  const float *found_inf = nullptr;
  double clip_value = std::numeric_limits<double>::infinity();
  ScalerRecord *update = nullptr;  ///< not NULL: the scaler's update follows in the same job
};

/// Pointers are to device memory.
struct StepParams : StepScalars {
  int32_t master = GSC_MASTER_NONE;
  bool coded = false;                ///< some state is in codes, or parameters are not rounded to nearest
  uint64_t seed = 0;                 ///< of stochastic rounding
  const int64_t *offsets = nullptr;  ///< per tensor, if coded: the index of its first element in stochastic rounding
  Variant variant = {};
  Phase phase = Phase::kStep;
  const int32_t *group_of = nullptr;  ///< per tensor; NULL: all are in group 0
  const GroupRecord *groups = nullptr;
  /// Written by the job: one per group, or with lags and for a formula that averages one per tensor.
  Coefficients<double> *coefficients = nullptr;
  int64_t *lags = nullptr;   ///< per tensor: applied steps that it was absent from; NULL: no tensor ever was
  double *ratios = nullptr;  ///< per tensor, for formulas that need norms
  OptimizerRecord *record = nullptr;
  const ListRecord *checked = nullptr;  ///< the gradients' record, the only one of the iteration if `update` is set
  int32_t group_count = 0;
  bool maximize = false;
  bool zero_grads = false;
  bool write_grads = false;
  bool count_unchanged = false;  ///< elements whose parameter and remainder stay the same, into the record
  bool averages = false;         ///< averages(variant): a kernel that asked would hold the answer in registers
  bool checked_scale = false;    ///< found_inf was found with inv_scale, which may be inf if there are no elements
  bool device_lrs = false;       ///< some group's learning rate is read from device memory
};

/// The applied step, this one included.
GSC_HD int64_t step_number(const StepParams &p) { return p.record->applied + (p.phase == Phase::kStep ? 1 : 0); }

/// Counts a step that is done, or was skipped.
GSC_HD void count_step(const StepParams &p, bool skip) {
  if (p.phase != Phase::kStep) return;
  if (skip) {
    p.record->skipped += 1;
  } else {
    p.record->applied += 1;
  }
}

/// Whether coefficients are one per tensor, not one per group.
GSC_HD bool has_tensor_coefficients(const StepParams &p) { return p.lags != nullptr || p.averages; }

}  // namespace gsc
