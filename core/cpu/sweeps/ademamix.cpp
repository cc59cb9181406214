// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/ademamix.h"

#include "core/cpu/sweeps.h"

namespace gsc::cpu::GSC_CPU_TARGET {
GSC_ADEMAMIX_FORMULAS(GSC_SWEEPS)
}
