#version 460
// SPDX-License-Identifier: Apache-2.0
// A workgroup for a row of weights and an invocation for each weight, which adds over the samples in their order: no
// atomics, and the same bits every time.
#extension GL_GOOGLE_include_directive : require
#include "network.glsl"
layout(local_size_x = kColumns) in;

void main() {
  const uint row = gl_WorkGroupID.x, column = gl_LocalInvocationID.x, first = row / kWidth * kWidth;
  float sum = 0.0;
  for (uint s = 0; s < samples; ++s) {
    const float x = column < kWidth ? float(activations.at[s * kStride + first + column]) : 1.0;
    sum += float(deltas.at[s * kStride + row]) * x;
  }
  gradients.at[row * kColumns + column] = float16_t(half_of(sum));
}
