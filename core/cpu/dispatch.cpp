// SPDX-License-Identifier: Apache-2.0
// Run-time choice of the instruction set.
#include "core/cpu/dispatch.h"

#include <algorithm>
#include <thread>

#include "core/cpu/processor.h"

#if defined(GSC_HAVE_AVX2) || defined(GSC_HAVE_AVX512)
#define GSC_ASKS_CPUID
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(GSC_HAVE_NEON_BF16) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(GSC_HAVE_NEON_BF16)
#include <sys/auxv.h>
#endif

namespace gsc::cpu {

#if defined(GSC_ASKS_CPUID)
namespace {

/// XCR0: the register states that the operating system saves.
unsigned saved_registers() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/// The best GSC_CPU_* of this processor under this operating system. Not __builtin_cpu_supports: it needs libgcc or
/// compiler-rt, which some toolchains lack in part, and some versions do not know F16C.
int32_t detect_target() {
  X86Features features;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) features.leaf1_ecx = c;
  if ((features.leaf1_ecx & kOsxsave) != 0) features.xcr0 = saved_registers();
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) features.leaf7_ebx = b;
  return target_of(features);
}

/// Whether this processor can run kernels for `target`.
bool can_run(int32_t target) {
  static const int32_t detected = detect_target();
  return detected >= target;
}

/// Whether the vendor string, "GenuineIntel" or "AuthenticAMD", begins with these four letters.
bool is_made_by(unsigned letters) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0, &a, &b, &c, &d) != 0 && b == letters;
}

/// The processor family, from cpuid.
unsigned amd_family(unsigned version) { return ((version >> 8) & 0xf) + ((version >> 20) & 0xff); }

}  // namespace
#endif

#if defined(GSC_HAVE_NEON_BF16)
namespace {

bool has_bf16() {
#if defined(__APPLE__)
  int has = 0;
  size_t size = sizeof has;
  return sysctlbyname("hw.optional.arm.FEAT_BF16", &has, &size, nullptr, 0) == 0 && has != 0;
#else
  constexpr unsigned long kBf16 = 1UL << 14;  // HWCAP2_BF16, which old headers lack
  return (getauxval(AT_HWCAP2) & kBf16) != 0;
#endif
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
      return can_run(GSC_CPU_AVX2) ? avx2_kernels() : nullptr;
#endif
#if defined(GSC_HAVE_AVX512)
    case GSC_CPU_AVX512:
      return can_run(GSC_CPU_AVX512) ? avx512_kernels() : nullptr;
#endif
#if defined(GSC_HAVE_NEON_BF16)
    case GSC_CPU_NEON_BF16:
      return has_bf16() ? neon_bf16_kernels() : nullptr;
#endif
    default:
      return nullptr;
  }
}

int32_t best_target() {
  for (const int32_t target : {GSC_CPU_AVX512, GSC_CPU_AVX2, GSC_CPU_NEON_BF16}) {
    if (find_kernels(target) != nullptr) return target;
  }
  return GSC_CPU_BASELINE;
}

// The measurements are in docs/dev/notebook.md.
ReadAhead best_read_ahead() {
#if defined(GSC_ASKS_CPUID)
  if (is_made_by(signature_INTEL_ebx)) return ReadAhead::kEightPages;
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kZen3And4 = 0x19;
  if (is_made_by(signature_AMD_ebx) && __get_cpuid(1, &a, &b, &c, &d) != 0 && amd_family(a) == kZen3And4) {
    return ReadAhead::kPageStarts;
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
