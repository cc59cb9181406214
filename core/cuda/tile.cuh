// SPDX-License-Identifier: Apache-2.0
// A tile as a warp reads it: one 16-byte group of every row per lane.
#pragma once

#include "core/cuda/device.cuh"
#include "core/rules/check.h"

namespace gsc::cuda {

/// Magnitudes as signed integers, which order like the values, with NaN above inf.
GSC_DEVICE int32_t magnitude_bits(float x) { return static_cast<int32_t>(to_bits(x) & 0x7fffffffU); }
GSC_DEVICE int64_t magnitude_bits(double x) { return static_cast<int64_t>(to_bits(x) & 0x7fffffffffffffffU); }
GSC_DEVICE float magnitude(int32_t bits) { return from_bits(static_cast<uint32_t>(bits)); }
GSC_DEVICE double magnitude(int64_t bits) { return from_bits(static_cast<uint64_t>(bits)); }

/// The larger of both 16-bit halves, each for itself.
GSC_DEVICE uint32_t max_halves(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint32_t r;
  asm("max.u16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
#else
  const uint32_t low = (a & 0xffffU) > (b & 0xffffU) ? a : b;
  const uint32_t high = a >> 16 > b >> 16 ? a : b;
  return (low & 0xffffU) | (high & 0xffff0000U);
#endif
}

template <typename D>
struct Tile {
  using Value = typename D::Value;
  using Bits = decltype(magnitude_bits(Value{}));
  static constexpr int kSize = sizeof(typename D::Stored);
  static constexpr int kWidth = kGroupBytes / kSize;  ///< elements of a group
  static constexpr int kElements = kTileBytes / kSize;
  static constexpr Bits kInf = kInfinityBits<Value, Bits>;

  const char *data;  ///< first element
  int n;             ///< elements
  int lane;
  int shift;  ///< bytes from the last group-aligned address to data

  GSC_DEVICE static int shift_of(const char *data) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(data) & (kGroupBytes - 1));
  }
  GSC_DEVICE int rows() const { return (n * kSize + kRowBytes - 1) / kRowBytes; }
  /// Number of existing elements in this lane's group of `row`.
  GSC_DEVICE int valid(int row) const {
    const int left = n - (row * kGroups + lane) * kWidth;
    return left < 0 ? 0 : (left < kWidth ? left : kWidth);
  }
  GSC_DEVICE const char *group(int row) const { return data + row * kRowBytes + lane * kGroupBytes; }

  /// 16 bytes from an element on, one by one; what lies outside the tile is 0, and is not read.
  GSC_DEVICE Words<16> gather(const char *p) const {
    const char *end = data + n * kSize;
    Words<16> g = {};
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const char *q = p + k * kSize;
      if (q < data || q >= end) continue;
      if constexpr (kSize < 4) {
        const Words<kSize> one = load_words<kSize>(q);
        g.w[k / (4 / kSize)] |= one.w[0] << (8 * kSize * (k % (4 / kSize)));
      } else if constexpr (kSize == 4) {
        g.w[k] = *reinterpret_cast<const uint32_t *>(q);
      } else {
        const uint64_t bits = *reinterpret_cast<const uint64_t *>(q);
        g.w[2 * k] = static_cast<uint32_t>(bits);
        g.w[2 * k + 1] = static_cast<uint32_t>(bits >> 32);
      }
    }
    return g;
  }

  /// This lane's group of a row; elements that do not exist are 0.
  GSC_DEVICE Words<16> load(int row) const {
    return shift == 0 && valid(row) == kWidth ? load_words<16>(group(row)) : gather(group(row));
  }

  /// 16 aligned bytes.
  template <bool Once>
  GSC_DEVICE Words<16> load_block(const char *p) const {
    if (p < data || p + kGroupBytes > data + n * kSize) return gather(p);
    return Once ? load_once(p) : load_words<16>(p);
  }

  /// This lane's groups of `Rows` rows from `row` on; elements that do not exist are 0. Called by all lanes of a warp.
  template <bool Once, int Rows>
  GSC_DEVICE void load_rows(int row, Words<16> (&g)[Rows]) const {
#pragma unroll
    for (int r = 0; r < Rows; ++r) g[r] = load_block<Once>(group(row + r));
  }

  /// The same of misaligned data, which begins in word `First` of an aligned block. Still read in aligned blocks: the
  /// rest of a group is in the next lane's block, for the last lane in the first block of the next row.
  template <bool Once, int First, int Rows>
  GSC_DEVICE void load_misaligned_rows(int row, Words<16> (&g)[Rows]) const {
    // Only small elements can begin inside a word, and reach into one more.
    constexpr int kBeyond = kSize < 4 ? First + 1 : First;
#pragma unroll
    for (int r = 0; r < Rows; ++r) g[r] = load_block<Once>(group(row + r) - shift);
    Words<16> last = {};
    if (lane == 0) last = load_block<Once>(group(row + Rows) - shift);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const Words<16> &below = r + 1 < Rows ? g[r + 1 < Rows ? r + 1 : r] : last;
      uint32_t w[4 + kBeyond];
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = g[r].w[i];
#pragma unroll
      for (int i = 0; i < kBeyond; ++i) {
        w[4 + i] = __shfl_sync(kFullMask, lane == 0 ? below.w[i] : g[r].w[i], (lane + 1) % kGroups);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        g[r].w[i] = w[First + i];
        if constexpr (kSize < 4) {
          g[r].w[i] =
              static_cast<uint32_t>((static_cast<uint64_t>(w[First + i + 1]) << 32 | w[First + i]) >> (shift % 4 * 8));
        }
      }
    }
  }
};

}  // namespace gsc::cuda
