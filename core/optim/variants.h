// SPDX-License-Identifier: Apache-2.0
// Every update formula by number: the kernels of each backend are instantiated from this list, and table.cpp picks the
// number from a kind and its flags. LAMB stands apart because it takes two sweeps.
#pragma once

#include "core/optim/adagrad.h"
#include "core/optim/adam.h"
#include "core/optim/lamb.h"
#include "core/optim/lion.h"
#include "core/optim/sgd.h"

namespace gsc {

enum class Variant : int32_t {
  kSgd,
  kSgdMomentum,
  kSgdNesterov,
  kAdam,
  kAdamAmsgrad,
  kAdamW,
  kAdamWAmsgrad,
  kAdagrad,
  kLion,
  kLamb,
};
inline constexpr int kVariantCount = 10;
inline constexpr int kMaxStates = 3;

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

/// The coefficients of a group for step `step` (counted from 1).
GSC_HD Coefficients<double> make_coefficients(Variant variant, const Hyper &h, double lr, bool maximize, int64_t step) {
  switch (variant) {
    case Variant::kSgd:
    case Variant::kSgdMomentum:
    case Variant::kSgdNesterov:
      return optim::sgd_coefficients(h, lr, maximize, step);
    case Variant::kAdam:
    case Variant::kAdamAmsgrad:
    case Variant::kAdamW:
    case Variant::kAdamWAmsgrad:
      return optim::adam_coefficients(h, lr, maximize, step);
    case Variant::kAdagrad:
      return optim::adagrad_coefficients(h, lr, maximize, step);
    case Variant::kLion:
      return optim::lion_coefficients(h, lr, maximize, step);
    case Variant::kLamb:
      break;
  }
  return optim::lamb_coefficients(h, lr, maximize, step);
}

}  // namespace gsc
