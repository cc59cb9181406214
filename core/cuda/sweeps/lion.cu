// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/lion.h"

#define GSC_FORMULAS GSC_LION_FORMULAS
#include "core/cuda/sweeps.cuh"
