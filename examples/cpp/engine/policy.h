// SPDX-License-Identifier: Apache-2.0
//
// A control policy: a 8-384-384-4 network that learns what an autopilot does, with fp16 weights, activations and deltas
// and fp32 master weights. It knows forward and backward for a few rows at a time, and where its memory lies; scaling,
// optimizer and slices are in training.h. All memory is one block of the host's, so that it outlives the library.
#pragma once

#include <gradscaler/api.h>

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

/// Uniform in [-1, 1): splitmix64, the same on every machine.
struct RandomSource {
  uint64_t state;
  float next();
};

constexpr int kLayers = 3;
constexpr int kWidths[kLayers + 1] = {8, 384, 384, 4};
constexpr int kWidest = 384;
constexpr int kRows = 4;     ///< of a slice
constexpr int kSlices = 12;  ///< of a batch

/// Elements of a layer's tensor: its matrix (inputs x outputs), then its bias.
constexpr int64_t parameters(int layer) { return int64_t{kWidths[layer] + 1} * kWidths[layer + 1]; }

class Policy {
 public:
  explicit Policy(const HostMemory &memory) : memory_(memory) {}
  Policy(const Policy &) = delete;
  Policy &operator=(const Policy &) = delete;
  ~Policy();

  /// Allocates, and initializes the master weights. False if the host has no memory.
  bool create(uint64_t seed);

  gsc_tensor master(int layer) const;
  gsc_tensor halfs(int layer) const;
  /// Sums over the slices of a batch, times the scale.
  gsc_tensor grads(int layer) const;

  /// Before the first slice of a batch, layer by layer: fp32 copies of the fp16 weights; gradients zero.
  gsc_status begin(const Library &library, int layer);
  /// Adds the gradients of kRows situations to the sums, and their share of the batch's loss to *loss. The first delta
  /// is multiplied by the scale.
  gsc_status add_gradients(const Library &library, gsc_scaler *scaler, RandomSource &random, double *loss);

 private:
  gsc_status round(const Library &library, float *values, int64_t count);
  gsc_status forward(const Library &library);
  gsc_status backward(const Library &library);

  HostMemory memory_;
  char *block_ = nullptr;
  int64_t bytes_ = 0;
  float *master_[kLayers], *grads_[kLayers];
  float *open_[kLayers];     ///< the fp16 weights in fp32
  float *flipped_[kLayers];  ///< their matrix transposed
  uint16_t *halfs_[kLayers];
  float *activations_[kLayers + 1];
  float *deltas_[kLayers];
  uint16_t *rounded_;
};

}  // namespace engine
