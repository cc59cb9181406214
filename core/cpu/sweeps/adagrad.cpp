// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/adagrad.h"

#include "core/cpu/sweeps.h"

namespace gsc::cpu::GSC_CPU_TARGET {
GSC_ADAGRAD_FORMULAS(GSC_SWEEPS)
}
