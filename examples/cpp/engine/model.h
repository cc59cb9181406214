// SPDX-License-Identifier: Apache-2.0
//
// The model that is trained: three arrays of fp16 weights with fp32 masters, fitted to numbers. The loss is the mean
// square of the errors, so that gradients are about 1e-6, which fp16 can hold only if they are scaled. Put your model
// in its place. All memory is one block of the host's and outlives the library.
#pragma once

#include <gradscaler/api.h>

#include <cmath>
#include <cstdint>

namespace engine {

/// Where memory comes from: the two hooks that the library gets too.
struct HostMemory {
  gsc_allocate_fn allocate;
  gsc_release_fn release;
  void *user;
};

/// The loaded library and a context of it.
struct Library {
  const gsc_api *api = nullptr;
  gsc_context *context = nullptr;
};

constexpr int kLayers = 3;
constexpr int64_t kWeights = 50000;  ///< of a layer
constexpr int kParts = 4;            ///< of a layer; the gradients of one are a slice
constexpr int kSlices = kLayers * kParts;

class Model {
 public:
  explicit Model(const HostMemory &memory) : memory_(memory) {}
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;
  ~Model() {
    if (arrays_ != nullptr) memory_.release(memory_.user, arrays_, sizeof(Arrays), 64);
  }

  /// Weights of 0. False if the host has no memory.
  bool create() {
    void *block = memory_.allocate(memory_.user, sizeof(Arrays), 64);
    if (block != nullptr) arrays_ = new (block) Arrays{};
    return arrays_ != nullptr;
  }

  gsc_tensor master(int layer) const { return GSC_TENSOR_INIT(arrays_->master[layer], kWeights, GSC_FP32); }
  gsc_tensor halfs(int layer) const { return GSC_TENSOR_INIT(arrays_->halfs[layer], kWeights, GSC_FP16); }
  gsc_tensor grads(int layer) const { return GSC_TENSOR_INIT(arrays_->grads[layer], kWeights, GSC_FP16); }

  /// Writes the gradients of a slice, times the scale, and adds its part of the loss to *loss.
  gsc_status write_gradients(const Library &library, gsc_scaler *scaler, int slice, double *loss) const {
    constexpr int64_t kCount = kWeights / kParts;
    constexpr double kMean = 1.0 / (double{kLayers} * kWeights);
    const int64_t layer = slice / kParts, first = slice % kParts * kCount;
    const gsc_tensor weights = GSC_TENSOR_INIT(arrays_->halfs[layer] + first, kCount, GSC_FP16);
    const gsc_tensor grads = GSC_TENSOR_INIT(arrays_->grads[layer] + first, kCount, GSC_FP16);
    const gsc_tensor exact = GSC_TENSOR_INIT(arrays_->exact, kCount, GSC_FP32);
    gsc_status status = library.api->ops_cast(library.context, &weights, &exact, 1, nullptr);
    float scale;  // reading it waits for a GPU
    if (status == GSC_OK) status = library.api->scaler_get_scale_sync(scaler, &scale, nullptr);
    if (status != GSC_OK) return status;
    for (int64_t i = 0; i < kCount; ++i) {
      const float error = arrays_->exact[i] - 0.5F * std::sin(static_cast<float>(layer * kWeights + first + i));
      *loss += kMean * error * error;
      arrays_->exact[i] = static_cast<float>(2.0 * kMean) * error;
    }
    return library.api->scaler_scale(scaler, &exact, &grads, 1, nullptr);
  }

 private:
  struct Arrays {
    alignas(64) float master[kLayers][kWeights];
    uint16_t halfs[kLayers][kWeights], grads[kLayers][kWeights];
    float exact[kWeights / kParts];
  };

  HostMemory memory_;
  Arrays *arrays_ = nullptr;
};

}  // namespace engine
