// SPDX-License-Identifier: Apache-2.0
// Every update formula by number, and what the library knows of a formula without including it. Who computes with the
// formulas includes variants.h, or the file of one family.
#pragma once

#include <cstdint>

#include "core/rules/optim/kind.h"

/// X(enumerator, formula) for every formula, by the file of core/rules/optim that has it.
#define GSC_SGD_FORMULAS(X)                  \
  X(kSgd, optim::Sgd)                        \
  X(kSgdMomentum, optim::SgdMomentum<false>) \
  X(kSgdNesterov, optim::SgdMomentum<true>)
#define GSC_ADAM_FORMULAS(X)          \
  X(kAdam, optim::Adam)               \
  X(kAdamAmsgrad, optim::AdamAmsgrad) \
  X(kAdamW, optim::AdamW)             \
  X(kAdamWAmsgrad, optim::AdamWAmsgrad)
#define GSC_ADAGRAD_FORMULAS(X)                             \
  X(kAdagrad, optim::Adagrad)                               \
  X(kRmsprop, optim::Rmsprop)                               \
  X(kRmspropMomentum, optim::RmspropMomentum<false>)        \
  X(kRmspropCentered, optim::RmspropCentered)               \
  X(kRmspropCenteredMomentum, optim::RmspropMomentum<true>) \
  X(kAdadelta, optim::Adadelta)
#define GSC_LION_FORMULAS(X) X(kLion, optim::Lion)
#define GSC_ADAM_LIKE_FORMULAS(X) \
  X(kAdamax, optim::Adamax)       \
  X(kNadam, optim::Nadam)         \
  X(kRadam, optim::Radam)         \
  X(kAdaBelief, optim::AdaBelief)
#define GSC_ADEMAMIX_FORMULAS(X) X(kAdemamix, optim::AdEMAMix)
#define GSC_SCHEDULE_FREE_FORMULAS(X)             \
  X(kAdamWScheduleFree, optim::ScheduleFreeAdamW) \
  X(kSgdScheduleFree, optim::ScheduleFreeSgd)
#define GSC_LAYERWISE_FORMULAS(X)       \
  X(kLamb, optim::Lamb)                 \
  X(kLars, optim::Lars)                 \
  X(kLarsMomentum, optim::LarsMomentum) \
  X(kNovograd, optim::Novograd)

#define GSC_FOR_EACH_VARIANT(X) \
  GSC_SGD_FORMULAS(X)           \
  GSC_ADAM_FORMULAS(X)          \
  GSC_ADAGRAD_FORMULAS(X)       \
  GSC_LION_FORMULAS(X)          \
  GSC_ADAM_LIKE_FORMULAS(X)     \
  GSC_ADEMAMIX_FORMULAS(X)      \
  GSC_SCHEDULE_FREE_FORMULAS(X) \
  GSC_LAYERWISE_FORMULAS(X)

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
