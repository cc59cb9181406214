// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/lion.h"

#include "core/cpu/sweeps.h"

namespace gsc::cpu::GSC_CPU_TARGET {
GSC_LION_FORMULAS(GSC_SWEEPS)
}
