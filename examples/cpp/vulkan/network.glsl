// SPDX-License-Identifier: Apache-2.0
// Shared by both shaders: the shape of the network, where its numbers are, and how they become fp16. A layer has up to
// 32 rows of 32 weights and a bias. Rows are counted through all layers, so that row r has the delta number r of a
// sample.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_16bit_storage : require

const uint kWidth = 32, kLayers = 3, kColors = 3;
const uint kRows = (kLayers - 1) * kWidth + kColors;  // 67
const uint kColumns = kWidth + 1;                     // the last one is the bias
const uint kStride = kLayers * kWidth;                // numbers of a sample

layout(buffer_reference, std430, buffer_reference_align = 2) buffer Halves { float16_t at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };

layout(push_constant, std430) uniform Arguments {
  Halves weights;      // [kRows][kColumns]
  Halves gradients;    // of the weights, multiplied by the scale
  Halves activations;  // [samples][kStride]: the input of each layer
  Halves deltas;       // [samples][kStride]: the gradient of each row's sum, multiplied by the scale
  Floats scale;        // one number
  Floats target;       // [size][size][kColors]
  Floats image;        // the same; written where `trains` is 0
  uint samples;
  uint size;
  uint frame;
  uint trains;
};

// x rounded to fp16. What fp16 cannot hold becomes inf on every device, NaN too: a conversion alone may round toward
// zero, and hide the overflow from the scaler.
float half_of(float x) {
  return abs(x) < 65520.0 ? unpackHalf2x16(packHalf2x16(vec2(x, 0.0))).x : uintBitsToFloat(0x7f800000);
}
