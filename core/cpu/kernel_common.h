// SPDX-License-Identifier: Apache-2.0
// What the kernels share: prefetching, stores past the caches, and the folding of column sums into one number in the
// order that core/reduction.h lays down. Included by kernels.cpp only, once per instruction set; hence the unnamed
// namespace: nothing compiled for one instruction set may be linked into the code of another.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/cpu/convert.h"
#include "core/reduction.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace gsc::cpu {
namespace {

constexpr int kCacheLine = 64;
constexpr float kInfinity = __builtin_inff();

GSC_HD int min_int(int64_t a, int b) { return a < b ? static_cast<int>(a) : b; }

GSC_HD const char *at(const void *base, int64_t bytes) { return static_cast<const char *>(base) + bytes; }
GSC_HD char *at(void *base, int64_t bytes) { return static_cast<char *>(base) + bytes; }

/// Asks for the cache lines of [p + distance, p + distance + bytes). Addresses past the end of a buffer do no harm.
GSC_HD void prefetch(const void *p, int64_t distance, int64_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(distance);
  for (int64_t b = 0; b < bytes; b += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void *>(first + static_cast<uintptr_t>(b)));
  }
}

/// Copies to memory that will not be read soon. `dst` is aligned to a cache line, `src` to 64 bytes.
GSC_HD void stream_copy(void *dst, const void *src, int64_t bytes) {
  int64_t done = 0;
#if defined(__AVX512F__)
  for (; done + 64 <= bytes; done += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i *>(at(dst, done)), _mm512_load_si512(at(src, done)));
  }
#elif defined(__AVX__)
  for (; done + 32 <= bytes; done += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i *>(at(dst, done)),
                        _mm256_load_si256(reinterpret_cast<const __m256i *>(at(src, done))));
  }
#elif defined(__SSE2__)
  for (; done + 16 <= bytes; done += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i *>(at(dst, done)),
                     _mm_load_si128(reinterpret_cast<const __m128i *>(at(src, done))));
  }
#endif
  std::memcpy(at(dst, done), at(src, done), static_cast<size_t>(bytes - done));
}

/// Makes streamed stores visible before anything that follows, such as telling another thread that the work is done.
GSC_HD void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Sums of Groups groups of columns, joined by halving. All counts are known, so that the compiler keeps it in vectors.
template <int Width, int Groups, typename A>
[[gnu::always_inline]] inline double fold_groups(const A *columns) {
  double groups[Groups];
  for (int g = 0; g < Groups; ++g) {
    double sum = static_cast<double>(columns[g * Width]);
    for (int k = 1; k < Width; ++k) sum += static_cast<double>(columns[g * Width + k]);
    groups[g] = sum;
  }
  if constexpr (Groups > 16) {
    for (int g = 0; g < 16; ++g) groups[g] += groups[g + 16];
  }
  if constexpr (Groups > 8) {
    for (int g = 0; g < 8; ++g) groups[g] += groups[g + 8];
  }
  if constexpr (Groups > 4) {
    for (int g = 0; g < 4; ++g) groups[g] += groups[g + 4];
  }
  if constexpr (Groups > 2) {
    for (int g = 0; g < 2; ++g) groups[g] += groups[g + 2];
  }
  return Groups > 1 ? groups[0] + groups[1] : groups[0];
}

/// Joins the column sums of a tile: Width columns of a group left to right in double, then the 32 groups by halving.
/// Columns from `used` on count as zero. Adding zeros changes nothing, so only as many groups as the next power of two
/// are looked at.
template <int Width, typename A>
double fold_columns(A *columns, int used) {
  const int count = (used + Width - 1) / Width;
  const int padded = count > 16 ? 32 : (count > 8 ? 16 : (count > 4 ? 8 : (count > 2 ? 4 : 2)));
  for (int i = used; i < padded * Width; ++i) columns[i] = A(0);
  switch (padded) {
    case 2:
      return fold_groups<Width, 2>(columns);
    case 4:
      return fold_groups<Width, 4>(columns);
    case 8:
      return fold_groups<Width, 8>(columns);
    case 16:
      return fold_groups<Width, 16>(columns);
    default:
      return fold_groups<Width, kGroups>(columns);
  }
}

/// Column sums in double, in reduction.h's order, for values that come in whole rows. Width is the number of columns of
/// a 16-byte group, and with it says how long rows and tiles are.
template <int Width>
class DoubleColumns {
 public:
  static constexpr int kColumns = Width * kGroups;

  /// Adds the squares of the next n values. All calls but the last bring the same power of two of whole rows, at most a
  /// tile.
  template <typename T>
  void add_squares(const T *__restrict values, int n) {
    if (elements_ == 0) std::memset(columns_, 0, sizeof columns_);
    for (int row = 0; row < n; row += kColumns) {
      const int width = min_int(n - row, kColumns);
      for (int i = 0; i < width; ++i) {
        const double x = static_cast<double>(values[row + i]);
        columns_[i] += x * x;
      }
    }
    elements_ += n;
    if (elements_ == kColumns * kRows) fold();
  }

  double total() {
    if (elements_ > 0) fold();
    return total_;
  }

 private:
  void fold() {
    total_ += fold_columns<Width>(columns_, min_int(elements_, kColumns));
    elements_ = 0;
  }

  double columns_[kColumns];
  double total_ = 0.0;
  int elements_ = 0;  ///< of the current tile
};

}  // namespace
}  // namespace gsc::cpu
