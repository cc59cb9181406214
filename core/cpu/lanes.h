// SPDX-License-Identifier: Apache-2.0
// A vector of elements for the rules of core/rules/lanes.h: its operations, loads that widen integers to 32 bits, and
// stores that keep their lower bits. Always inlined, for files that kernels.cpp includes.
#pragma once

#include "core/cpu/simd.h"
#include "core/rules/lanes.h"

namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

struct VectorLanes {
  using Float = FloatVector;
  using Uint = Uint32Vector;
  using Int = Int32Vector;
  static constexpr int kCount = kVectorBytes / 4;

  GSC_HD static Uint bits(Float x) { return reinterpret_cast<Uint>(x); }
  GSC_HD static Float value(Uint bits) { return reinterpret_cast<Float>(bits); }
  GSC_HD static Int as_int(Uint x) { return reinterpret_cast<Int>(x); }
  GSC_HD static Uint as_uint(Int x) { return reinterpret_cast<Uint>(x); }
  GSC_HD static Float to_float(Int x) { return __builtin_convertvector(x, Float); }
  GSC_HD static Int to_int(Float x) { return __builtin_convertvector(x, Int); }
  GSC_HD static Uint all(uint32_t value) { return Uint{} + value; }
  GSC_HD static Uint from_all(Uint x) { return x; }

  GSC_HD static Float load(const float *p) { return load_vector<Float>(p); }
  GSC_HD static Uint load(const uint16_t *p) { return as_uint(widen_bits(p)); }
  GSC_HD static Int load(const int16_t *p) { return widen_signed(p); }
  GSC_HD static Uint load(const uint8_t *p) { return as_uint(widen_bytes(p)); }
  GSC_HD static Int load(const int8_t *p) { return widen_bytes(reinterpret_cast<const uint8_t *>(p)) << 24 >> 24; }
  GSC_HD static void store(float *p, Float x) { store_vector(p, x); }
  GSC_HD static void store_low(uint16_t *p, Uint x) { store_vector(p, lower_halves(x)); }
  GSC_HD static void store_low(int16_t *p, Uint x) { store_vector(p, lower_halves(x)); }
  GSC_HD static void store_low(uint8_t *p, Uint x) { store_vector(p, lower_bytes(x)); }
  GSC_HD static void store_low(int8_t *p, Uint x) { store_vector(p, lower_bytes(x)); }
};

/// One element, with the loads and stores of VectorLanes.
struct SingleLane : OneLane {
  /// Of a vector whose lanes are all alike.
  GSC_HD static Uint from_all(VectorLanes::Uint x) { return x[0]; }

  GSC_HD static Float load(const float *p) { return *p; }
  GSC_HD static Uint load(const uint16_t *p) { return *p; }
  GSC_HD static Int load(const int16_t *p) { return *p; }
  GSC_HD static Uint load(const uint8_t *p) { return *p; }
  GSC_HD static Int load(const int8_t *p) { return *p; }
  GSC_HD static void store(float *p, Float x) { *p = x; }
  template <typename T>
  GSC_HD static void store_low(T *p, Uint x) {
    *p = static_cast<T>(x);
  }
};

/// f(lanes, i) for vectors of elements, then for single ones, until n.
template <typename F>
GSC_HD void for_lanes(int n, const F &f) {
  int i = 0;
#pragma GCC unroll 8
  for (; i + VectorLanes::kCount <= n; i += VectorLanes::kCount) f(VectorLanes{}, i);
  for (; i < n; ++i) f(SingleLane{}, i);
}

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
