// SPDX-License-Identifier: Apache-2.0
// Compiles the kernels of a family of formulas, in a file of sweeps/: `Sweeps` by the names of `Variant`, in a
// namespace of the instruction set, for the table in kernels.cpp. An object file exports the names of that namespace
// alone.
#pragma once

#include "core/cpu/apply_kernel.h"
#include "core/rules/optim/variant.h"

#if !defined(GSC_CPU_TARGET)
#error "GSC_CPU_TARGET is not set: baseline, avx2 or avx512"
#endif

#define GSC_SWEEPS(enumerator, formula) \
  extern const Sweeps enumerator;       \
  constinit const Sweeps enumerator = {moments_kernel<SweepOf<formula>>(), apply<SweepOf<formula>>};
