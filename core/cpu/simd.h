// SPDX-License-Identifier: Apache-2.0
// SIMD vocabulary of the CPU kernels for the instruction set being compiled: vectors, the few intrinsics that compilers
// do not find by themselves, prefetching, and non-temporal stores. For files that kernels.cpp includes and for
// convert.h; all of it is always inlined, and in the namespace of the instruction set (kernels.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/rules/dtypes.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
using FloatVector [[gnu::vector_size(kVectorBytes)]] = float;
using DoubleVector [[gnu::vector_size(kVectorBytes)]] = double;
using Int16Vector [[gnu::vector_size(kVectorBytes)]] = int16_t;
using Int32Vector [[gnu::vector_size(kVectorBytes)]] = int32_t;
using Uint32Vector [[gnu::vector_size(kVectorBytes)]] = uint32_t;
using Int64Vector [[gnu::vector_size(kVectorBytes)]] = int64_t;
using Uint64Vector [[gnu::vector_size(kVectorBytes)]] = uint64_t;
using HalfVector [[gnu::vector_size(kVectorBytes / 2)]] = uint16_t;
using ByteVector [[gnu::vector_size(kVectorBytes / 4)]] = uint8_t;

/// Keeps a load apart from the instruction that uses it: Zen 4 converts faster from memory that way
/// (docs/dev/notebook.md).
template <typename V>
GSC_HD V loaded(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#endif
  return v;
}

#if defined(__AVX512F__)
inline constexpr __mmask16 kAllLanes = 0xffff;
// Masked forms, because GCC 12 warns of an uninitialised variable inside its own unmasked ones.
GSC_HD __m512 widen_halves(__m256i halves) { return _mm512_maskz_cvtph_ps(kAllLanes, loaded(halves)); }
GSC_HD __m256i narrow_to_halves(__m512 values) {
  return _mm512_maskz_cvtps_ph(kAllLanes, values, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__aarch64__)
// Every AArch64 processor converts fp16; to bf16 only those for which the kernels `neon_bf16` are.
GSC_HD FloatVector widen_halves(const uint16_t *p) {
  return reinterpret_cast<FloatVector>(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))));
}
GSC_HD HalfVector narrow_to_halves(FloatVector v) {
  return reinterpret_cast<HalfVector>(vcvt_f16_f32(reinterpret_cast<float32x4_t>(v)));
}
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
/// Unlike AVX512_BF16, it keeps subnormals; NaN becomes quiet and keeps the top of its payload.
GSC_HD HalfVector narrow_to_bf16(FloatVector v) {
  return reinterpret_cast<HalfVector>(vcvt_bf16_f32(reinterpret_cast<float32x4_t>(v)));
}
#endif
#endif

/// Half 0 or 1 of a vector, widened to double. Intrinsics, because GCC 12 takes the way through memory.
template <int Half>
GSC_HD DoubleVector half_of(FloatVector v) {
#if defined(__AVX512F__)
  const __m256d half = _mm512_maskz_extractf64x4_pd(0xf, _mm512_castps_pd(v), Half);
  return _mm512_maskz_cvtps_pd(0xff, _mm256_castpd_ps(half));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm256_extractf128_ps(v, Half));
#elif defined(__SSE2__)
  return _mm_cvtps_pd(Half == 0 ? v : _mm_movehl_ps(v, v));
#else
  using Narrow [[gnu::vector_size(kVectorBytes / 2)]] = float;
  Narrow half;
  __builtin_memcpy(&half, reinterpret_cast<const char *>(&v) + Half * sizeof half, sizeof half);
  return __builtin_convertvector(half, DoubleVector);
#endif
}

