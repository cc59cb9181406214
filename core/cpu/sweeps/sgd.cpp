// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/sgd.h"

#include "core/cpu/sweeps.h"

namespace gsc::cpu::GSC_CPU_TARGET {
GSC_SGD_FORMULAS(GSC_SWEEPS)
}
