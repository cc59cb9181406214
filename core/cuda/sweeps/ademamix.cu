// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/ademamix.h"

#define GSC_FORMULAS GSC_ADEMAMIX_FORMULAS
#include "core/cuda/sweeps.cuh"
