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

int32_t usable_processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

}  // namespace gsc::cpu
