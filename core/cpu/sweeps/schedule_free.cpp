// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/schedule_free.h"

#include "core/cpu/sweeps.h"

namespace gsc::cpu::GSC_CPU_TARGET {
GSC_SCHEDULE_FREE_FORMULAS(GSC_SWEEPS)
}
