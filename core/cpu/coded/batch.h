// SPDX-License-Identifier: Apache-2.0
// A batch: as many elements as a vector has bytes, in registers. 16-bit elements are two vectors of words. fp32 elements
// are four vectors in the order that unpacking words gives, which costs one instruction a vector either way: each 128
// bits of words k become four lanes of vector 2k, then four of vector 2k + 1. Included by batch_codes.h.
#pragma once

#include "core/cpu/coded/cursor.h"

#if defined(__AVX2__)
namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

constexpr int kBatch = kVectorBytes;
constexpr int kBatchVectors = 4;
constexpr int kBatchGroups = kBatch / kStateGroup;
using BatchLane = VectorLanes;
using WordVector [[gnu::vector_size(kVectorBytes)]] = uint16_t;
using BatchFloats = FloatVector[kBatchVectors];
using BatchLanes = Uint32Vector[kBatchVectors];
using BatchWords = WordVector[2];
#if defined(__AVX512F__)
using Register = __m512i;
#define GSC_BY_WIDTH(name, ...) _mm512_##name(__VA_ARGS__)
#else
using Register = __m256i;
#define GSC_BY_WIDTH(name, ...) _mm256_##name(__VA_ARGS__)
#endif

template <typename To, typename From>
GSC_HD To as(From x) {
  return __builtin_bit_cast(To, x);
}
GSC_HD WordVector all_words(int value) { return WordVector{} + static_cast<uint16_t>(value); }

/// f(k) for the vectors of a batch.
template <typename F>
GSC_HD void for_vectors(const F &f) {
#pragma GCC unroll 4
  for (int k = 0; k < kBatchVectors; ++k) f(k);
}

/// BatchLane of `upper` << 16 | `lower`: of vector 2k if High is 0, of vector 2k + 1 if it is 1.
template <int High>
GSC_HD Uint32Vector unpacked(WordVector lower, WordVector upper) {
  const auto a = as<Register>(lower), b = as<Register>(upper);
  return as<Uint32Vector>(High == 0 ? GSC_BY_WIDTH(unpacklo_epi16, a, b) : GSC_BY_WIDTH(unpackhi_epi16, a, b));
}
GSC_HD void unpack(WordVector lower, WordVector upper, FloatVector *out) {
  out[0] = BatchLane::value(unpacked<0>(lower, upper));
  out[1] = BatchLane::value(unpacked<1>(lower, upper));
}

/// The upper or lower halves of the lanes of vectors 2k and 2k + 1, as words k.
GSC_HD WordVector upper_words(Uint32Vector even, Uint32Vector odd) {
#if defined(__AVX512F__)
  const __m512i order = _mm512_set_epi16(63, 61, 59, 57, 31, 29, 27, 25, 55, 53, 51, 49, 23, 21, 19, 17,  //
                                         47, 45, 43, 41, 15, 13, 11, 9, 39, 37, 35, 33, 7, 5, 3, 1);
  return as<WordVector>(_mm512_permutex2var_epi16(as<__m512i>(even), order, as<__m512i>(odd)));
#else
  return as<WordVector>(_mm256_packus_epi32(as<__m256i>(even >> 16), as<__m256i>(odd >> 16)));
#endif
}
GSC_HD WordVector lower_words(Uint32Vector even, Uint32Vector odd) {
#if defined(__AVX512F__)
  const __m512i order = _mm512_set_epi16(62, 60, 58, 56, 30, 28, 26, 24, 54, 52, 50, 48, 22, 20, 18, 16,  //
                                         46, 44, 42, 40, 14, 12, 10, 8, 38, 36, 34, 32, 6, 4, 2, 0);
  return as<WordVector>(_mm512_permutex2var_epi16(as<__m512i>(even), order, as<__m512i>(odd)));
#else
  return as<WordVector>(_mm256_packus_epi32(as<__m256i>(even & 0xffffU), as<__m256i>(odd & 0xffffU)));
#endif
}

