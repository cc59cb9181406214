// SPDX-License-Identifier: Apache-2.0
// Writes a struct that begins with struct_size for a program whose version of the struct may be shorter or longer.
// Compiled for host and device: reports are written by either. capi/guard.h checks the size.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/rules/hd.h"

namespace gsc {

/// Writes `size` bytes, a multiple of the struct's alignment: the fields that fit, and zeros for those that only the
/// program knows. Its struct_size stays as it is.
template <typename S>
GSC_HD void write_struct(S *out, uint32_t size, S value) {
  value.struct_size = size;
  auto *const to = reinterpret_cast<char *>(out);
  const auto *const from = reinterpret_cast<const char *>(&value);
  // A loop of known length, which leaves the value of a device in registers.
  for (uint32_t at = 0; at < sizeof(S); at += alignof(S)) {
    if (at < size) std::memcpy(to + at, from + at, alignof(S));
  }
  for (uint32_t at = sizeof(S); at < size; at += alignof(S)) std::memset(to + at, 0, alignof(S));
}

}  // namespace gsc
