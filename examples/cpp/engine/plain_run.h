// SPDX-License-Identifier: Apache-2.0
//
// What a training within frames must equal: the same steps in one go, on one thread, with the C++ runtime's memory, and
// without reloads.
#pragma once

#include "training.h"

namespace engine {

/// Repeats the steps of `split`, and compares. NULL if every bit is the same, else a sentence.
const char *difference_from_plain_run(const gsc_api *api, const Training &split);

}  // namespace engine
