// SPDX-License-Identifier: Apache-2.0
//
// A training step of the model in slices of a fraction of a millisecond, for a host whose frames must not wait: some
// gradients, then the library's step, a number of bytes at a time.
//
// save() and close() put everything that the library holds into the host's memory. So the library can be unloaded
// between two frames, and training continues with the next one, bit for bit.
#pragma once

#include <gradscaler/api.h>

#include <cstdint>

#include "model.h"

namespace engine {

class Training {
 public:
  /// `memory` is used for the model and for the library. A slice of the optimizer's step reads and writes at most
  /// `step_bytes`, or one chunk.
  explicit Training(const HostMemory &memory, int64_t step_bytes = int64_t{2} << 20)
      : memory_(memory), model_(memory), step_bytes_(step_bytes) {}
  Training(const Training &) = delete;
  Training &operator=(const Training &) = delete;
  ~Training();

  /// Makes the library's objects; the first time the model too, afterwards what was saved is restored. `options` say
  /// which threads to use. On failure error() has a sentence and nothing is left behind but the model.
  bool open(const gsc_api *api, gsc_context_options options);
  /// Takes out what the library knows. A step that is under way is finished first. Allocates nothing.
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
  const Model &model() const { return model_; }
  /// Milliseconds of the longest slice of the optimizer's step.
  double worst_step_ms() const { return worst_step_ms_; }
  const char *error() const { return error_; }

 private:
  enum class Stage { kGradients, kStep };
  static constexpr int kStages = 2;

  bool make_objects(gsc_context_options options);
  bool restore();
  bool step_slice(int64_t bytes);
  bool ok(gsc_status status);
  bool fail(const char *sentence);

  HostMemory memory_;
  Model model_;
  int64_t step_bytes_;
  bool created_ = false;

  Library library_;
  gsc_tensor_list *params_ = nullptr, *grads_ = nullptr, *halfs_ = nullptr;
  gsc_optimizer *optimizer_ = nullptr;
  gsc_scaler *scaler_ = nullptr;

  bool saved_ = false;
  gsc_scaler_state scaler_state_ = {};
  void *optimizer_state_ = nullptr;
  int64_t state_bytes_ = 0;

  Stage stage_ = Stage::kGradients;
  int slice_ = 0;  ///< of the gradients
  double batch_loss_ = 0.0;
  double worst_step_ms_ = 0.0;
  double longest_[kStages] = {};  ///< microseconds, of slices of a stage lately

  int64_t steps_ = 0, skipped_ = 0;
  double loss_ = 0.0;
  float scale_ = 0.0F;
  char error_[512] = "";
};

}  // namespace engine
