// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/adagrad.h"

#define GSC_FORMULAS GSC_ADAGRAD_FORMULAS
#include "core/cuda/sweeps.cuh"
