// SPDX-License-Identifier: Apache-2.0
// One row per optimizer: its defaults, its state slots, and which formula (variants.h) its flags select. To add an
// optimizer, add its formula file, a line in variants.h and a row here.
#pragma once

#include "core/base/error.h"
#include "core/rules/dtypes.h"
#include "core/rules/optim/variants.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

struct OptimizerInfo {
  int32_t kind;
  const char *name;
  gsc_optimizer_options defaults;
  const char *slots[kMaxStates];
  uint32_t flags;  ///< the GSC_OPTIMIZER_* bits it accepts
  Variant (*variant)(const gsc_optimizer_options &options);
};

/// Throws for an unknown kind.
const OptimizerInfo &optimizer_info(int32_t kind, const Argument &name = Argument("options").field("kind"));
/// State is fp32, or fp64 for fp64 parameters.
constexpr int32_t state_dtype(int32_t param_dtype) { return is_wide(param_dtype) ? GSC_FP64 : GSC_FP32; }
/// Throws naming the first option out of range for its kind.
void validate(const gsc_optimizer_options &options);
Hyper make_hyper(const gsc_optimizer_options &options);

}  // namespace gsc
