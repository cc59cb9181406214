// SPDX-License-Identifier: Apache-2.0
// What a file of sweeps/ makes of the formulas of a family: `Sweeps` by the names of `Variant`, in a namespace of the
// instruction set, for the table in kernels.cpp. The names of that namespace are all that its object file exports.
#pragma once

#include "core/cpu/apply_kernel.h"
#include "core/rules/optim/variant.h"

#if !defined(GSC_CPU_TARGET)
#error "GSC_CPU_TARGET is not set: baseline, avx2 or avx512"
#endif

#define GSC_SWEEPS(enumerator, formula) \
  extern const Sweeps enumerator;       \
  constinit const Sweeps enumerator = {moments_kernel<SweepOf<formula>>(), apply<SweepOf<formula>>};
