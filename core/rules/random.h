// SPDX-License-Identifier: Apache-2.0
// Random bits for stochastic rounding: Philox4x32 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3")
// with seven rounds, the fewest with which it passes BigCrush there. They depend on the seed, the step and the element's
// index alone, so every thread count, instruction set, launch shape and device rounds alike, and a shard rounds as the
// whole tensor does.
//
// A call's eight 16-bit halves serve 32 elements, because it would take as long as the step itself if each had its own:
// an odd factor modulo 2^16 makes of uniform bits uniform bits. The factors are the powers of one with which a half and
// its products are a good lattice (Korobov 1959) in 2, 3 and 4 dimensions: its spectral test gives 0.92, 0.86 and 0.83 of
// what is possible.
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

inline constexpr int kPhiloxHalves = 8;
/// Elements whose 16 bits come from one call.
inline constexpr int kPhiloxElements = 32;
/// What a half is multiplied with, modulo 2^16, for the elements from 0, 8, 16 and 24 on: `part` 0 to 3.
GSC_HD constexpr uint32_t half_factor(int part) {
  constexpr uint32_t kFactor = 0x348d;
  return ((part & 1) != 0 ? kFactor : 1U) * ((part & 2) != 0 ? kFactor * kFactor & 0xffffU : 1U) & 0xffffU;
}
/// A mean of gradients is rounded by the bits of the element whose index has this bit turned, squares by those of their
/// own, so that the errors of the two in an element are independent.
inline constexpr int kMeanPartner = 4;

struct Philox {
  uint32_t word[4];

  /// The low half of word h / 2 if h is even, else the high half.
  GSC_HD uint32_t half(int h) const { return h % 2 == 0 ? word[h / 2] & 0xffffU : word[h / 2] >> 16; }
  /// 16 bits for element i of the 32.
  GSC_HD uint32_t of_element(int i) const { return half(i % kPhiloxHalves) * half_factor(i / kPhiloxHalves) & 0xffffU; }
};

/// The words for elements [32 * block, 32 * block + 32) in step `step`. Counter: block, low word first, step, draw. Key:
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
