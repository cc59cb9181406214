// SPDX-License-Identifier: Apache-2.0
// The device scalars of a step, which each of its kernels reads first.
#pragma once

#include "core/cuda/apply.h"
#include "core/cuda/device.cuh"

namespace gsc::cuda {

/// The device scalars of a step.
struct StepInput {
  float inv_scale;
  float clip;
  bool skip;
};

/// By all lanes of a warp together.
GSC_DEVICE StepInput read_scalars(const ApplyParams &p) {
  StepInput r;
  r.inv_scale = p.step.inv_scale != nullptr ? *p.step.inv_scale : 1.0F;
  r.clip = p.step.clip != nullptr ? *p.step.clip : 1.0F;
  r.skip = p.step.found_inf != nullptr && *p.step.found_inf != 0.0F;
  // An invalid learning rate or inverse scale skips the step: an error could not be reported from here.
  if (!p.step.checked_scale && !is_multiplier(r.inv_scale)) r.skip = true;
  if (p.step.device_lrs) {
    int32_t invalid = 0;
    for (int32_t g = lane_index(); g < p.step.group_count; g += 32) {
      const float *lr = p.step.groups[g].device_lr;
      if (lr != nullptr && !is_multiplier(*lr)) invalid = 1;
    }
    if (warp_max(invalid) != 0) r.skip = true;
  }
  return r;
}

}  // namespace gsc::cuda
