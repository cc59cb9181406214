// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/adam_like.h"

#include "core/cpu/sweeps.h"

namespace gsc::cpu::GSC_CPU_TARGET {
GSC_ADAM_LIKE_FORMULAS(GSC_SWEEPS)
}
