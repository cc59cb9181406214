// SPDX-License-Identifier: Apache-2.0
// Run-time choice of the instruction set.
#include "core/cpu/dispatch.h"

#include <algorithm>
#include <thread>

#if defined(GSC_HAVE_AVX2)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace gsc::cpu {

#if defined(GSC_HAVE_AVX2)
namespace {

/// __builtin_cpu_supports knows this one in GCC only.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/// From what cpuid says of the processor's version.
unsigned amd_family(unsigned version) { return ((version >> 8) & 0xf) + ((version >> 20) & 0xff); }

}  // namespace
#endif

const Kernels *find_kernels(int32_t target) {
  switch (target) {
    case GSC_CPU_BEST:
      return find_kernels(best_target());
    case GSC_CPU_BASELINE:
      return baseline_kernels();
#if defined(GSC_HAVE_AVX2)
    case GSC_CPU_AVX2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() ? avx2_kernels() : nullptr;
#endif
#if defined(GSC_HAVE_AVX512)
    case GSC_CPU_AVX512:
      return find_kernels(GSC_CPU_AVX2) != nullptr && __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")
                 ? avx512_kernels()
                 : nullptr;
#endif
    default:
      return nullptr;
  }
}

int32_t best_target() {
  for (const int32_t target : {GSC_CPU_AVX512, GSC_CPU_AVX2}) {
    if (find_kernels(target) != nullptr) return target;
  }
  return GSC_CPU_BASELINE;
}

// GB/s of one thread over 256 MiB (docs/performance.md), none / next tile / four pages:
//   Sapphire Rapids: fp16 9.5 / 8.9 / 15.3, fp32 11.0 / 13.3 / 15.8
//   Zen 4:           fp16 26.5 / 25.8 / 16.8, fp32 32.5 / 21.9 / 17.6
// On Zen 5 the next tile was measured alone, at 1.1 of the best plain read.
ReadAhead best_read_ahead() {
#if defined(GSC_HAVE_AVX2)
  if (__builtin_cpu_is("intel")) return ReadAhead::kFourPages;
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kZen3And4 = 0x19;
  if (__builtin_cpu_is("amd") && __get_cpuid(1, &a, &b, &c, &d) != 0 && amd_family(a) == kZen3And4) {
    return ReadAhead::kNone;
  }
#endif
  return ReadAhead::kNextTile;
}

int32_t usable_processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

}  // namespace gsc::cpu
