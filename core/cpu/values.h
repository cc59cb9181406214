// SPDX-License-Identifier: Apache-2.0
// Loads and stores of vectors of elements in arithmetic type T, with the same bits as core/rules/convert.h, for the
// dtypes that an instruction set converts in a few instructions, and the loop over them. Other dtypes go block by block
// (convert.h). Always inlined.
#pragma once

#include <type_traits>

#include "core/cpu/simd.h"
#include "core/rules/elementwise.h"

namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

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
#elif defined(__aarch64__)
template <>
struct Values<Fp16, float> {
  static constexpr bool kInVectors = true;
  GSC_HD static FloatVector load(const uint16_t *p) { return widen_halves(p); }
  GSC_HD static HalfVector narrow(FloatVector v) { return narrow_to_halves(v); }
};
#endif

/// The bf16 of each lane in its upper half; ignore the lower half.
GSC_HD Uint32Vector round_to_bf16(FloatVector v) {
#if defined(__AVX512F__)
  // One instruction less: 0x7fff, and one more where the last bit is set.
  const __m512i all = _mm512_castps_si512(v);
  const __m512i less = _mm512_add_epi32(all, _mm512_set1_epi32(0x7fff));
  const __mmask16 is_odd = _mm512_test_epi32_mask(all, _mm512_set1_epi32(0x10000));
  const __m512i rounded = _mm512_mask_add_epi32(less, is_odd, less, _mm512_set1_epi32(1));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return reinterpret_cast<Uint32Vector>(_mm512_mask_or_epi32(rounded, is_nan, all, _mm512_set1_epi32(0x00400000)));
#else
  const auto bits = reinterpret_cast<Uint32Vector>(v);
  const Uint32Vector rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return v != v ? bits | 0x00400000U : rounded;
#endif
}

/// Quiets NaN, as the conversion from bf16 does.
GSC_HD FloatVector quieted(FloatVector v) {
  const auto bits = reinterpret_cast<Uint32Vector>(v);
  return reinterpret_cast<FloatVector>(v != v ? bits | 0x00400000U : bits);
}

template <>
struct Values<Bf16, float> {
  static constexpr bool kInVectors = true;
  GSC_HD static FloatVector load(const uint16_t *p) { return quieted(bf16_as_fp32(p)); }
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  GSC_HD static HalfVector narrow(FloatVector v) { return narrow_to_bf16(v); }
#else
  GSC_HD static auto narrow(FloatVector v) { return upper_halves(round_to_bf16(v)); }
#endif
};

/// The next elements for arithmetic or narrowing, both of which quiet NaN: so a NaN of bf16 is passed as it is.
template <typename D>
GSC_HD FloatVector load_operand(const typename D::Stored *p) {
  if constexpr (std::is_same_v<D, Bf16>) {
    return bf16_as_fp32(p);
  } else {
    return Values<D, float>::load(p);
  }
}

/// A vector of D is f(vectors of S and D...), in element order.
template <typename S, typename D, typename T>
struct Step {
  static constexpr int kElements = kVectorBytes / static_cast<int>(sizeof(T));
  template <typename F>
  GSC_HD static auto run(const typename S::Stored *x, const typename D::Stored *y, const F &f) {
    return Values<D, T>::narrow(f(Values<S, T>::load(x), [&] { return Values<D, T>::load(y); }));
  }
};

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
/// Two vectors at a time. NaN is quieted only where it is rounded.
template <>
struct Step<Bf16, Bf16, float> {
  static constexpr int kElements = kVectorBytes / 2;
  template <typename F>
  GSC_HD static bfloat16x8_t run(const uint16_t *x, const uint16_t *y, const F &f) {
    const auto half = [&](int i) {
      return reinterpret_cast<float32x4_t>(f(bf16_as_fp32(x + i), [&] { return bf16_as_fp32(y + i); }));
    };
    return vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(half(0)), half(kElements / 2));
  }
};
#else
/// Pairs of bf16 are split and joined within their lanes, which is cheaper than moving them across lanes. NaN is
/// quieted only where it is rounded.
template <>
struct Step<Bf16, Bf16, float> {
  static constexpr int kElements = kVectorBytes / 2;
  template <typename F>
  GSC_HD static Uint32Vector run(const uint16_t *x, const uint16_t *y, const F &f) {
    constexpr uint32_t kUpper = 0xffff0000U;
    const auto pairs = load_vector<Uint32Vector>(x);
    const auto as_fp32 = [](Uint32Vector bits) { return reinterpret_cast<FloatVector>(bits); };
    const FloatVector even = f(as_fp32(pairs << 16), [&] { return as_fp32(load_vector<Uint32Vector>(y) << 16); });
    const FloatVector odd = f(as_fp32(pairs & kUpper), [&] { return as_fp32(load_vector<Uint32Vector>(y) & kUpper); });
    return (round_to_bf16(even) >> 16) | (round_to_bf16(odd) & kUpper);
  }
};
#endif

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
      } else if constexpr (Op == Elementwise::kClamp) {
        return smaller(all_a, larger(-all_a, value));  // clamp_magnitude in two instructions
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

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