template <typename V>
GSC_HD V load_vector(const void *p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

/// Every element is `value`; 0 + value would lose the sign of -0.
template <typename V, typename T>
GSC_HD V broadcast(T value) {
  V v;
  for (size_t i = 0; i < sizeof v / sizeof value; ++i) v[i] = value;
  return v;
}

template <typename V>
GSC_HD void store_vector(void *p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}

/// An intrinsic on pairs of lanes, because GCC 12 emits a comparison and a blend for `otherwise`.
#if defined(__AVX512F__)
#define GSC_PAIRWISE(name, all_lanes, otherwise) _mm512_maskz_##name(all_lanes, a, b)
#elif defined(__AVX2__)
#define GSC_PAIRWISE(name, all_lanes, otherwise) _mm256_##name(a, b)
#elif defined(__SSE2__)
#define GSC_PAIRWISE(name, all_lanes, otherwise) _mm_##name(a, b)
#else
#define GSC_PAIRWISE(name, all_lanes, otherwise) (otherwise)
#endif
/// The larger or smaller of each pair, b where a is NaN.
GSC_HD FloatVector larger(FloatVector a, FloatVector b) { return GSC_PAIRWISE(max_ps, kAllLanes, a > b ? a : b); }
GSC_HD DoubleVector larger(DoubleVector a, DoubleVector b) { return GSC_PAIRWISE(max_pd, 0xff, a > b ? a : b); }
GSC_HD FloatVector smaller(FloatVector a, FloatVector b) { return GSC_PAIRWISE(min_ps, kAllLanes, a < b ? a : b); }
GSC_HD DoubleVector smaller(DoubleVector a, DoubleVector b) { return GSC_PAIRWISE(min_pd, 0xff, a < b ? a : b); }
#undef GSC_PAIRWISE

GSC_HD Int16Vector larger(Int16Vector a, Int16Vector b) { return a > b ? a : b; }
GSC_HD Int16Vector smaller(Int16Vector a, Int16Vector b) { return a < b ? a : b; }
GSC_HD Int32Vector larger(Int32Vector a, Int32Vector b) { return a > b ? a : b; }
GSC_HD Int32Vector smaller(Int32Vector a, Int32Vector b) { return a < b ? a : b; }

#if defined(__AVX512F__)
/// The next eight elements as double.
GSC_HD __m512d widen_to_doubles(const float *p, Fp32) { return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(p)); }
GSC_HD __m512d widen_to_doubles(const uint16_t *p, Fp16) {
  return _mm512_maskz_cvtps_pd(0xff, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
}
GSC_HD __m512d widen_to_doubles(const uint16_t *p, Bf16) {
  // Each word into the upper half of a lane, in one instruction.
  const __m256i upper = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7,  //
                                         -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
  const __m256i words = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
  return _mm512_maskz_cvtps_pd(0xff, _mm256_castsi256_ps(_mm256_shuffle_epi8(words, upper)));
}
#elif defined(__AVX2__)
/// The next four elements as double.
GSC_HD __m256d widen_to_doubles(const float *p, Fp32) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
GSC_HD __m256d widen_to_doubles(const uint16_t *p, Fp16) {
  return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
}
GSC_HD __m256d widen_to_doubles(const uint16_t *p, Bf16) {
  const __m128i upper = _mm_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7);
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
  return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_shuffle_epi8(words, upper)));
}
#endif

/// 16-bit elements, zero-extended to 32-bit lanes. Intrinsics, because GCC 12 splits the conversion.
GSC_HD Int32Vector widen_bits(const uint16_t *p) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
  return reinterpret_cast<Int32Vector>(_mm512_maskz_cvtepu16_epi32(kAllLanes, halves));
#elif defined(__AVX2__)
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
  return reinterpret_cast<Int32Vector>(_mm256_cvtepu16_epi32(halves));
#elif defined(__SSE2__)
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
  return reinterpret_cast<Int32Vector>(_mm_unpacklo_epi16(halves, _mm_setzero_si128()));
#else
  return __builtin_convertvector(load_vector<HalfVector>(p), Int32Vector);
#endif
}

