// SPDX-License-Identifier: Apache-2.0
#include "core/rules/optim/schedule_free.h"

#define GSC_FORMULAS GSC_SCHEDULE_FREE_FORMULAS
#include "core/cuda/sweeps.cuh"
