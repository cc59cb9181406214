// SPDX-License-Identifier: Apache-2.0
// Whether gradients can be of a backward pass before the scaler's last update, as those of the second of two optimizers
// are if update is called between their steps. They would be unscaled by the new scale.
#pragma once

#include <atomic>

namespace gsc {

/// A program whose losses gsc_scaler_scale multiplied in the iteration before, and which has not called gsc_scaler_scale or
/// gsc_scaler_get_scale_sync since the update, has not computed the gradients of this iteration yet. Nothing is known of a
/// program that lets the device read the scale, or that scales in a graph.
class ScaleUse {
 public:
  /// gsc_scaler_scale. `runs_again`: what was enqueued may run again without a call.
  void scaled(bool runs_again) {
    if (runs_again) untold_ = true;
    scaled_ = true;
    told_ = true;
  }
  /// The host has the scale, or has set it.
  void told() { told_ = true; }
  /// The device may read it at any time.
  void gave_address() { untold_ = true; }
  void updated() {
    scaled_before_.store(scaled_, std::memory_order_relaxed);
    scaled_ = false;
    told_ = false;
  }
  bool has_old_gradients() const { return scaled_before_ && !told_ && !untold_; }

 private:
  // Getters may run while threads take slices of a step.
  std::atomic<bool> scaled_{false};         ///< since the last update
  std::atomic<bool> scaled_before_{false};  ///< in the iteration before it
  std::atomic<bool> told_{true};            ///< since the last update
  std::atomic<bool> untold_{false};
};

}  // namespace gsc
