#version 460
// SPDX-License-Identifier: Apache-2.0
// An invocation evaluates the network at one pixel: a random one in training, where it also goes backward and leaves
// activations and deltas for gradient.comp, or its own one to draw the image.
#extension GL_GOOGLE_include_directive : require
#include "network.glsl"
layout(local_size_x = 64) in;

uint mixed(uint x) {  // a hash: bits that look random
  x = (x ^ x >> 16) * 0x7feb352d;
  x = (x ^ x >> 15) * 0x846ca68b;
  return x ^ x >> 16;
}

void main() {
  const uint id = gl_GlobalInvocationID.x, at = id * kStride;
  if (id >= samples) return;
  const uint pixel = trains != 0 ? mixed(frame * samples + id) % (size * size) : id;
  const vec2 place = (vec2(pixel % size, pixel / size) + 0.5) / size;

  float x[kStride];
  for (uint i = 0; i < kWidth; i += 4) {  // eight waves, half an octave apart
    const vec2 angle = place * 3.1415927 * exp2(float(i) / 8.0);
    x[i] = sin(angle.x);
    x[i + 1] = cos(angle.x);
    x[i + 2] = sin(angle.y);
    x[i + 3] = cos(angle.y);
  }
  float color[kColors];
  for (uint row = 0; row < kRows; ++row) {
    const uint first = row / kWidth * kWidth;  // where the inputs of its layer are
    float sum = float(weights.at[row * kColumns + kWidth]);
    for (uint i = 0; i < kWidth; ++i) sum += float(weights.at[row * kColumns + i]) * x[first + i];
    if (row < kStride - kWidth) {
      x[row + kWidth] = half_of(max(sum, 0.0));
    } else {
      color[row - first] = sum;
    }
  }
  if (trains == 0) {
    for (uint c = 0; c < kColors; ++c) image.at[id * kColors + c] = color[c];
    return;
  }

  // The loss is the mean of the squared errors, multiplied by the scale.
  float delta[kStride];
  for (uint c = 0; c < kColors; ++c) {
    const float error = color[c] - target.at[pixel * kColors + c];
    delta[kStride - kWidth + c] = half_of(2.0 * error / float(kColors * samples) * scale.at[0]);
  }
  for (int row = int(kStride - kWidth) - 1; row >= 0; --row) {
    const uint above = (uint(row) / kWidth + 1) * kWidth;  // the rows that read this one
    float sum = 0.0;
    for (uint r = above; r < min(above + kWidth, kRows); ++r) {
      sum += float(weights.at[r * kColumns + uint(row) % kWidth]) * delta[r];
    }
    delta[row] = x[uint(row) + kWidth] > 0.0 ? half_of(sum) : 0.0;
  }
  for (uint i = 0; i < kStride; ++i) activations.at[at + i] = float16_t(x[i]);
  for (uint r = 0; r < kRows; ++r) deltas.at[at + r] = float16_t(delta[r]);
}
