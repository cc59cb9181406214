// SPDX-License-Identifier: Apache-2.0
// The arithmetic of codes is written for lanes, which are one element or a vector of them (core/cpu/lanes.h), so that a
// rule has one text. Float, Uint and Int have 32 bits a lane; arithmetic, comparisons and ?: work on either.
#pragma once

#include <cstdint>

#include "core/rules/convert.h"
#include "core/rules/hd.h"

namespace gsc {

struct OneLane {
  using Float = float;
  using Uint = uint32_t;
  using Int = int32_t;

  GSC_HD static Uint bits(Float x) { return to_bits(x); }
  GSC_HD static Float value(Uint bits) { return from_bits(bits); }
  GSC_HD static Int as_int(Uint x) { return static_cast<Int>(x); }
  GSC_HD static Uint as_uint(Int x) { return static_cast<Uint>(x); }
  GSC_HD static Float to_float(Int x) { return static_cast<Float>(x); }
  /// Drops the fraction.
  GSC_HD static Int to_int(Float x) { return static_cast<Int>(x); }
  /// `value` in every lane.
  GSC_HD static Uint all(uint32_t value) { return value; }
};

template <typename T>
GSC_HD T least(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
GSC_HD T greatest(T a, T b) {
  return a > b ? a : b;
}

/// The bits of x, of NaN only its sign.
template <typename L = OneLane>
GSC_HD typename L::Uint canonical_bits(typename L::Float x) {
  const typename L::Uint bits = L::bits(x);
  return x != x ? (bits & 0x80000000U) | 0x7fc00000U : bits;
}

}  // namespace gsc
