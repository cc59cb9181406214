// SPDX-License-Identifier: Apache-2.0
// Prefetching in passes that only read. Hardware prefetchers stop at the end of a page, and one stream of lines does
// not fill a processor's memory requests. dispatch.cpp has the measurements. Included by kernels.cpp only.
#pragma once

#include <type_traits>

#include "core/cpu/kernels.h"
#include "core/cpu/simd.h"
#include "core/rules/reduction.h"

namespace gsc::cpu {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int kSecondLevel = 2;  ///< of __builtin_prefetch: into the second-level cache

/// Prefetches as many bytes as are read, further on.
template <ReadAhead A>
struct Ahead {
  const char *tile;

  /// Before `tile` is read.
  GSC_HD static Ahead of(const void *tile) {
    const Ahead ahead{at(tile, 0)};
    if constexpr (A == ReadAhead::kPageStarts) ahead.start_pages();
    if constexpr (A == ReadAhead::kEightPages) ahead.translate_pages();
    return ahead;
  }

  /// While the next `Bytes` of the tile are read, after `done` of them.
  template <int Bytes>
  GSC_HD void fetch(int64_t done) const {
    constexpr int kFetched = Bytes < kCacheLine ? kCacheLine : Bytes;
    static_assert(kFetched % kCacheLine == 0);
    if (Bytes < kCacheLine && done % kCacheLine != 0) return;
    if constexpr (A == ReadAhead::kNextTile) prefetch(tile + done, kTileBytes, kFetched);
    if constexpr (A == ReadAhead::kEightPages) fetch_in_turn<kFetched>(done);
  }

 private:
  static constexpr uintptr_t kPages = 8;

  /// Four lines of each page of the next tile.
  GSC_HD void start_pages() const {
    constexpr int kLines = 4;
    for (int64_t page = kTileBytes; page < 2 * kTileBytes; page += kPageBytes) {
      for (int k = 0; k < kLines; ++k) __builtin_prefetch(tile + page + k * kCacheLine, 0, kSecondLevel);
    }
  }

  /// A line of each of the next eight pages in turn. Each page is an eighth of itself behind the one before it: while a
  /// page is read, the next one is completed and the eighth begun.
  template <int Bytes>
  GSC_HD void fetch_in_turn(int64_t done) const {
    constexpr uintptr_t kStride = kPageBytes - kPageBytes / kPages;
    constexpr uintptr_t kLines = Bytes / kCacheLine;
    static_assert(kPages % kLines == 0);
    const auto address = reinterpret_cast<uintptr_t>(tile) + static_cast<uintptr_t>(done);
    const uintptr_t line = address % kPageBytes / kCacheLine;
    const uintptr_t turn = line % kPages / kLines * kLines;
    const uintptr_t next = address / kPageBytes * kPageBytes + kPageBytes + kStride;
    const uintptr_t first = next + turn * kStride + line / kPages * kCacheLine;
#pragma GCC unroll 8
    for (uintptr_t k = 0; k < kLines; ++k) {
      __builtin_prefetch(reinterpret_cast<const void *>(first + k * kStride));
    }
  }

  /// Touches the eight pages after those, if the tile begins a group of eight: the processor then translates their
  /// addresses in parallel, not one by one.
  GSC_HD void translate_pages() const {
    constexpr uintptr_t kGroup = kPages * kPageBytes;
    const auto address = reinterpret_cast<uintptr_t>(tile);
    if (address % kGroup >= kTileBytes) return;
    const uintptr_t first = address / kPageBytes * kPageBytes + kGroup + kPageBytes;
    for (uintptr_t page = first; page < first + kGroup; page += kPageBytes) {
      __builtin_prefetch(reinterpret_cast<const void *>(page), 0, kSecondLevel);
    }
  }
};

/// Calls f(constant A) for a span of `bytes`.
template <typename F>
void with_read_ahead(ReadAhead ahead, int64_t bytes, const F &f) {
  // Eight streams are not worth starting for a short span, and the next tile is slower than none where they are.
  constexpr int64_t kShort = 8 * kPageBytes;
  if (ahead == ReadAhead::kEightPages && bytes < kShort) ahead = ReadAhead::kNone;
  switch (ahead) {
    case ReadAhead::kNone:
      return f(std::integral_constant<ReadAhead, ReadAhead::kNone>());
    case ReadAhead::kPageStarts:
      return f(std::integral_constant<ReadAhead, ReadAhead::kPageStarts>());
    case ReadAhead::kNextTile:
      return f(std::integral_constant<ReadAhead, ReadAhead::kNextTile>());
    case ReadAhead::kEightPages:
      return f(std::integral_constant<ReadAhead, ReadAhead::kEightPages>());
  }
}

}  // namespace
}  // namespace gsc::cpu