/// 16-bit elements, sign-extended to 32-bit lanes.
GSC_HD Int32Vector widen_signed(const int16_t *p) {
#if defined(__AVX512F__)
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
  return reinterpret_cast<Int32Vector>(_mm512_maskz_cvtepi16_epi32(kAllLanes, halves));
#elif defined(__AVX2__)
  return reinterpret_cast<Int32Vector>(_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
#else
  return widen_bits(reinterpret_cast<const uint16_t *>(p)) << 16 >> 16;
#endif
}

/// Bytes, zero-extended to 32-bit lanes.
GSC_HD Int32Vector widen_bytes(const uint8_t *p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
  return reinterpret_cast<Int32Vector>(_mm512_maskz_cvtepu8_epi32(kAllLanes, bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
  return reinterpret_cast<Int32Vector>(_mm256_cvtepu8_epi32(bytes));
#elif defined(__SSE2__)
  const __m128i bytes = _mm_unpacklo_epi8(_mm_loadu_si32(p), _mm_setzero_si128());
  return reinterpret_cast<Int32Vector>(_mm_unpacklo_epi16(bytes, _mm_setzero_si128()));
#else
  return __builtin_convertvector(load_vector<ByteVector>(p), Int32Vector);
#endif
}

/// The lower 8 bits of each lane.
GSC_HD auto lower_bytes(Uint32Vector lanes) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtepi32_epi8(kAllLanes, reinterpret_cast<__m512i>(lanes));
#elif defined(__AVX2__)
  const __m256i first = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                         0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i bytes = _mm256_shuffle_epi8(reinterpret_cast<__m256i>(lanes), first);
  const __m256i joined = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 1, 1, 1, 1, 1));
  return _mm_cvtsi128_si64(_mm256_castsi256_si128(joined));
#elif defined(__SSE2__)
  const __m128i words = _mm_packs_epi32(reinterpret_cast<__m128i>(lanes & 0xffU), _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
#else
  return __builtin_convertvector(lanes, ByteVector);
#endif
}

/// bf16 elements as fp32, NaN as it is.
GSC_HD FloatVector bf16_as_fp32(const uint16_t *p) {
#if defined(__AVX512F__)
  // Each word into the upper half of a lane, in one instruction.
  const __m512i upper = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0,  //
                                         7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
  const __m512i words = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
  return reinterpret_cast<FloatVector>(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, upper, words));
#else
  return reinterpret_cast<FloatVector>(widen_bits(p) << 16);
#endif
}

/// The upper 16 bits of each lane.
#if defined(__AVX512F__)
GSC_HD __m256i upper_halves(Uint32Vector lanes) {
  const __m512i upper = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                         31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  const __m512i words = _mm512_maskz_permutexvar_epi16(0xffffffff, upper, reinterpret_cast<__m512i>(lanes));
  return _mm512_maskz_extracti64x4_epi64(0xf, words, 0);
}
#elif defined(__AVX2__)
GSC_HD __m128i upper_halves(Uint32Vector lanes) {
  const auto v = reinterpret_cast<__m256i>(reinterpret_cast<Int32Vector>(lanes) >> 16);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packs_epi32(v, v), 0x08));
}
#else
GSC_HD HalfVector upper_halves(Uint32Vector lanes) {
#if defined(__SSE2__)
  // Shifted with the sign, because SSE2 packs signed only.
  const auto v = reinterpret_cast<__m128i>(reinterpret_cast<Int32Vector>(lanes) >> 16);
  HalfVector upper;
  _mm_storel_epi64(reinterpret_cast<__m128i *>(&upper), _mm_packs_epi32(v, v));
  return upper;
#else
  return __builtin_convertvector(lanes >> 16, HalfVector);
#endif
}
#endif

/// The lower 16 bits of each lane.
GSC_HD auto lower_halves(Uint32Vector lanes) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtepi32_epi16(kAllLanes, reinterpret_cast<__m512i>(lanes));
#elif defined(__AVX2__)
  const auto v = reinterpret_cast<__m256i>(lanes & 0xffffU);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08));
#else
  return upper_halves(lanes << 16);
#endif
}

/// The products of the lower halves of 64-bit lanes with `factor`. Intrinsics, because GCC 12 multiplies 64 bits.
GSC_HD Uint64Vector multiply_lower(Uint64Vector v, uint32_t factor) {
#if defined(__AVX512F__)
  const __m512i factors = _mm512_set1_epi32(static_cast<int>(factor));
  return reinterpret_cast<Uint64Vector>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(v), factors));
#elif defined(__AVX2__)
  const __m256i factors = _mm256_set1_epi32(static_cast<int>(factor));
  return reinterpret_cast<Uint64Vector>(_mm256_mul_epu32(reinterpret_cast<__m256i>(v), factors));
