// SPDX-License-Identifier: Apache-2.0
// Loads and stores of vectors of elements in arithmetic type T, with the same bits as core/rules/convert.h, for the
// dtypes that an instruction set converts in a few instructions, and the loop over them. Other dtypes go block by block
// (convert.h). Always inlined.
#pragma once

#include <type_traits>

#include "core/cpu/simd.h"
#include "core/rules/elementwise.h"

namespace gsc::cpu {

/// Vectors of T.
template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = FloatVector;
};
template <>
struct VectorOf<double> {
  using Type = DoubleVector;
};

/// load: the next elements of dtype D as a vector of T. narrow: the vector as elements of D, ready to store.
template <typename D, typename T>
struct Values {
  static constexpr bool kInVectors = false;
};

template <typename D>
struct SameValues {
  static constexpr bool kInVectors = true;
  using Vector = typename VectorOf<typename D::Value>::Type;
  GSC_HD static Vector load(const typename D::Stored *p) { return load_vector<Vector>(p); }
  GSC_HD static Vector narrow(Vector v) { return v; }
};
template <>
struct Values<Fp32, float> : SameValues<Fp32> {};
template <>
struct Values<Fp64, double> : SameValues<Fp64> {};

template <>
struct Values<Fp32, double> {
  static constexpr bool kInVectors = true;
  using Narrow [[gnu::vector_size(kVectorBytes / 2)]] = float;
  GSC_HD static DoubleVector load(const float *p) {
    return __builtin_convertvector(load_vector<Narrow>(p), DoubleVector);
  }
  GSC_HD static Narrow narrow(DoubleVector v) { return __builtin_convertvector(v, Narrow); }
};

#if defined(__AVX512F__)
template <>
struct Values<Fp16, float> {
  static constexpr bool kInVectors = true;
  GSC_HD static FloatVector load(const uint16_t *p) {
    return widen_halves(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
  }
  GSC_HD static __m256i narrow(FloatVector v) { return narrow_to_halves(v); }
};
#elif defined(__F16C__)
template <>
struct Values<Fp16, float> {
  static constexpr bool kInVectors = true;
  GSC_HD static FloatVector load(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
  }
  GSC_HD static __m128i narrow(FloatVector v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
};
#endif

/// The bf16 of each lane in its upper half; ignore the lower half.
GSC_HD Uint32Vector round_to_bf16(FloatVector v) {
  const auto bits = reinterpret_cast<Uint32Vector>(v);
  const Uint32Vector rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return v != v ? bits | 0x00400000U : rounded;
}

/// Quiets NaN, as the conversion from bf16 does.
GSC_HD FloatVector quieted(Uint32Vector bits) {
  const auto x = reinterpret_cast<FloatVector>(bits);
  return reinterpret_cast<FloatVector>(x != x ? bits | 0x00400000U : bits);
}

template <>
struct Values<Bf16, float> {
  static constexpr bool kInVectors = true;
  GSC_HD static FloatVector load(const uint16_t *p) {
    return quieted(reinterpret_cast<Uint32Vector>(widen_bits(p)) << 16);
  }
  GSC_HD static auto narrow(FloatVector v) { return low_halves(reinterpret_cast<Int32Vector>(round_to_bf16(v)) >> 16); }
};

/// A vector of D is f(vectors of S and D...), in element order.
template <typename S, typename D, typename T>
struct Step {
  static constexpr int kElements = kVectorBytes / static_cast<int>(sizeof(T));
  template <typename F>
  GSC_HD static auto run(const typename S::Stored *x, const typename D::Stored *y, const F &f) {
    return Values<D, T>::narrow(f(Values<S, T>::load(x), [&] { return Values<D, T>::load(y); }));
  }
};

/// Pairs of bf16 are split and joined within their lanes, which is cheaper than moving them across lanes.
template <>
struct Step<Bf16, Bf16, float> {
  static constexpr int kElements = kVectorBytes / 2;
  template <typename F>
  GSC_HD static Uint32Vector run(const uint16_t *x, const uint16_t *y, const F &f) {
    constexpr uint32_t kUpper = 0xffff0000U;
    const auto pairs = load_vector<Uint32Vector>(x);
    const FloatVector even = f(quieted(pairs << 16), [&] { return quieted(load_vector<Uint32Vector>(y) << 16); });
    const FloatVector odd = f(quieted(pairs & kUpper), [&] { return quieted(load_vector<Uint32Vector>(y) & kUpper); });
    return (round_to_bf16(even) >> 16) | (round_to_bf16(odd) & kUpper);
  }
};

/// y = op(x, y) for n elements; x may be y. Non-temporal stores if kStream and y is aligned to a cache line.
template <Elementwise Op, typename S, typename D, typename T, bool kStream>
GSC_HD void compute_in_vectors(T a, T b, const typename S::Stored *x, typename D::Stored *y, int n) {
  using Vector = typename VectorOf<T>::Type;
  constexpr int kElements = Step<S, D, T>::kElements;
  const Vector all_a = broadcast<Vector>(a);
  const Vector all_b = broadcast<Vector>(b);
  const auto compute = [&](const typename S::Stored *from, const typename D::Stored *before) {
    return Step<S, D, T>::run(from, before, [&](Vector value, const auto &old) {
      if constexpr (Op == Elementwise::kAxpby) {
        return compute_element<Op>(all_a, all_b, value, old());
      } else {
        return compute_element<Op>(all_a, all_b, value, Vector{});
      }
    });
  };
  int i = 0;
#pragma GCC unroll 4
  for (; i + kElements <= n; i += kElements) {
    if constexpr (kStream) {
      stream_vector(y + i, compute(x + i, y + i));
    } else {
      store_vector(y + i, compute(x + i, y + i));
    }
  }
  if (i == n) return;
  typename S::Stored last_x[kElements]{};
  typename D::Stored last_y[kElements]{};
  const auto rest = static_cast<size_t>(n - i);
  std::memcpy(last_x, x + i, rest * sizeof *x);
  std::memcpy(last_y, y + i, rest * sizeof *y);
  store_vector(last_y, compute(last_x, last_y));
  std::memcpy(y + i, last_y, rest * sizeof *y);
}

}  // namespace gsc::cpu
