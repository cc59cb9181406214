// SPDX-License-Identifier: Apache-2.0
// A kind of optimizer, without its formulas: name, defaults, options, flags and state slots. kinds.h, which
// scripts/gen-api makes from gradscaler.h, has all of them.
#pragma once

#include <cstdint>

#include "core/rules/option_ranges.h"
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

/// The options of gsc_optimizer_options that have a range.
enum class Option : uint8_t {
#define GSC_OPTION(field, range) field,
  GSC_OPTIMIZER_RANGES(GSC_OPTION)
#undef GSC_OPTION
};
inline constexpr int kMaxOptions = 10;

/// An option that a kind uses: its default, and its range if that is narrower than in other kinds.
struct OptionOfKind {
  Option option;
  double value = 0.0;
  const Range *range = nullptr;
};

/// A state slot. What it holds can depend on a flag; that it is there, on a flag or on momentum.
struct SlotOfKind {
  const char *name = nullptr;
  Slot holds = Slot::kMoment;
  uint32_t needs_flag = 0;
  bool needs_momentum = false;
  uint32_t with_flag = 0;  ///< with this flag it holds
  Slot holds_then = Slot::kMoment;
};

/// A kind of optimizer. Several formulas can be of one: flags or momentum pick one of them (see variants.h).
struct Kind {
  int32_t code;      ///< GSC_SGD and so on
  const char *name;  ///< in messages
  int option_count;
  OptionOfKind options[kMaxOptions];  ///< besides those that all kinds use
  bool needs_norms = false;           ///< of whole tensors
  uint32_t flags = 0;                 ///< GSC_OPTIMIZER_* bits that it takes, besides those that all kinds do
  SlotOfKind slots[kMaxStates];

  /// NULL if it does not use the option.
  constexpr const OptionOfKind *find(Option option) const {
    for (int i = 0; i < option_count; ++i) {
      if (options[i].option == option) return &options[i];
    }
    return nullptr;
  }
  /// With the slots that its formula for these flags and momentum has.
  constexpr Kind with(uint32_t set_flags, bool momentum) const {
    Kind formula = *this;
    int count = 0;
    for (SlotOfKind slot : slots) {
      if ((slot.needs_flag & ~set_flags) != 0 || (slot.needs_momentum && !momentum)) continue;
      if ((slot.with_flag & set_flags) != 0) slot.holds = slot.holds_then;
      formula.slots[count++] = slot;
    }
    for (; count < kMaxStates; ++count) formula.slots[count] = {};
    return formula;
  }
};

}  // namespace gsc