/// Words k of a batch from p on; bytes are extended, those with a sign by it.
GSC_HD WordVector load_words(const uint16_t *p, int k) { return load_vector<WordVector>(p + k * kBatch / 2); }
GSC_HD WordVector load_words(const uint8_t *p, int k) {
#if defined(__AVX512F__)
  return as<WordVector>(_mm512_maskz_cvtepu8_epi16(~0U, load_vector<__m256i>(p + k * kBatch / 2)));
#else
  return as<WordVector>(_mm256_cvtepu8_epi16(load_vector<__m128i>(p + k * kBatch / 2)));
#endif
}
GSC_HD WordVector load_words(const int8_t *p, int k) {
#if defined(__AVX512F__)
  return as<WordVector>(_mm512_maskz_cvtepi8_epi16(~0U, load_vector<__m256i>(p + k * kBatch / 2)));
#else
  return as<WordVector>(_mm256_cvtepi8_epi16(load_vector<__m128i>(p + k * kBatch / 2)));
#endif
}
GSC_HD void store_words(uint16_t *p, const BatchWords &x) {
  for (int k = 0; k < 2; ++k) store_vector(p + k * kBatch / 2, x[k]);
}
/// BatchWords below 256, as bytes.
GSC_HD void store_words(uint8_t *p, const BatchWords &x) {
#if defined(__AVX512F__)
  for (int k = 0; k < 2; ++k) store_vector(p + k * kBatch / 2, _mm512_maskz_cvtepi16_epi8(~0U, as<__m512i>(x[k])));
#else
  const __m256i bytes = _mm256_packus_epi16(as<__m256i>(x[0]), as<__m256i>(x[1]));
  store_vector(p, _mm256_permute4x64_epi64(bytes, 0xd8));
#endif
}

/// fp32 elements, 2 * kBatch / 4 of them, from their own order into that of a batch, and back.
GSC_HD void load_floats(const float *p, FloatVector *out) {
  const auto a = load_vector<FloatVector>(p), b = load_vector<FloatVector>(p + kBatch / 4);
#if defined(__AVX512F__)
  out[0] = _mm512_maskz_shuffle_f32x4(kAllLanes, a, b, 0x88);
  out[1] = _mm512_maskz_shuffle_f32x4(kAllLanes, a, b, 0xdd);
#else
  out[0] = _mm256_permute2f128_ps(a, b, 0x20);
  out[1] = _mm256_permute2f128_ps(a, b, 0x31);
#endif
}
GSC_HD void store_floats(float *p, const FloatVector *x) {
#if defined(__AVX512F__)
  const auto a = as<__m512d>(x[0]), b = as<__m512d>(x[1]);
  store_vector(p, _mm512_permutex2var_pd(a, _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), b));
  store_vector(p + kBatch / 4, _mm512_permutex2var_pd(a, _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4), b));
#else
  store_vector(p, _mm256_permute2f128_ps(x[0], x[1], 0x20));
  store_vector(p + kBatch / 4, _mm256_permute2f128_ps(x[0], x[1], 0x31));
#endif
}

/// BatchWords of fp16 as vectors `out[0]` and `out[1]`.
GSC_HD void widen_fp16(WordVector x, FloatVector *out) {
#if defined(__AVX512F__)
  const __m512i halves = _mm512_maskz_permutexvar_epi64(0xff, _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), as<__m512i>(x));
  out[0] = _mm512_maskz_cvtph_ps(kAllLanes, _mm512_maskz_extracti64x4_epi64(0xf, halves, 0));
  out[1] = _mm512_maskz_cvtph_ps(kAllLanes, _mm512_maskz_extracti64x4_epi64(0xf, halves, 1));
#else
  const __m256i halves = _mm256_permute4x64_epi64(as<__m256i>(x), 0xd8);
  out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
#endif
}

