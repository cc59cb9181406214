// SPDX-License-Identifier: Apache-2.0
// Random bits for stochastic rounding: Philox4x32 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3")
// with seven rounds, the fewest with which it passes BigCrush there. They depend on the seed, the step and the element's
// index alone, so every thread count, instruction set, launch shape and device rounds alike, and a shard rounds as the
// whole tensor does.
#pragma once

#include <cstdint>

#include "core/rules/hd.h"

namespace gsc {

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
inline constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9U;
inline constexpr uint32_t kPhiloxKeyStep1 = 0xBB67AE85U;
inline constexpr int kPhiloxRounds = 7;

/// What the bits of a step are drawn for.
enum class Draw : uint32_t {
  kState = 0,
  kParam = 1,
};

/// Elements whose 16 bits come from one call: element i has the low half of word i / 2 if i is even, else the high half.
inline constexpr int kPhiloxElements = 8;

struct Philox {
  uint32_t word[4];

  /// 16 bits for element i of the eight.
  GSC_HD uint32_t half(int i) const { return i % 2 == 0 ? word[i / 2] & 0xffffU : word[i / 2] >> 16; }
};

/// The words for elements [8 * block, 8 * block + 8) in step `step`. Counter: block, low word first, step, draw. Key:
/// seed, low word first.
GSC_HD Philox philox(uint64_t seed, int64_t block, int64_t step, Draw draw) {
  const auto index = static_cast<uint64_t>(block);
  Philox x = {{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(step),
               static_cast<uint32_t>(draw)}};
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * x.word[0];
    const uint64_t b = uint64_t{kPhiloxMultiplier1} * x.word[2];
    x = {{static_cast<uint32_t>(b >> 32) ^ x.word[1] ^ key0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ x.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += kPhiloxKeyStep0;
    key1 += kPhiloxKeyStep1;
  }
  return x;
}

}  // namespace gsc
