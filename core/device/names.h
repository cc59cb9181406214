// SPDX-License-Identifier: Apache-2.0
// Names of tensors, and how a message shows them.
#pragma once

#include <cstdint>

#include "core/base/memory.h"

namespace gsc {

/// Names of tensors; empty, or one string per tensor, "" for none.
using Names = Vec<String>;

/// ` ("name")` to end a message about tensor `index` with, or "". Long names are cut; what is not printable UTF-8 is
/// escaped, so that a name cannot begin a new line of a log.
class NameSuffix {
 public:
  NameSuffix(const Names *names, int64_t index);
  const char *c_str() const { return text_; }

 private:
  static constexpr std::size_t kLongestName = 112;
  char text_[kLongestName + 16] = "";
};

}  // namespace gsc
