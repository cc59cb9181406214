// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/layerwise.h"

#define GSC_FORMULAS GSC_LAYERWISE_FORMULAS
#include "core/cuda/sweeps.cuh"
