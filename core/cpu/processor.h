// SPDX-License-Identifier: Apache-2.0
// Picks the best instruction set that an x86 processor can run, from what it and the operating system say of
// themselves. dispatch.cpp asks them.
#pragma once

#include <cstdint>

#include "gradscaler/gradscaler.h"

namespace gsc::cpu {

/// 0 for what the processor lacks.
struct X86Features {
  unsigned leaf1_ecx = 0;  ///< of cpuid
  unsigned leaf7_ebx = 0;
  unsigned xcr0 = 0;  ///< the register states that the operating system saves
};

inline constexpr unsigned kOsxsave = 1U << 27;  ///< of leaf1_ecx: xcr0 can be read

/// The best GSC_CPU_*.
constexpr int32_t target_of(const X86Features &f) {
  constexpr unsigned kAvx = 1U << 28, kFma = 1U << 12, kF16c = 1U << 29, kLeaf1 = kOsxsave | kAvx | kFma | kF16c;
  constexpr unsigned kAvx2 = 1U << 5;
  // F, DQ, CD, BW, VL
  constexpr unsigned kAvx512 = 1U << 16 | 1U << 17 | 1U << 28 | 1U << 30 | 1U << 31;
  constexpr unsigned kSavesYmm = 0x6, kSavesZmm = 0xe6;
  const auto has_all = [](unsigned found, unsigned wanted) { return (found & wanted) == wanted; };
  if (!has_all(f.leaf1_ecx, kLeaf1) || !has_all(f.xcr0, kSavesYmm) || !has_all(f.leaf7_ebx, kAvx2)) {
    return GSC_CPU_BASELINE;
  }
  return has_all(f.xcr0, kSavesZmm) && has_all(f.leaf7_ebx, kAvx512) ? GSC_CPU_AVX512 : GSC_CPU_AVX2;
}

}  // namespace gsc::cpu
