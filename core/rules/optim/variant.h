// SPDX-License-Identifier: Apache-2.0
// Every update formula by number, and what the library knows of a formula without including it. Who computes with the
// formulas includes variants.h, or the file of one family.
#pragma once

#include <cstdint>

#include "core/rules/optim/formula_list.h"
#include "core/rules/optim/kind.h"

namespace gsc {

enum class Variant : int32_t {
#define GSC_ENUMERATOR(enumerator, formula) enumerator,
  GSC_FOR_EACH_VARIANT(GSC_ENUMERATOR)
#undef GSC_ENUMERATOR
};

#define GSC_ONE(enumerator, formula) +1
inline constexpr int kVariantCount = 0 GSC_FOR_EACH_VARIANT(GSC_ONE);
#undef GSC_ONE

/// What a formula says of itself (formula.h).
struct Traits {
  Kind kind;
  Variant sweep;   ///< the first formula with the same kernels
  int32_t states;  ///< state slots with a number per element
  uint32_t flag;   ///< the GSC_OPTIMIZER_* bit that selects it among those of its kind, or 0
  bool needs_momentum;
  bool needs_norms;
  bool gradients_last;
  bool averages;
};

/// For host code; traits.cpp has the table.
const Traits &traits(Variant variant);

struct Hyper;
/// 1 minus the factor by which a step multiplies the old value of a slot, once warm-ups are over. For host code.
float rate_of(Variant variant, const Hyper &hyper, int32_t slot);

inline int32_t state_count(Variant variant) { return traits(variant).states; }
inline bool needs_norms(Variant variant) { return traits(variant).needs_norms; }
inline bool gradients_last(Variant variant) { return traits(variant).gradients_last; }
inline bool averages(Variant variant) { return traits(variant).averages; }
/// Whether a slot with numbers per tensor follows those with a number per element.
inline bool has_numbers(Variant variant) {
  const Traits &t = traits(variant);
  return t.states < kMaxStates && numbers_of(t.kind.slots[t.states].holds) > 0;
}

}  // namespace gsc
