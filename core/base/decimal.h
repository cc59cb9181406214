// SPDX-License-Identifier: Apache-2.0
// Numbers in messages: as printf writes them, but with a decimal point in every locale. Messages take them by %s.
#pragma once

#include <concepts>
#include <cstdio>

#include "core/base/error.h"

namespace gsc {

/// A number as "%g" writes it in the locale "C".
class Decimal {
 public:
  explicit Decimal(double value) : Decimal(value, "%g") {}
  /// With its sign, also if it is positive.
  static Decimal with_sign(double value) { return {value, "%+g"}; }
  const char *c_str() const { return text_; }

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

/// Refuses an argument: "is 3; it must be `rule`".
[[noreturn]] inline void refuse_value(const Argument &name, double value, const char *rule) {
  refuse(name, "is %s; it must be %s", Decimal(value).c_str(), rule);
}
[[noreturn]] inline void refuse_value(const Argument &name, std::integral auto value, const char *rule) {
  refuse(name, "is %lld; it must be %s", static_cast<long long>(value), rule);
}

}  // namespace gsc
