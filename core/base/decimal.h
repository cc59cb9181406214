// SPDX-License-Identifier: Apache-2.0
// Numbers in messages: as printf writes them, but with a decimal point in every locale. Messages take them by %s.
#pragma once

#include <cstdio>

namespace gsc {

/// A number as "%g" writes it in the locale "C".
class Decimal {
 public:
  explicit Decimal(double value) : Decimal(value, "%g") {}
  /// With its sign, also if it is positive.
  [[nodiscard]] static Decimal with_sign(double value) { return {value, "%+g"}; }
  [[nodiscard]] const char *c_str() const { return text_; }

 private:
  Decimal(double value, const char *format) {
    std::snprintf(text_, sizeof text_, format, value);
    // Everything that is not part of a number is the locale's separator, which can have several bytes.
    char *out = text_;
    for (const char *at = text_; *at != '\0'; ++at) {
      if (is_of_number(*at)) {
        *out++ = *at;
      } else if (out == text_ || out[-1] != '.') {
        *out++ = '.';
      }
    }
    *out = '\0';
  }
  /// The letters are those of e, inf and nan; some systems write nan(ind).
  static bool is_of_number(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '+' || c == '-' || c == '(' || c == ')';
  }

  char text_[48];
};

}  // namespace gsc
