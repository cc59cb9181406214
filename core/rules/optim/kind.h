// SPDX-License-Identifier: Apache-2.0
// What the file of a formula has besides the formula: the kind of its optimizer. core/objects/optimizer_table.cpp makes
// the table of optimizers from it and the list in variants.h.
#pragma once

#include <cstdint>

#include "gradscaler/gradscaler.h"

namespace gsc {

/// What a state slot holds, which decides how it can be stored in fewer bits.
enum class Slot : uint8_t {
  kMoment,        ///< a mean of gradients, of either sign
  kSecondMoment,  ///< a mean or sum of squares, or another measure of magnitude, >= 0
  kFull,          ///< not stored in fewer bits: weights, their average, and means whose difference a formula takes
  kNumber,        ///< one fp64 number per tensor
  kAverage,       ///< an Average per tensor: two fp64 numbers
};
/// Numbers per tensor that are not numbers per element; 0 for a slot of elements.
constexpr int64_t numbers_of(Slot holds) { return holds == Slot::kNumber ? 1 : (holds == Slot::kAverage ? 2 : 0); }

inline constexpr int kMaxStates = 3;

/// A kind of optimizer. Several formulas can be of one: flags or momentum pick one of them (see variants.h).
struct Kind {
  int32_t code;      ///< GSC_SGD and so on
  const char *name;  ///< in messages
  struct {
    double lr, beta1 = 0.0, beta2 = 0.0, eps = 0.0, weight_decay = 0.0, alpha = 0.0, rho = 0.0, momentum_decay = 0.0,
               eps_root = 0.0, beta3 = 0.0, momentum = 0.0, weight_lr_power = 0.0, trust_coefficient = 0.0;
  } defaults;
  struct {
    const char *name;
    Slot holds;
  } slots[kMaxStates];  ///< of the formula with the most
};

}  // namespace gsc
