// SPDX-License-Identifier: Apache-2.0
// The CPU kernels of one instruction set. The build compiles this file and those of sweeps/ once per set: GSC_CPU_TARGET
// names the set, compiler flags select it. The linker may keep any one of several equal weak symbols, and must not hand
// AVX-512 code to a processor without it, nor vectors of 16 bytes to a caller that steps by 64. So what several of these
// files share from this folder is in a namespace of the set, what one file uses in an unnamed one, and functions of
// core/rules are always inlined. That holds without optimisation too (tests build.symbols). The algorithms are in the
// *_kernel.h files.
#include "core/cpu/kernels.h"

#include "core/cpu/check_kernel.h"
#include "core/cpu/check_small_kernel.h"
#include "core/cpu/diagnose_kernel.h"
#include "core/cpu/elementwise_kernel.h"
#include "core/cpu/ema_kernel.h"

#if !defined(GSC_CPU_TARGET)
#error "GSC_CPU_TARGET is not set: baseline, avx2 or avx512"
#endif

#define GSC_JOIN_(a, b) a##b
#define GSC_JOIN(a, b) GSC_JOIN_(a, b)
#define GSC_QUOTE_(a) #a
#define GSC_QUOTE(a) GSC_QUOTE_(a)

namespace gsc::cpu {

namespace GSC_CPU_TARGET {
#define GSC_DECLARE(enumerator, formula) extern const Sweeps enumerator;
GSC_FOR_EACH_VARIANT(GSC_DECLARE)
#undef GSC_DECLARE
}  // namespace GSC_CPU_TARGET

const Kernels *GSC_JOIN(GSC_CPU_TARGET, _kernels)() {
#define GSC_ADDRESS(enumerator, formula) &GSC_CPU_TARGET::enumerator,
  static constexpr Kernels kTable = {
      GSC_QUOTE(GSC_CPU_TARGET),           check,          check_small, unscale, elementwise, diagnose,
      {GSC_FOR_EACH_VARIANT(GSC_ADDRESS)}, average_weights};
#undef GSC_ADDRESS
  return &kTable;
}

}  // namespace gsc::cpu
