// SPDX-License-Identifier: Apache-2.0
// The kinds of optimizer, as the formulas in core/rules/optim/ describe them, and the validation of hyper-parameters.
#pragma once

#include "core/base/error.h"
#include "core/rules/dtypes.h"
#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/variant.h"
#include "gradscaler/gradscaler.h"

namespace gsc {

/// What coefficients are worked out from in double. No training comes near it; a spoilt checkpoint may.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

/// Throws for an unknown kind.
const Kind &require_kind(int32_t kind, const Argument &name = kOptions.field("kind"));
/// The options that a kind starts with. Throws for an unknown kind.
gsc_optimizer_options default_options(int32_t kind, const Argument &name = kOptions.field("kind"));
/// The formula that kind, flags and momentum select. Throws for an unknown kind.
Variant variant_of(const gsc_optimizer_options &options);
/// Whether a formula of the kind is for momentum other than 0: then that cannot change.
bool momentum_picks_formula(int32_t kind);
/// State is fp32, or fp64 for fp64 parameters.
constexpr int32_t state_dtype(int32_t param_dtype) { return is_wide(param_dtype) ? GSC_FP64 : GSC_FP32; }
/// That of a slot that is not in codes.
constexpr int32_t full_dtype(Slot holds, int32_t param_dtype) {
  return numbers_of(holds) > 0 ? GSC_FP64 : state_dtype(param_dtype);
}
/// Elements of a slot's tensor, of a parameter with `count`.
constexpr int64_t slot_elements(Slot holds, int64_t count) { return numbers_of(holds) > 0 ? numbers_of(holds) : count; }
/// The dtype of a slot in state that the library allocates.
int32_t state_dtype(const gsc_optimizer_options &options, int32_t slot, Slot holds, int32_t param_dtype);
/// The dtype of the remainders of split masters; 0 if there are none.
constexpr int32_t remainder_dtype(int32_t master) {
  return master == GSC_MASTER_SPLIT16 ? GSC_INT16 : (master == GSC_MASTER_SPLIT8 ? GSC_INT8 : 0);
}
/// State slots of a formula: those with a number per element, then one with numbers per tensor if it has that.
inline int32_t slot_count(Variant variant) { return state_count(variant) + (has_numbers(variant) ? 1 : 0); }
/// Throws naming the first option out of range for its kind.
void validate(const gsc_optimizer_options &options);
/// Throws naming the argument unless the number is finite, in fp32 too, and >= 0.
void require_at_least_zero(const Argument &name, double value);
Hyper make_hyper(const gsc_optimizer_options &options);

}  // namespace gsc
