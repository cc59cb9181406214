// SPDX-License-Identifier: Apache-2.0
// Conversions between the tensor dtypes and the two arithmetic types, one value at a time and in blocks. All round once,
// to nearest even, and turn a signalling NaN into a quiet one with the top of its payload kept, as x86 hardware does:
// whether a block goes through F16C or through the branch-free integer code, the bits are the same.
// Everything here is static or always inlined, because kernels.cpp compiles it for several instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/rules/hd.h"
#include "gradscaler/gradscaler.h"

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace gsc::cpu {

/// The largest block: small enough that the handful of blocks a kernel works on stays in the L1 cache.
inline constexpr int kBlock = 256;

GSC_HD uint32_t to_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
GSC_HD uint64_t to_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
GSC_HD float from_bits(uint32_t u) { return __builtin_bit_cast(float, u); }
GSC_HD double from_bits(uint64_t u) { return __builtin_bit_cast(double, u); }

/// Bytes of one element; 8 for anything that is not a smaller dtype.
GSC_HD int64_t dtype_bytes(int32_t dtype) {
  return dtype == GSC_FP16 || dtype == GSC_BF16 ? 2 : (dtype == GSC_FP32 ? 4 : 8);
}

// Magnitudes are compared as signed integers throughout: SSE2 and AVX2 have no unsigned comparison.

GSC_HD float fp16_to_fp32(uint16_t half) {
  const int32_t magnitude = half & 0x7fff;
  // Rebias the exponent, twice for inf and NaN; subnormals are small integers times 2^-24.
  uint32_t result = (static_cast<uint32_t>(magnitude) << 13) + 0x38000000U;
  result += magnitude >= 0x7c00 ? 0x38000000U : 0U;
  result |= magnitude > 0x7c00 ? 0x00400000U : 0U;
  const uint32_t subnormal = to_bits(static_cast<float>(magnitude) * 0x1p-24F);
  return from_bits((magnitude < 0x0400 ? subnormal : result) | static_cast<uint32_t>(half & 0x8000) << 16);
}

GSC_HD uint16_t fp32_to_fp16(float x) {
  const uint32_t bits = to_bits(x);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffffU);
  const uint32_t odd = (bits >> 13) & 1U;
  // Rebias by -112 and add half a unit in the last place, less one if that is even; a carry reaches the exponent.
  const uint32_t normal = (static_cast<uint32_t>(magnitude) + 0xc8000fffU + odd) >> 13;
  // Next to 0.5 the spacing of fp32 is that of fp16's subnormals, so the addition does the rounding.
  const uint32_t subnormal = to_bits(from_bits(static_cast<uint32_t>(magnitude)) + 0.5F) - 0x3f000000U;
  const uint32_t nan = 0x7e00U | ((bits >> 13) & 0x03ffU);
  const uint32_t special = magnitude > 0x7f800000 ? nan : 0x7c00U;
  uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
  result = magnitude >= 0x47800000 ? special : result;
  return static_cast<uint16_t>(result | ((bits >> 16) & 0x8000U));
}

GSC_HD float bf16_to_fp32(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  const float x = from_bits(bits);
  return from_bits(bits | (x != x ? 0x00400000U : 0U));
}

GSC_HD uint16_t fp32_to_bf16(float x) {
  const uint32_t bits = to_bits(x);
  const uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<uint16_t>((x != x ? bits | 0x00400000U : rounded) >> 16);
}

/// Rounds to fp32 so that a second rounding to 16 bits gives what a single one would: towards zero, with the last bit
/// set if anything was lost. fp32 has more than two bits to spare over either 16-bit format, subnormals included.
GSC_HD float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  uint32_t bits = to_bits(nearest);
  bits -= __builtin_fabs(back) > __builtin_fabs(x) ? 1U : 0U;
  bits |= back < x || back > x ? 1U : 0U;
  return from_bits(bits);
}

GSC_HD uint16_t fp64_to_fp16(double x) { return fp32_to_fp16(round_to_odd(x)); }
GSC_HD uint16_t fp64_to_bf16(double x) { return fp32_to_bf16(round_to_odd(x)); }

#if defined(__AVX512F__)
constexpr __mmask16 kAllLanes = 0xffff;
// The forms with a mask, because GCC 12 warns of an uninitialised variable inside its own unmasked ones.
GSC_HD __m512 widen_halves(__m256i halves) { return _mm512_maskz_cvtph_ps(kAllLanes, halves); }
GSC_HD __m256i narrow_to_halves(__m512 values) {
  return _mm512_maskz_cvtps_ph(kAllLanes, values, _MM_FROUND_TO_NEAREST_INT);
}
#endif