/// a - b, not below 0.
GSC_HD WordVector positive_difference(WordVector a, WordVector b) {
  return as<WordVector>(GSC_BY_WIDTH(subs_epu16, as<Register>(a), as<Register>(b)));
}
GSC_HD WordVector larger_word(WordVector a, WordVector b) {
  return as<WordVector>(GSC_BY_WIDTH(max_epu16, as<Register>(a), as<Register>(b)));
}
GSC_HD WordVector smaller_word(WordVector a, WordVector b) {
  return as<WordVector>(GSC_BY_WIDTH(min_epu16, as<Register>(a), as<Register>(b)));
}
GSC_HD WordVector larger_signed(WordVector a, WordVector b) {
  return as<WordVector>(GSC_BY_WIDTH(max_epi16, as<Register>(a), as<Register>(b)));
}
/// Lanes of vectors 2k and 2k + 1 as words: 0 for those below it, of those above 65535 the largest.
GSC_HD WordVector positive_words(Int32Vector even, Int32Vector odd) {
  return as<WordVector>(GSC_BY_WIDTH(packus_epi32, as<Register>(even), as<Register>(odd)));
}
/// Lanes of vectors 2k and 2k + 1 as words, of those that do not fit the first or last: signs and zeros stay.
GSC_HD WordVector saturated_words(Uint32Vector even, Uint32Vector odd) {
  return as<WordVector>(GSC_BY_WIDTH(packs_epi32, as<Register>(even), as<Register>(odd)));
}
/// All lanes shifted by one number of bits.
#if defined(__AVX512F__)
#define GSC_SHIFT(name, mask, x, bits) \
  _mm512_maskz_##name(mask, as<__m512i>(x), _mm_cvtsi32_si128(static_cast<int>(bits)))
#else
#define GSC_SHIFT(name, mask, x, bits) _mm256_##name(as<__m256i>(x), _mm_cvtsi32_si128(static_cast<int>(bits)))
#endif
GSC_HD WordVector shift_left(WordVector x, uint32_t bits) { return as<WordVector>(GSC_SHIFT(sll_epi16, ~0U, x, bits)); }
GSC_HD WordVector shift_right(WordVector x, uint32_t bits) {
  return as<WordVector>(GSC_SHIFT(srl_epi16, ~0U, x, bits));
}
GSC_HD Uint32Vector shift_left(Uint32Vector x, uint32_t bits) {
  return as<Uint32Vector>(GSC_SHIFT(sll_epi32, kAllLanes, x, bits));
}
#undef GSC_SHIFT

/// Whether anything in a batch needs the long way.
class Special {
 public:
  GSC_HD void if_equal_bytes(Uint32Vector a, Uint32Vector b) {
#if defined(__AVX512F__)
    any_ |= _mm512_cmpeq_epi8_mask(as<__m512i>(a), as<__m512i>(b));
#else
    any_ |= as<Uint32Vector>(_mm256_cmpeq_epi8(as<__m256i>(a), as<__m256i>(b)));
#endif
  }
  GSC_HD void if_equal(WordVector a, WordVector b) {
#if defined(__AVX512F__)
    any_ |= _mm512_cmpeq_epi16_mask(as<__m512i>(a), as<__m512i>(b));
#else
    any_ |= as<Uint32Vector>(_mm256_cmpeq_epi16(as<__m256i>(a), as<__m256i>(b)));
#endif
  }
  GSC_HD void if_nan(FloatVector a, FloatVector b) {
#if defined(__AVX512F__)
    any_ |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
#else
    any_ |= as<Uint32Vector>(_mm256_cmp_ps(a, b, _CMP_UNORD_Q));
#endif
  }
  GSC_HD bool any() const {
#if defined(__AVX512F__)
    return any_ != 0;
#else
    return _mm256_testz_si256(as<__m256i>(any_), as<__m256i>(any_)) == 0;
#endif
  }

 private:
#if defined(__AVX512F__)
  uint64_t any_ = 0;
#else
  Uint32Vector any_{};
#endif
};

