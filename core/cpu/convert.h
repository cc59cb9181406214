// SPDX-License-Identifier: Apache-2.0
// Block conversions for the rules of core/rules/convert.h: instructions and the branch-free integer code give the same
// bits. It is compiled once per instruction set, hence the namespace (kernels.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/cpu/simd.h"
#include "core/rules/dtypes.h"

namespace gsc::cpu {
inline namespace GSC_CPU_TARGET {

/// Largest block: small enough that the few blocks a kernel works on stay in L1.
inline constexpr int kBlock = 256;

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
#elif defined(__aarch64__)
  for (; i + 4 <= n; i += 4) store_vector(dst + i, widen_halves(src + i));
  for (; i < n; ++i) dst[i] = fp16_to_fp32(src[i]);
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
  for (; i < n; ++i) {  // not _cvtss_sh: Clang's is a macro with a compound literal, which is not C++
    const __m128i half = _mm_cvtps_ph(_mm_set_ss(src[i]), _MM_FROUND_TO_NEAREST_INT);
    dst[i] = static_cast<uint16_t>(_mm_extract_epi16(half, 0));
  }
#elif defined(__aarch64__)
  for (; i + 4 <= n; i += 4) store_vector(dst + i, narrow_to_halves(load_vector<FloatVector>(src + i)));
  for (; i < n; ++i) dst[i] = fp32_to_fp16(src[i]);
#else
  for (; i < n; ++i) dst[i] = fp32_to_fp16(src[i]);
#endif
}

static inline void store_bf16(uint16_t *__restrict dst, const float *__restrict src, int n) {
  int i = 0;
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  for (; i + 4 <= n; i += 4) store_vector(dst + i, narrow_to_bf16(load_vector<FloatVector>(src + i)));
#endif
  for (; i < n; ++i) dst[i] = fp32_to_bf16(src[i]);
}

GSC_HD size_t byte_count(int n, int64_t element_bytes) {
  return static_cast<size_t>(static_cast<unsigned>(n)) * static_cast<size_t>(element_bytes);
}

/// n <= kBlock elements of dtype D to its arithmetic type, and back. Works for every dtype.
template <typename D>
GSC_HD void load_elements(const typename D::Stored *__restrict src, typename D::Value *__restrict dst, int n) {
  if constexpr (std::is_same_v<typename D::Stored, typename D::Value>) {
    std::memcpy(dst, src, byte_count(n, sizeof *dst));
  } else if constexpr (std::is_same_v<D, Fp16>) {
    load_fp16(src, dst, n);
  } else {
    for (int i = 0; i < n; ++i) dst[i] = D::widen(src[i]);
  }
}
template <typename D>
GSC_HD void store_elements(typename D::Stored *__restrict dst, const typename D::Value *__restrict src, int n) {
  if constexpr (std::is_same_v<typename D::Stored, typename D::Value>) {
    std::memcpy(dst, src, byte_count(n, sizeof *dst));
  } else if constexpr (std::is_same_v<D, Fp16>) {
    store_fp16(dst, src, n);
  } else if constexpr (std::is_same_v<D, Bf16>) {
    store_bf16(dst, src, n);
  } else {
    for (int i = 0; i < n; ++i) dst[i] = D::narrow(src[i]);
  }
}

/// Reads n <= kBlock elements of a dtype that is computed in fp32.
[[gnu::noinline, maybe_unused]] static void load_block(int32_t dtype, const void *src, float *__restrict dst, int n) {
  with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    if constexpr (!is_wide(D::kCode)) load_elements<D>(static_cast<const typename D::Stored *>(src), dst, n);
  });
}

/// Reads n <= kBlock elements of any dtype as fp64; exact.
[[gnu::noinline, maybe_unused]] static void load_block(int32_t dtype, const void *src, double *__restrict dst, int n) {
  if (is_wide(dtype)) {
    with_dtype(dtype, [&](auto d) {
      using D = decltype(d);
      if constexpr (is_wide(D::kCode)) load_elements<D>(static_cast<const typename D::Stored *>(src), dst, n);
    });
    return;
  }
  float narrow[kBlock];
  load_block(dtype, src, narrow, n);
  for (int i = 0; i < n; ++i) dst[i] = static_cast<double>(narrow[i]);
}

/// Writes n <= kBlock fp32 values as any dtype.
[[gnu::noinline, maybe_unused]] static void store_block(int32_t dtype, void *dst, const float *__restrict src, int n) {
  with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    auto *__restrict to = static_cast<typename D::Stored *>(dst);
    if constexpr (is_wide(D::kCode)) {
      for (int i = 0; i < n; ++i) to[i] = narrow_to<D>(src[i]);
    } else {
      store_elements<D>(to, src, n);
    }
  });
}

/// Writes n <= kBlock fp64 values as any dtype.
[[gnu::noinline, maybe_unused]] static void store_block(int32_t dtype, void *dst, const double *__restrict src, int n) {
  with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    auto *__restrict to = static_cast<typename D::Stored *>(dst);
    if constexpr (is_wide(D::kCode)) {
      store_elements<D>(to, src, n);
    } else if constexpr (sizeof *to == sizeof(float)) {
      for (int i = 0; i < n; ++i) to[i] = narrow_to<D>(src[i]);
    } else {
      float odd[kBlock];
      for (int i = 0; i < n; ++i) odd[i] = round_to_odd(src[i]);
      store_elements<D>(to, odd, n);
    }
  });
}

}  // namespace GSC_CPU_TARGET
}  // namespace gsc::cpu
