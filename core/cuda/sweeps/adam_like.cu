// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/adam_like.h"

#define GSC_FORMULAS GSC_ADAM_LIKE_FORMULAS
#include "core/cuda/sweeps.cuh"
