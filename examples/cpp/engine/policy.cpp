// SPDX-License-Identifier: Apache-2.0
// The policy's forward and backward pass. Sums run in one order, on every compiler.
#include "policy.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace engine {
namespace {

constexpr int kInputs = kWidths[0], kOutputs = kWidths[kLayers];

gsc_tensor tensor_of(void *data, int64_t count, int32_t dtype) { return GSC_TENSOR_INIT(data, count, dtype); }

gsc_status cast(const Library &library, const gsc_tensor &from, const gsc_tensor &to) {
  return library.api->ops_cast(library.context, &from, &to, 1, nullptr);
}

/// out (n x m) += a (n x k) * b (k x m).
void add_product(const float *a, const float *b, float *__restrict out, int n, int k, int m) {
  for (int i = 0; i < n; ++i) {
    for (int l = 0; l < k; ++l) {
      const float factor = a[i * k + l];
      for (int j = 0; j < m; ++j) out[i * m + j] += factor * b[l * m + j];
    }
  }
}

/// What the autopilot does in a situation: thrust along three axes towards the target, against speed and wind; brake.
void autopilot(const float *situation, float *action) {
  const float *distance = situation, *speed = situation + 3;
  const float wind = situation[6], fuel = situation[7];
  for (int axis = 0; axis < 3; ++axis) {
    action[axis] = std::tanh((1.5F + 0.5F * fuel) * distance[axis] - 1.2F * speed[axis] - 0.4F * wind);
  }
  action[3] = std::tanh(speed[0] * speed[0] + speed[1] * speed[1] + speed[2] * speed[2] - 0.5F);
}

}  // namespace

float RandomSource::next() {
  uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-23F - 1.0F;
}

Policy::~Policy() {
  if (block_ != nullptr) memory_.release(memory_.user, block_, bytes_, 64);
}

bool Policy::create(uint64_t seed) {
  // The first round counts the bytes, the second hands them out.
  for (int round = 0; round < 2; ++round) {
    int64_t used = 0;
    const auto take = [&](auto *&array, int64_t count) {
      if (block_ != nullptr) array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(block_ + used);
      used += (count * static_cast<int64_t>(sizeof *array) + 63) / 64 * 64;
    };
    for (int layer = 0; layer < kLayers; ++layer) {
      for (float **array : {master_, grads_, open_, flipped_}) take(array[layer], parameters(layer));
      take(halfs_[layer], parameters(layer));
      take(deltas_[layer], int64_t{kRows} * kWidths[layer + 1]);
    }
    for (int i = 0; i <= kLayers; ++i) take(activations_[i], int64_t{kRows} * kWidths[i]);
    take(rounded_, int64_t{kRows} * kWidest);
    if (block_ != nullptr) break;
    bytes_ = used;
    block_ = static_cast<char *>(memory_.allocate(memory_.user, bytes_, 64));
    if (block_ == nullptr) return false;
    std::memset(block_, 0, static_cast<size_t>(bytes_));
  }
  RandomSource random{seed};
  for (int layer = 0; layer < kLayers; ++layer) {
    const float bound = std::sqrt(6.0F / static_cast<float>(kWidths[layer]));
    const int64_t matrix = int64_t{kWidths[layer]} * kWidths[layer + 1];
    for (int64_t i = 0; i < matrix; ++i) master_[layer][i] = bound * random.next();
  }
  return true;
}

gsc_tensor Policy::master(int layer) const { return tensor_of(master_[layer], parameters(layer), GSC_FP32); }
gsc_tensor Policy::halfs(int layer) const { return tensor_of(halfs_[layer], parameters(layer), GSC_FP16); }
gsc_tensor Policy::grads(int layer) const { return tensor_of(grads_[layer], parameters(layer), GSC_FP32); }