#elif defined(__SSE2__)
  const __m128i factors = _mm_set1_epi32(static_cast<int>(factor));
  return reinterpret_cast<Uint64Vector>(_mm_mul_epu32(reinterpret_cast<__m128i>(v), factors));
#else
  return (v & 0xffffffffU) * uint64_t{factor};
#endif
}

/// The largest lane, in all lanes.
GSC_HD Int32Vector largest_in_all(Int32Vector v) {
#if defined(__AVX512F__)
  const auto with = [&](__m512i other) { v = larger(v, reinterpret_cast<Int32Vector>(other)); };
  with(_mm512_maskz_shuffle_i64x2(0xff, reinterpret_cast<__m512i>(v), reinterpret_cast<__m512i>(v), 0x4e));
  with(_mm512_maskz_shuffle_i64x2(0xff, reinterpret_cast<__m512i>(v), reinterpret_cast<__m512i>(v), 0xb1));
  with(_mm512_maskz_shuffle_epi32(kAllLanes, reinterpret_cast<__m512i>(v), _MM_PERM_BADC));
  with(_mm512_maskz_shuffle_epi32(kAllLanes, reinterpret_cast<__m512i>(v), _MM_PERM_CDAB));
#elif defined(__AVX2__)
  const auto with = [&](__m256i other) { v = larger(v, reinterpret_cast<Int32Vector>(other)); };
  with(_mm256_permute4x64_epi64(reinterpret_cast<__m256i>(v), 0x4e));
  with(_mm256_shuffle_epi32(reinterpret_cast<__m256i>(v), 0x4e));
  with(_mm256_shuffle_epi32(reinterpret_cast<__m256i>(v), 0xb1));
#else
  int32_t largest = v[0];
  for (int i = 1; i < kVectorBytes / 4; ++i) largest = largest > v[i] ? largest : v[i];
  v = Int32Vector{} + largest;
#endif
  return v;
}

/// Lane 0 or 1, by Which, of each two 64-bit lanes of a, each followed by b's.
template <int Which>
GSC_HD Uint64Vector interleaved(Uint64Vector a, Uint64Vector b) {
#if defined(__AVX512F__)
  const auto x = reinterpret_cast<__m512i>(a), y = reinterpret_cast<__m512i>(b);
  return reinterpret_cast<Uint64Vector>(Which == 0 ? _mm512_maskz_unpacklo_epi64(0xff, x, y)
                                                   : _mm512_maskz_unpackhi_epi64(0xff, x, y));
#elif defined(__AVX2__)
  const auto x = reinterpret_cast<__m256i>(a), y = reinterpret_cast<__m256i>(b);
  return reinterpret_cast<Uint64Vector>(Which == 0 ? _mm256_unpacklo_epi64(x, y) : _mm256_unpackhi_epi64(x, y));
#else
  Uint64Vector v = a;
  v[0] = a[Which];
  v[1] = b[Which];
  return v;
#endif
}

/// Magnitudes of the next vector of elements of dtype D, in its arithmetic type. Generic; the specialisations below are
/// faster.
template <typename D>
struct Magnitudes {
  using Vector = FloatVector;
  using Bits = int32_t;
  GSC_HD static Vector load(const typename D::Stored *p) {
    Vector v;
    for (int i = 0; i < static_cast<int>(sizeof v / sizeof(float)); ++i) v[i] = __builtin_fabsf(D::widen(p[i]));
    return v;
  }
};