static inline void load_fp16(const uint16_t *__restrict src, float *__restrict dst, int n) {
  int i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(dst + i, widen_halves(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(src + i))));
  }
  if (i < n) {
    const auto mask = static_cast<__mmask16>((1U << (n - i)) - 1U);
    _mm512_mask_storeu_ps(dst + i, mask, widen_halves(_mm256_maskz_loadu_epi16(mask, src + i)));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(src + i))));
  }
  for (; i < n; ++i) dst[i] = _cvtsh_ss(src[i]);
#else
  for (; i < n; ++i) dst[i] = fp16_to_fp32(src[i]);
#endif
}

static inline void store_fp16(uint16_t *__restrict dst, const float *__restrict src, int n) {
  int i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst + i), narrow_to_halves(_mm512_loadu_ps(src + i)));
  }
  if (i < n) {
    const auto mask = static_cast<__mmask16>((1U << (n - i)) - 1U);
    _mm256_mask_storeu_epi16(dst + i, mask, narrow_to_halves(_mm512_maskz_loadu_ps(mask, src + i)));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(dst + i), half);
  }
  for (; i < n; ++i) dst[i] = _cvtss_sh(src[i], _MM_FROUND_TO_NEAREST_INT);
#else
  for (; i < n; ++i) dst[i] = fp32_to_fp16(src[i]);
#endif
}

GSC_HD size_t byte_count(int n, int64_t element_bytes) {
  return static_cast<size_t>(static_cast<unsigned>(n)) * static_cast<size_t>(element_bytes);
}

/// Reads n <= kBlock elements of a dtype other than fp64 as fp32.
[[gnu::noinline, maybe_unused]] static void load_block(int32_t dtype, const void *src, float *__restrict dst, int n) {
  if (dtype == GSC_FP16) {
    load_fp16(static_cast<const uint16_t *>(src), dst, n);
  } else if (dtype == GSC_BF16) {
    const auto *__restrict from = static_cast<const uint16_t *>(src);
    for (int i = 0; i < n; ++i) dst[i] = bf16_to_fp32(from[i]);
  } else {
    std::memcpy(dst, src, byte_count(n, sizeof(float)));
  }
}

/// Reads n <= kBlock elements of any dtype as fp64; exact.
[[gnu::noinline, maybe_unused]] static void load_block(int32_t dtype, const void *src, double *__restrict dst, int n) {
  if (dtype == GSC_FP64) {
    std::memcpy(dst, src, byte_count(n, sizeof(double)));
    return;
  }
  float narrow[kBlock];
  load_block(dtype, src, narrow, n);
  for (int i = 0; i < n; ++i) dst[i] = static_cast<double>(narrow[i]);
}

/// Writes n <= kBlock fp32 values as any dtype.
[[gnu::noinline, maybe_unused]] static void store_block(int32_t dtype, void *dst, const float *__restrict src, int n) {
  if (dtype == GSC_FP16) {
    store_fp16(static_cast<uint16_t *>(dst), src, n);
  } else if (dtype == GSC_BF16) {
    auto *__restrict to = static_cast<uint16_t *>(dst);
    for (int i = 0; i < n; ++i) to[i] = fp32_to_bf16(src[i]);
  } else if (dtype == GSC_FP32) {
    std::memcpy(dst, src, byte_count(n, sizeof(float)));
  } else {
    auto *__restrict to = static_cast<double *>(dst);
    for (int i = 0; i < n; ++i) to[i] = static_cast<double>(src[i]);
  }
}

/// Writes n <= kBlock fp64 values as any dtype.
[[gnu::noinline, maybe_unused]] static void store_block(int32_t dtype, void *dst, const double *__restrict src, int n) {
  if (dtype == GSC_FP64) {
    std::memcpy(dst, src, byte_count(n, sizeof(double)));
  } else if (dtype == GSC_FP32) {
    auto *__restrict to = static_cast<float *>(dst);
    for (int i = 0; i < n; ++i) to[i] = static_cast<float>(src[i]);
  } else {
    float odd[kBlock];
    for (int i = 0; i < n; ++i) odd[i] = round_to_odd(src[i]);
    store_block(dtype, dst, odd, n);
  }
}

}  // namespace gsc::cpu
