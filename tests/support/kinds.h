// SPDX-License-Identifier: Apache-2.0
//
// The table of kinds of optimizer, which scripts/gen-api makes from gradscaler.h, for tests that go through all kinds.
#ifndef GRADSCALER_TESTS_SUPPORT_KINDS_H
#define GRADSCALER_TESTS_SUPPORT_KINDS_H
#include <optional>
#include <string_view>

#include "core/rules/optim/kinds.h"

namespace gsc_test {

inline const gsc::Kind &kind_of(int32_t code) { return *gsc::kKinds[code]; }
/// Kinds that average their iterates.
inline bool is_schedule_free(int32_t kind) { return kind == GSC_ADAMW_SCHEDULE_FREE || kind == GSC_SGD_SCHEDULE_FREE; }
/// Options that every kind has are not in the table.
inline bool uses(int32_t code, gsc::Option option) { return kind_of(code).find(option) != nullptr; }
/// The option with a range that has this name.
inline std::optional<gsc::Option> option_named(std::string_view name) {
#define GSC_NAMED(field, range) \
  if (name == #field) return gsc::Option::field;
  GSC_OPTIMIZER_RANGES(GSC_NAMED)
#undef GSC_NAMED
  return std::nullopt;
}
inline bool has_number_slot(int32_t code) {
  bool found = false;
  for (const gsc::SlotOfKind &slot : kind_of(code).slots)
    found |= slot.name != nullptr && slot.holds == gsc::Slot::kNumber;
  return found;
}

}  // namespace gsc_test

#endif  // GRADSCALER_TESTS_SUPPORT_KINDS_H
