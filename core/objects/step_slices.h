// SPDX-License-Identifier: Apache-2.0
// A step that is taken in slices: how far it is, and the lock for the calls that take them. scaler_slices.cpp takes the
// step from slice to slice.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "core/rules/step.h"

namespace gsc {

/// Chunks [first, last) of a phase, and the bytes that it reads and writes for them.
struct ChunkRange {
  int64_t first, last;
  int64_t bytes;
};

/// Belongs to an optimizer. Guarded by its scaler's SliceLock.
struct StepSlices {
  enum class Part : uint8_t { kNone, kCheck, kPrepare, kMoments, kApply };

  uint64_t id = 0;  ///< of the last step in slices, as Iteration::slices(); 0: there was none
  Part phase = Part::kNone;
  bool is_begun = false;  ///< state or parameters may have changed, so that only the rest of the step makes them whole
  bool is_skipped = false;       ///< the host knows that the step is
  bool is_closed = false;        ///< the phase's last range, which has run or is about to, ends the phase as well
  int64_t next = 0;              ///< first chunk of the phase that no call has taken
  int32_t running = 0;           ///< ranges of chunks that calls are working on
  int32_t callers = 0;           ///< calls that hold the optimizer ...
  int32_t callers_of_grads = 0;  ///< ... and its gradients
  double fp64_limit = 0.0;
  StepScalars scalars;
  std::atomic<int64_t> left{0};  ///< bytes to read and write until the step is done
};

/// Guards the bookkeeping of slices, which several threads take at once. It is not held while chunks are worked on,
/// and a call that finds it taken can return instead of waiting: it may be a callback of the call that holds it.
class SliceLock {
 public:
  explicit SliceLock(std::atomic<bool> &taken) : taken_(taken) {}
  SliceLock(const SliceLock &) = delete;
  SliceLock &operator=(const SliceLock &) = delete;
  ~SliceLock() {
    if (is_mine_) unlock();
  }
  bool try_lock() { return is_mine_ = !taken_.exchange(true, std::memory_order_acquire); }
  void lock() {
    while (!try_lock()) std::this_thread::yield();
  }
  void unlock() {
    is_mine_ = false;
    taken_.store(false, std::memory_order_release);
  }

 private:
  std::atomic<bool> &taken_;
  bool is_mine_ = false;
};

}  // namespace gsc