gsc_status Policy::begin(const Library &library, int layer) {
  const int in = kWidths[layer], out = kWidths[layer + 1];
  std::fill_n(grads_[layer], parameters(layer), 0.0F);
  const gsc_status status = cast(library, halfs(layer), tensor_of(open_[layer], parameters(layer), GSC_FP32));
  for (int i = 0; i < in; ++i) {
    for (int j = 0; j < out; ++j) flipped_[layer][j * in + i] = open_[layer][i * out + j];
  }
  return status;
}

/// As if stored in fp16.
gsc_status Policy::round(const Library &library, float *values, int64_t count) {
  const gsc_tensor wide = tensor_of(values, count, GSC_FP32), narrow = tensor_of(rounded_, count, GSC_FP16);
  const gsc_status status = cast(library, wide, narrow);
  return status != GSC_OK ? status : cast(library, narrow, wide);
}

gsc_status Policy::forward(const Library &library) {
  for (int layer = 0; layer < kLayers; ++layer) {
    const int in = kWidths[layer], out = kWidths[layer + 1];
    float *result = activations_[layer + 1];
    const float *bias = open_[layer] + int64_t{in} * out;
    for (int i = 0; i < kRows; ++i) std::copy_n(bias, out, result + int64_t{i} * out);
    add_product(activations_[layer], open_[layer], result, kRows, in, out);
    if (layer < kLayers - 1) {
      for (int i = 0; i < kRows * out; ++i) result[i] = std::max(result[i], 0.0F);
    }
    if (const gsc_status status = round(library, result, int64_t{kRows} * out); status != GSC_OK) return status;
  }
  return GSC_OK;
}

/// From the last delta, which is scaled and rounded, to the gradients of all layers.
gsc_status Policy::backward(const Library &library) {
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    const int in = kWidths[layer], out = kWidths[layer + 1];
    const float *delta = deltas_[layer];
    float *matrix = grads_[layer], *bias = matrix + int64_t{in} * out;
    for (int row = 0; row < kRows; ++row) {
      add_product(activations_[layer] + int64_t{row} * in, delta + int64_t{row} * out, matrix, in, 1, out);
      for (int j = 0; j < out; ++j) bias[j] += delta[row * out + j];
    }
    if (layer == 0) break;
    float *below = deltas_[layer - 1];
    std::fill_n(below, kRows * in, 0.0F);
    add_product(delta, flipped_[layer], below, kRows, out, in);
    for (int i = 0; i < kRows * in; ++i) {
      if (!(activations_[layer][i] > 0.0F)) below[i] = 0.0F;
    }
    if (const gsc_status status = round(library, below, int64_t{kRows} * in); status != GSC_OK) return status;
  }
  return GSC_OK;
}

gsc_status Policy::add_gradients(const Library &library, gsc_scaler *scaler, RandomSource &random, double *loss) {
  constexpr double kMean = 1.0 / (double{kRows} * kSlices * kOutputs);
  float actions[kRows * kOutputs];
  float *situations = activations_[0], *delta = deltas_[kLayers - 1];
  for (int i = 0; i < kRows * kInputs; ++i) situations[i] = random.next();
  for (int row = 0; row < kRows; ++row) autopilot(situations + row * kInputs, actions + row * kOutputs);
  gsc_status status = round(library, situations, kRows * kInputs);
  if (status == GSC_OK) status = forward(library);
  if (status != GSC_OK) return status;
  for (int i = 0; i < kRows * kOutputs; ++i) {
    const float error = activations_[kLayers][i] - actions[i];
    *loss += kMean * error * error;
    delta[i] = static_cast<float>(2.0 * kMean) * error;
  }
  // Times the scale in fp32, and rounded to fp16 as the deltas below are.
  const gsc_tensor exact = tensor_of(delta, kRows * kOutputs, GSC_FP32);
  const gsc_tensor stored = tensor_of(rounded_, kRows * kOutputs, GSC_FP16);
  status = library.api->scaler_scale(scaler, &exact, &stored, 1, nullptr);
  if (status == GSC_OK) status = cast(library, stored, exact);
  return status != GSC_OK ? status : backward(library);
}

}  // namespace engine
