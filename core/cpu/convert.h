// SPDX-License-Identifier: Apache-2.0
// The conversions of core/rules/convert.h in blocks: whether one goes through F16C or through the branch-free integer
// code, the bits are the same.
// Everything here is static or always inlined, because kernels.cpp compiles it for several instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/rules/convert.h"
#include "gradscaler/gradscaler.h"

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace gsc::cpu {

/// The largest block: small enough that the handful of blocks a kernel works on stays in the L1 cache.
inline constexpr int kBlock = 256;

/// Bytes of one element; 8 for anything that is not a smaller dtype.
GSC_HD int64_t dtype_bytes(int32_t dtype) {
  return dtype == GSC_FP16 || dtype == GSC_BF16 ? 2 : (dtype == GSC_FP32 ? 4 : 8);
}

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
