// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/adam.h"

#define GSC_FORMULAS GSC_ADAM_FORMULAS
#include "core/cuda/sweeps.cuh"
