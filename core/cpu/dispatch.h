// SPDX-License-Identifier: Apache-2.0
// Finds the kernels that this processor can run, and chooses those of a context.
#pragma once

#include "core/cpu/kernels.h"
#include "gradscaler/gradscaler.h"

namespace gsc::cpu {

/// The kernels of GSC_CPU_* `target`, or NULL if this build or processor lacks them.
const Kernels *find_kernels(int32_t target);
/// The best GSC_CPU_* for which find_kernels is not NULL.
int32_t best_target();
/// The fastest way for a check to read on this processor.
ReadAhead best_read_ahead();
/// Number of processors this process may run on, >= 1.
int32_t usable_processors();

}  // namespace gsc::cpu
