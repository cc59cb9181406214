// SPDX-License-Identifier: Apache-2.0
// A list's state since its scaler's last update: its stage, the tensors that have been checked, and the clip that was
// asked for. The scaler does the work and reports it here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/memory.h"
#include "core/rules/records.h"

namespace gsc {

enum class Stage : int32_t { kReady, kChecked, kUnscaled, kStepped };

class Iteration {
  struct State {
    uint64_t scaler = 0;
    uint64_t slices = 0;
    Stage stage = Stage::kReady;
    bool unscaled = false;
    bool concluded = false;
    bool norm_applied = false;
    bool value_applied = false;
    bool left_scaled = false;
    bool lost = false;
    int64_t tensors_checked = 0;
    double fp64_limit = 0.0;
    ClipRule rule{kNoClip, std::numeric_limits<double>::infinity(), false};
  };

 public:
  explicit Iteration(std::pmr::memory_resource *memory) : checked_(memory) {}
  void reserve(int64_t tensors) { checked_.resize(tensors); }

  /// Id of the list's scaler; 0: none.
  uint64_t scaler() const { return now_.scaler; }
  Stage stage() const { return now_.stage; }
  /// The gradients in memory are no longer multiplied by the scale.
  bool is_unscaled() const { return now_.unscaled; }
  /// The record answers the rule.
  bool is_concluded() const { return now_.concluded; }
  /// A call failed after it had done a part that cannot be undone.
  bool is_lost() const { return now_.lost; }
  /// The scaler has stepped, and that step did not write the gradients.
  bool is_left_scaled() const { return now_.left_scaled; }
  /// If all have been, the list is CHECKED or later, or lost.
  int64_t tensors_checked() const { return now_.tensors_checked; }
  bool is_checked_in_part() const { return now_.stage == Stage::kReady && now_.tensors_checked > 0 && !now_.lost; }
  bool was_read() const { return now_.stage != Stage::kReady || now_.tensors_checked > 0; }
  /// By check_range.
  bool is_checked(int64_t tensor) const { return checked_[tensor] != 0; }
  /// The greatest Plan::fp64_limit() of the checks.
  double fp64_limit() const { return now_.fp64_limit; }

  const ClipRule &rule() const { return now_.rule; }
  bool has_norm() const { return now_.rule.max_norm >= 0.0; }
  bool has_value() const { return std::isfinite(now_.rule.value); }
  /// The norm, or the value, has not been applied in memory: the scaler's step has to.
  bool is_norm_pending() const { return has_norm() && !now_.norm_applied; }
  bool is_value_pending() const { return has_value() && !now_.value_applied; }
  bool is_clip_pending() const { return is_norm_pending() || is_value_pending(); }
  bool is_value_applied() const { return now_.value_applied; }

  /// Id of the step that was taken, or is being taken, in slices; 0: none.
  uint64_t slices() const { return now_.slices; }
  bool is_between_slices() const { return now_.slices != 0 && now_.stage != Stage::kStepped; }
  void begin_slices(uint64_t id) { now_.slices = id; }

  void begin(uint64_t scaler) { now_.scaler = scaler; }
  /// READY, in no scaler's iteration.
  void end() {
    forget_ranges();
    now_ = State{};
  }

  void ask_norm(double max_norm, bool by_amax) {
    now_.rule.max_norm = max_norm;
    now_.rule.by_amax = by_amax;
    now_.concluded = false;
  }
  void ask_value(double value) { now_.rule.value = value; }
  void norm_was_applied() { now_.norm_applied = true; }
  void value_was_applied() { now_.value_applied = true; }

  /// Tensors [first, last) were checked; `is_range`: and others were not.
  void ranges_were_checked(int64_t first, int64_t last, double fp64_limit, bool is_range) {
    now_.fp64_limit = now_.tensors_checked == 0 ? fp64_limit : std::max(now_.fp64_limit, fp64_limit);
    now_.tensors_checked += last - first;
    if (is_range) std::fill(checked_.begin() + first, checked_.begin() + last, uint8_t{1});
  }
  void was_unscaled() { now_.unscaled = true; }
  void conclude() { now_.concluded = true; }
  /// All tensors were checked.
  void check_ended() {
    now_.concluded = true;
    now_.stage = now_.unscaled ? Stage::kUnscaled : Stage::kChecked;
  }
  /// `left_scaled`: gradients that are scaled still are.
  void was_stepped(bool left_scaled) {
    now_.stage = Stage::kStepped;
    now_.left_scaled = left_scaled && !now_.unscaled;
  }
  void set_lost(bool lost) { now_.lost = lost; }

  /// No tensor has been checked.
  void forget_ranges() {
    now_.tensors_checked = 0;
    std::fill(checked_.begin(), checked_.end(), uint8_t{0});
  }
  /// READY, with the rule.
  void forget_check() {
    forget_ranges();
    now_.slices = 0;
    now_.stage = Stage::kReady;
    now_.concluded = false;
    now_.lost = false;
  }

  /// To take back a call that failed. No range may have been checked in between.
  State save() const { return now_; }
  void restore(const State &before) { now_ = before; }

 private:
  State now_;
  Vec<uint8_t> checked_;  ///< per tensor
};

}  // namespace gsc
