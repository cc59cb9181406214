// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/layerwise.h"

#include "core/cpu/sweeps.h"

namespace gsc::cpu::GSC_CPU_TARGET {
GSC_LAYERWISE_FORMULAS(GSC_SWEEPS)
}