/// The largest lanes of each group of `a` and of `b`: four lanes of a's first group, of its second if there is one,
/// then of b's.
GSC_HD Uint32Vector largest_of_groups(const BatchLanes &a, const BatchLanes &b) {
  const auto pair = [](const BatchLanes &x, int k) { return greatest(x[k], x[k + 1]); };
#if defined(__AVX512F__)
  const auto fold = [](Uint32Vector x, Uint32Vector y) {
    const auto i = as<__m512i>(x), j = as<__m512i>(y);
    return greatest(as<Uint32Vector>(_mm512_maskz_shuffle_i32x4(kAllLanes, i, j, 0x88)),
                    as<Uint32Vector>(_mm512_maskz_shuffle_i32x4(kAllLanes, i, j, 0xdd)));
  };
  Uint32Vector v = fold(fold(pair(a, 0), pair(a, 2)), fold(pair(b, 0), pair(b, 2)));
  v = greatest(v, as<Uint32Vector>(_mm512_maskz_shuffle_epi32(kAllLanes, as<__m512i>(v), _MM_PERM_BADC)));
  return greatest(v, as<Uint32Vector>(_mm512_maskz_shuffle_epi32(kAllLanes, as<__m512i>(v), _MM_PERM_CDAB)));
#else
  const auto x = as<__m256i>(greatest(pair(a, 0), pair(a, 2))), y = as<__m256i>(greatest(pair(b, 0), pair(b, 2)));
  Uint32Vector v = greatest(as<Uint32Vector>(_mm256_permute2x128_si256(x, y, 0x20)),
                            as<Uint32Vector>(_mm256_permute2x128_si256(x, y, 0x31)));
  v = greatest(v, as<Uint32Vector>(_mm256_shuffle_epi32(as<__m256i>(v), 0x4e)));
  return greatest(v, as<Uint32Vector>(_mm256_shuffle_epi32(as<__m256i>(v), 0xb1)));
#endif
}

/// Batches whose random bits are drawn together.
constexpr int kDrawn = drawn(kMaxChains) / kBatch;
struct DrawnHalves {
  alignas(kVectorBytes) uint16_t of[kDrawn * kBatchGroups * kPhiloxHalves];
};

struct HalfFactors {
  uint16_t of[kPhiloxElements];
  constexpr HalfFactors() : of() {
    for (int i = 0; i < kPhiloxElements; ++i) of[i] = static_cast<uint16_t>(half_factor(i / kPhiloxHalves));
  }
};
alignas(kVectorBytes) constexpr HalfFactors kHalfFactors;

/// 16 random bits for each lane of a batch.
class BatchDraw {
 public:
  /// Those of batch n.
  GSC_HD BatchDraw(const DrawnHalves &drawn, int n) {
    for (int w = 0; w < 2; ++w) {
      const auto halves = load_vector<__m128i>(drawn.of + (n * kBatchGroups + w * kBatchGroups / 2) * kPhiloxHalves);
#if defined(__AVX512F__)
      const auto all = as<WordVector>(_mm512_maskz_broadcast_i32x4(kAllLanes, halves));
#else
      const auto all = as<WordVector>(_mm256_broadcastsi128_si256(halves));
#endif
      words_[w] = all * load_vector<WordVector>(kHalfFactors.of + w * (kBatch / 2 % kPhiloxElements));
    }
  }
  /// For vector k.
  GSC_HD Uint32Vector operator[](int k) const {
    return k % 2 == 0 ? unpacked<0>(words_[k / 2], WordVector{}) : unpacked<1>(words_[k / 2], WordVector{});
  }
  /// For a mean: of vector k's neighbour, whose lanes are kMeanPartner elements away.
  GSC_HD Uint32Vector of_mean(int k) const { return (*this)[k ^ 1]; }

 private:
  static_assert(kMeanPartner == 4);

  WordVector words_[2];
};

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
#endif
