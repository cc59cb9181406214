// SPDX-License-Identifier: Apache-2.0
//
// A training step of the policy in slices of a fraction of a millisecond, for a host whose frames must not wait: some
// gradients, the check of one layer, the optimizer of one layer. Each layer has a list and an optimizer. One
// scaler decides for all of them: no layer is stepped before all have been checked.
//
// save() and close() put everything that the library holds into the host's memory. So the library can be unloaded
// between two frames, and training continues with the next one, bit for bit.
#pragma once

#include <gradscaler/api.h>

#include <cstdint>

#include "policy.h"

namespace engine {

class Training {
 public:
  /// `memory` is used for the policy and for the library.
  explicit Training(const HostMemory &memory) : memory_(memory), policy_(memory) {}
  Training(const Training &) = delete;
  Training &operator=(const Training &) = delete;
  ~Training();

  /// Makes the library's objects; the first time the policy too, afterwards what was saved is restored. `options` say
  /// which threads to use. On failure error() has a sentence and nothing is left behind but the policy.
  bool open(const gsc_api *api, gsc_context_options options);
  /// Takes out what the library knows. Allocates nothing.
  bool save();
  /// Destroys the library's objects.
  void close();

  /// Runs the next slice. Allocates nothing.
  bool run_slice();
  /// Runs slices while the next one is likely to end within the budget, but one in any case.
  bool run_within(double microseconds);

  /// Steps finished, those that were skipped included.
  int64_t steps() const { return steps_; }
  int64_t skipped() const { return skipped_; }
  /// Of the last finished step.
  double loss() const { return loss_; }
  float scale() const { return scale_; }
  const Policy &policy() const { return policy_; }
  const char *error() const { return error_; }

 private:
  /// What a slice does; the layer or the part of the batch is in index_.
  enum class Stage { kBegin, kGradients, kCheck, kStep };
  static constexpr int kStages = 4;

  bool make_objects(gsc_context_options options);
  bool restore();
  bool check_layer();
  bool step_layer();
  bool end_step();
  bool ok(gsc_status status);
  bool fail(const char *sentence);

  HostMemory memory_;
  Policy policy_;
  bool created_ = false;

  Library library_;
  gsc_tensor_list *params_[kLayers] = {}, *grads_[kLayers] = {}, *halfs_[kLayers] = {};
  gsc_optimizer *optimizers_[kLayers] = {};
  gsc_scaler *scaler_ = nullptr;

  bool saved_ = false;
  gsc_scaler_state scaler_state_ = {};
  void *optimizer_states_[kLayers] = {};
  int64_t state_bytes_[kLayers] = {};

  Stage stage_ = Stage::kBegin;
  int index_ = 0;
  RandomSource random_{1};
  double batch_loss_ = 0.0;
  double longest_[kStages] = {};  ///< microseconds, of slices of a stage lately

  int64_t steps_ = 0, skipped_ = 0;
  double loss_ = 0.0;
  float scale_ = 0.0F;
  char error_[512] = "";
};

}  // namespace engine
