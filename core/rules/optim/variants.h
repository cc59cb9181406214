// SPDX-License-Identifier: Apache-2.0
// Every update formula by number: the kernels of each backend are instantiated from this list, and table.cpp picks the
// number from a kind and its flags. LAMB stands apart because it takes two sweeps, and last.
#pragma once

#include "core/rules/optim/adagrad.h"
#include "core/rules/optim/adam.h"
#include "core/rules/optim/lamb.h"
#include "core/rules/optim/lion.h"
#include "core/rules/optim/sgd.h"

namespace gsc {

/// X(enumerator, formula) for every variant of a single sweep.
#define GSC_FOR_EACH_SINGLE_SWEEP(X)         \
  X(kSgd, optim::Sgd)                        \
  X(kSgdMomentum, optim::SgdMomentum<false>) \
  X(kSgdNesterov, optim::SgdMomentum<true>)  \
  X(kAdam, optim::Adam)                      \
  X(kAdamAmsgrad, optim::AdamAmsgrad)        \
  X(kAdamW, optim::AdamW)                    \
  X(kAdamWAmsgrad, optim::AdamWAmsgrad)      \
  X(kAdagrad, optim::Adagrad)                \
  X(kLion, optim::Lion)

/// ... and LAMB.
#define GSC_FOR_EACH_VARIANT(X) \
  GSC_FOR_EACH_SINGLE_SWEEP(X)  \
  X(kLamb, optim::Lamb)

enum class Variant : int32_t {
#define GSC_ENUMERATOR(enumerator, formula) enumerator,
  GSC_FOR_EACH_VARIANT(GSC_ENUMERATOR)
#undef GSC_ENUMERATOR
};
inline constexpr int kVariantCount = static_cast<int>(Variant::kLamb) + 1;
inline constexpr int kMaxStates = 3;

/// The coefficients of a group for step `step` (counted from 1).
GSC_HD Coefficients<double> make_coefficients(Variant variant, const Hyper &h, double lr, bool maximize, int64_t step) {
  switch (variant) {
#define GSC_CASE(enumerator, formula) \
  case Variant::enumerator:           \
    return formula::coefficients(h, lr, maximize, step);
    GSC_FOR_EACH_VARIANT(GSC_CASE)
#undef GSC_CASE
  }
  return {};
}

}  // namespace gsc
