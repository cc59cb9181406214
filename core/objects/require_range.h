// SPDX-License-Identifier: Apache-2.0
// Refuses a number that is outside of a range, with the range in the message.
#pragma once

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/rules/range.h"

namespace gsc {

template <typename T>
void require_in(const Range &range, const Argument &name, T value) {
  if (!range.contains(static_cast<double>(value))) refuse_value(name, value, range.text());
}

}  // namespace gsc
