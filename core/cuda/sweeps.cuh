// SPDX-License-Identifier: Apache-2.0
// Compiles the kernels of a family of formulas, in a file of sweeps/ that defines them as GSC_FORMULAS: kernels by the
// names of `Variant`, for the table in apply.cu.
#pragma once

#include "core/cuda/coded.cuh"

namespace gsc::cuda::sweeps {

/// NULL for formulas that take one sweep.
template <typename F, typename T>
constexpr ApplyKernel moments_of() {
  if constexpr (kNeedsNorms<F>) return moments_kernel<F, T>;
  return nullptr;
}

template <typename F>
constexpr ApplyKernel coded_moments_of() {
  if constexpr (kNeedsNorms<F>) return moments_coded_kernel<F>;
  return nullptr;
}

#define GSC_SWEEPS(enumerator, formula)                                               \
  extern const Sweeps enumerator;                                                     \
  const Sweeps enumerator = {                                                         \
      {apply_kernel<SweepOf<formula>, float>, apply_kernel<SweepOf<formula>, double>, \
       apply_coded_kernel<SweepOf<formula>>},                                         \
      {moments_of<SweepOf<formula>, float>(), moments_of<SweepOf<formula>, double>(), \
       coded_moments_of<SweepOf<formula>>()},                                         \
  };
GSC_FORMULAS(GSC_SWEEPS)
#undef GSC_SWEEPS

}  // namespace gsc::cuda::sweeps
