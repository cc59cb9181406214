// SPDX-License-Identifier: Apache-2.0
// The numbers that an option may have, and how messages call them.
#pragma once

#include <limits>

namespace gsc {

class Range {
 public:
  static constexpr Range finite(const char *text) { return {-kInf, kInf, true, true, text}; }
  static constexpr Range at_least(double low, const char *text) { return {low, kInf, false, true, text}; }
  static constexpr Range above(double low, const char *text) { return {low, kInf, true, true, text}; }
  static constexpr Range open(double low, double high, const char *text) { return {low, high, true, true, text}; }
  static constexpr Range half_open(double low, double high, const char *text) { return {low, high, false, true, text}; }
  static constexpr Range closed(double low, double high, const char *text) { return {low, high, false, false, text}; }
  /// The same and 0, which stands for none.
  constexpr Range or_zero() const {
    Range with_zero = *this;
    with_zero.zero_ = true;
    return with_zero;
  }

  /// NaN is in no range.
  constexpr bool contains(double x) const {
    const bool above_low = low_open_ ? x > low_ : x >= low_;
    const bool below_high = high_open_ ? x < high_ : x <= high_;
    return (above_low && below_high) || (zero_ && x == 0.0);
  }
  /// What follows "it must be" in a message.
  constexpr const char *text() const { return text_; }

 private:
  static constexpr double kInf = std::numeric_limits<double>::infinity();

  constexpr Range(double low, double high, bool low_open, bool high_open, const char *text)
      : low_(low), high_(high), low_open_(low_open), high_open_(high_open), text_(text) {}

  double low_, high_;
  bool low_open_, high_open_, zero_ = false;
  const char *text_;
};

}  // namespace gsc
