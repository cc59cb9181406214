// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/sgd.h"

#define GSC_FORMULAS GSC_SGD_FORMULAS
#include "core/cuda/sweeps.cuh"