template <>
struct Magnitudes<Fp16> {
  using Vector = FloatVector;
  using Bits = int32_t;
  GSC_HD static Vector load(const uint16_t *p) {
#if defined(__AVX512F__)
    const __m512 value = widen_halves(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    return reinterpret_cast<Vector>(reinterpret_cast<Int32Vector>(value) & 0x7fffffff);
#elif defined(__F16C__)
    const __m256 value = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    return reinterpret_cast<Vector>(reinterpret_cast<Int32Vector>(value) & 0x7fffffff);
#elif defined(__aarch64__)
    return reinterpret_cast<Vector>(reinterpret_cast<Int32Vector>(widen_halves(p)) & 0x7fffffff);
#else
    // As fp16_to_fp32, but without the sign and without quieting NaN.
    const Int32Vector bits = widen_bits(p) & 0x7fff;
    const Int32Vector normal = (bits << 13) + 0x38000000 + ((bits >= 0x7c00) & 0x38000000);
    const auto subnormal = reinterpret_cast<Int32Vector>(__builtin_convertvector(bits, FloatVector) * 0x1p-24F);
    return reinterpret_cast<Vector>(bits < 0x0400 ? subnormal : normal);
#endif
  }
};

template <>
struct Magnitudes<Bf16> {
  using Vector = FloatVector;
  using Bits = int32_t;
  GSC_HD static Vector load(const uint16_t *p) { return reinterpret_cast<Vector>((widen_bits(p) & 0x7fff) << 16); }
};

template <>
struct Magnitudes<Fp32> {
  using Vector = FloatVector;
  using Bits = int32_t;
  GSC_HD static Vector load(const float *p) {
    return reinterpret_cast<Vector>(load_vector<Int32Vector>(p) & 0x7fffffff);
  }
};

template <>
struct Magnitudes<Fp64> {
  using Vector = DoubleVector;
  using Bits = int64_t;
  GSC_HD static Vector load(const double *p) {
    return reinterpret_cast<Vector>(load_vector<Int64Vector>(p) & 0x7fffffffffffffff);
  }
};

/// A number that a lambda gets as a parameter and that the compiler knows.
template <int N>
struct Constant {
  GSC_HD constexpr operator int() const { return N; }  // NOLINT(google-explicit-constructor)
};

inline constexpr int kCacheLine = 64;
inline constexpr float kInfinity = __builtin_inff();

GSC_HD int min_int(int64_t a, int b) { return a < b ? static_cast<int>(a) : b; }

GSC_HD const char *at(const void *base, int64_t bytes) { return static_cast<const char *>(base) + bytes; }
GSC_HD char *at(void *base, int64_t bytes) { return static_cast<char *>(base) + bytes; }

/// Elements before the first that is aligned to a cache line.
GSC_HD int64_t misaligned_elements(const void *p, int64_t element_bytes) {
  const auto over = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) % kCacheLine);
  return over == 0 ? 0 : (kCacheLine - over) / element_bytes;
}

/// Prefetches the cache lines of [p + distance, p + distance + bytes). Addresses past the end of a buffer are harmless.
GSC_HD void prefetch(const void *p, int64_t distance, int64_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(distance);
  for (int64_t b = 0; b < bytes; b += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void *>(first + static_cast<uintptr_t>(b)));
  }
}

/// Non-temporal store of a vector; `p` is aligned to the vector's size.
template <typename V>
GSC_HD void stream_vector(void *p, V v) {
#if defined(__AVX512F__)
  if constexpr (sizeof v == 64) return _mm512_stream_si512(static_cast<__m512i *>(p), __builtin_bit_cast(__m512i, v));
#endif
#if defined(__AVX__)
  if constexpr (sizeof v == 32) return _mm256_stream_si256(static_cast<__m256i *>(p), __builtin_bit_cast(__m256i, v));
#endif
#if defined(__SSE2__)
  if constexpr (sizeof v == 16) return _mm_stream_si128(static_cast<__m128i *>(p), __builtin_bit_cast(__m128i, v));
#endif
#if defined(__SSE2__) && defined(__x86_64__)
  if constexpr (sizeof v == 8) return _mm_stream_si64(static_cast<long long *>(p), __builtin_bit_cast(long long, v));
#endif
  store_vector(p, v);
}

/// Copy with non-temporal stores. `dst` is aligned to a cache line.
GSC_HD void stream_copy(void *dst, const void *src, int64_t bytes) {
  int64_t done = 0;
  for (; done + kVectorBytes <= bytes; done += kVectorBytes) {
    stream_vector(at(dst, done), load_vector<Int32Vector>(at(src, done)));
  }
  std::memcpy(at(dst, done), at(src, done), bytes - done);
}

/// Orders streamed stores before anything that follows, such as signalling another thread.
GSC_HD void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
