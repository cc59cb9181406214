// SPDX-License-Identifier: Apache-2.0
#include "core/device/names.h"

#include <cstdio>
#include <cstring>

namespace gsc {
namespace {

/// Bytes of the UTF-8 character at `s`, a zero-terminated string; 0 if it is not valid, or would break the line or the
/// quotes of a message: control characters, line and paragraph separators, quote and backslash.
std::size_t printable_length(const char *s) {
  const auto byte = [s](int i) { return static_cast<unsigned char>(s[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f && byte(0) != '"' && byte(0) != '\\' ? 1 : 0;
  const int length = byte(0) >= 0xc2 && byte(0) < 0xe0   ? 2
                     : (byte(0) >> 4) == 0xe             ? 3
                     : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                         : 0;
  uint32_t code = byte(0) & (0x7fU >> length);
  for (int i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;  // also at the end of the string
    code = (code << 6) | (byte(i) & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  const bool separates = code < 0xa0 || code == 0x2028 || code == 0x2029 || (code >= 0x202a && code <= 0x202e) ||
                         (code >= 0x2066 && code <= 0x2069);  // the last two: writing direction
  return overlong || surrogate || code > 0x10ffff || separates ? 0 : static_cast<std::size_t>(length);
}

}  // namespace

NameSuffix::NameSuffix(const Names *names, int64_t index) {
  if (names == nullptr || names->empty()) return;
  const String &name = (*names)[index];
  if (name.empty()) return;
  char *out = text_ + std::snprintf(text_, sizeof text_, " (\"");
  const char *const limit = out + kLongestName;
  std::size_t at = 0;
  while (at < name.size()) {
    // A printable character as it is, anything else byte by byte as an escape.
    const std::size_t length = printable_length(name.c_str() + at);
    if (out + (length > 0 ? length : 4) > limit) break;
    if (length > 0) {
      std::memcpy(out, name.c_str() + at, length);
      out += length;
      at += length;
    } else {
      out += std::snprintf(out, 5, "\\x%02x", static_cast<unsigned char>(name[at++]));
    }
  }
  std::snprintf(out, text_ + sizeof text_ - out, "%s\")", at < name.size() ? "..." : "");
}

}  // namespace gsc
