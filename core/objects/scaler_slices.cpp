// SPDX-License-Identifier: Apache-2.0
// A step in slices: the check, then the sweeps of the optimizer, a range of chunks at a time. On the CPU several threads
// may take slices of one step at once; the last to return from a phase begins the next. Other devices get the ranges in
// the order of the calls.
#include <algorithm>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "core/objects/scaler.h"

namespace gsc {
namespace {

using Part = StepSlices::Part;

/// Bytes that a phase reads and writes for each element of a tensor.
int64_t element_bytes(const Optimizer &optimizer, Part phase, int64_t tensor) {
  return phase == Part::kCheck ? dtype_bytes(optimizer.grads().plan().tensor(tensor).dtype)
                               : optimizer.step_bytes(tensor);
}

/// Bytes of a phase; of a check only those of tensors that have not been checked.
int64_t phase_bytes(const Optimizer &optimizer, Part phase) {
  const TensorList &grads = optimizer.grads();
  int64_t bytes = 0;
  for (int64_t t = 0; t < grads.plan().size(); ++t) {
    if (phase == Part::kCheck && grads.iteration.is_checked(t)) continue;
    bytes += grads.plan().tensor(t).count * element_bytes(optimizer, phase, t);
  }
  return bytes;
}

/// The chunks of a phase from `next` on that are within `budget`; with `at_least_one` also if the first exceeds it.
ChunkRange next_range(const Optimizer &optimizer, Part phase, int64_t next, int64_t budget, bool at_least_one) {
  const TensorList &grads = optimizer.grads();
  const Plan &plan = grads.plan();
  ChunkRange range{next, next, 0};
  const auto is_done = [&](int64_t t) { return phase == Part::kCheck && grads.iteration.is_checked(t); };
  int64_t t = 0;
  for (; range.first < plan.chunk_count(); range.first = plan.first_chunk(t + 1)) {
    t = plan.tensor_of(range.first);
    if (!is_done(t)) break;
  }
  for (range.last = range.first; range.last < plan.chunk_count(); ++range.last) {
    while (range.last >= plan.first_chunk(t + 1)) ++t;
    if (is_done(t)) break;
    const int64_t left = plan.tensor(t).count - (range.last - plan.first_chunk(t)) * plan.chunk_elements();
    const int64_t bytes = std::clamp<int64_t>(left, 0, plan.chunk_elements()) * element_bytes(optimizer, phase, t);
    if (bytes > budget - range.bytes && !(at_least_one && range.last == range.first)) break;
    range.bytes += bytes;
  }
  return range;
}

/// Keeps other calls off an object while slices of a step run. Made and ended under the SliceLock.
class Held {
 public:
  Held(Object &object, int32_t &callers, const Argument &name) : object_(object), callers_(callers) {
    if (callers_ == 0 && !object_.begin_call()) {
      fail(GSC_ERROR_BAD_STATE, name,
           "is in use by a call that has not returned; its callbacks cannot use it, nor can other threads");
    }
    ++callers_;
  }
  Held(const Held &) = delete;
  Held &operator=(const Held &) = delete;
  ~Held() {
    if (--callers_ == 0) object_.end_call();
  }

 private:
  Object &object_;
  int32_t &callers_;
};

}  // namespace

int64_t Scaler::step_slice(Optimizer &optimizer, int64_t max_bytes, gsc_stream stream) {
  if (max_bytes < 1) {
    refuse_value("max_bytes", max_bytes, "> 0");
  }
  TensorList &grads = optimizer.grads();
  StepSlices &s = optimizer.slices;
  SliceLock lock(slicing_);
  if (!lock.try_lock()) return std::max<int64_t>(s.left.load(std::memory_order_relaxed), 1);
  const Held held_scaler(*this, slicers_, "scaler");
  const Held held_optimizer(optimizer, s.callers, "optimizer");
  const Held held_grads(grads, s.callers_of_grads, "optimizer");
  CallStream call(*grads.context(), stream);
  run_slices(optimizer, max_bytes, call, lock);
  return s.left.load(std::memory_order_relaxed);
}

void Scaler::run_slices(Optimizer &optimizer, int64_t max_bytes, CallStream &call, SliceLock &lock) {
  StepSlices &s = optimizer.slices;
  TensorList &grads = optimizer.grads();
  if (grads.owner() == id_ && s.id != 0 && grads.iteration.slices() == s.id) {
    optimizer.require_whole_state();
    precede(grads, call);
    return continue_slices(optimizer, max_bytes, call, lock);
  }
  begin_slices(optimizer, call);
  try {
    continue_slices(optimizer, max_bytes, call, lock);
  } catch (...) {
    take_back(optimizer);
    throw;
  }
}

/// After a failure in the call that began a step: forgets the step, if nothing of it has run that must not be done twice.
/// The list stays in the iteration, and a check that has ended stays.
void Scaler::take_back(Optimizer &optimizer) {
  StepSlices &s = optimizer.slices;
  const Part first_sweep = optimizer.needs_norms() ? Part::kMoments : Part::kApply;
  const bool is_first =
      s.next == 0 && (s.phase == Part::kCheck || (s.phase == first_sweep && !optimizer.preparing_moves()));
  if (s.running > 0 || (!is_first && s.phase != Part::kPrepare)) return;
  optimizer.grads().iteration.begin_slices(0);
  optimizer.end_slices(s.id);
  s.phase = Part::kNone;
  s.is_begun = false;
  s.id = 0;
  s.left = 0;
}

void Scaler::continue_slices(Optimizer &optimizer, int64_t max_bytes, CallStream &call, SliceLock &lock) {
  StepSlices &s = optimizer.slices;
  const int64_t chunks = optimizer.grads().plan().chunk_count();
  for (int64_t budget = max_bytes; s.phase != Part::kNone;) {
    if (s.phase == Part::kPrepare) {
      decide(optimizer, call);
      // What begins the sweeps may move state already, so it waits for the slice that takes the first of their chunks.
      const ChunkRange first = next_range(optimizer, Part::kApply, 0, budget, budget == max_bytes);
      if (!s.is_skipped && budget < max_bytes && first.bytes == 0 && first.last < chunks) return;
      begin_sweeps(optimizer, call);
      continue;
    }
    const ChunkRange range = next_range(optimizer, s.phase, s.next, budget, budget == max_bytes);
    if (range.first < range.last) {
      run_range(optimizer, range, call, lock);
      budget -= std::min(range.bytes, budget);
      s.left.fetch_sub(range.bytes, std::memory_order_relaxed);
    } else if (range.last < chunks) {
      return;  // it does not fit
    } else {
      s.next = chunks;
    }
    if (s.next < chunks) continue;
    if (s.running > 0) return;  // the last to return goes on
    end_phase(optimizer, call);
  }
}

void Scaler::begin_slices(Optimizer &optimizer, CallStream &call) {
  begin_step(optimizer, call);
  StepSlices &s = optimizer.slices;
  TensorList &grads = optimizer.grads();
  Iteration &it = grads.iteration;
  const bool checks = it.stage() == Stage::kReady && (enabled() || it.is_norm_pending());
  if (checks && it.tensors_checked() == 0) multiply_by_factor(grads, call);
  if (checks && call.is_done_on_return() && it.tensors_checked() == 0) {
    CheckJob job = check_job(grads);
    job.begin = true;
    call.backend.check(job, call.stream());
  }
  s.id = new_id();
  s.phase = checks ? Part::kCheck : Part::kPrepare;
  s.is_begun = s.is_skipped = s.is_closed = false;
  s.next = checks ? 0 : grads.plan().chunk_count();
  s.fp64_limit = grads.plan().fp64_limit();
  s.left = (checks ? phase_bytes(optimizer, Part::kCheck) : 0) +
           (optimizer.needs_norms() ? 2 : 1) * phase_bytes(optimizer, Part::kApply);
  it.begin_slices(s.id);
  optimizer.begin_slices(s.id);
}

void Scaler::run_range(Optimizer &optimizer, const ChunkRange &range, CallStream &call, SliceLock &lock) {
  StepSlices &s = optimizer.slices;
  const bool moves = s.phase == Part::kApply ? !s.is_skipped : s.phase == Part::kMoments && optimizer.moments_move();
  const bool begins = moves && range.bytes > 0;
  if (!call.is_done_on_return()) {
    // In order on the device, so the last range can end the phase.
    s.is_closed = range.last == optimizer.grads().plan().chunk_count();
    run_chunks(optimizer, range.first, range.last, call);
    s.is_begun = s.is_begun || begins;
    s.next = range.last;
    return;
  }
  s.is_begun = s.is_begun || begins;
  s.next = range.last;
  ++s.running;
  lock.unlock();
  try {
    run_chunks(optimizer, range.first, range.last, call);
  } catch (...) {  // of a parallel-for that broke its contract; the range is done all the same
    lock.lock();
    --s.running;
    throw;
  }
  lock.lock();
  --s.running;
}

void Scaler::run_chunks(Optimizer &optimizer, int64_t first, int64_t last, CallStream &call) {
  const StepSlices &s = optimizer.slices;
  TensorList &grads = optimizer.grads();
  if (s.phase == Part::kCheck) {
    CheckJob job = check_job(grads);
    job.first_chunk = first;
    job.last_chunk = last;
    job.begin = !call.is_done_on_return() && first == 0 && grads.iteration.tensors_checked() == 0;
    job.finish = s.is_closed;
    grads.other_context.read.precede(call);
    call.backend.check(job, call.stream());
  } else {
    StepPart work{first, last, false, false, false, false, false};
    work.moments = s.phase == Part::kMoments;
    work.apply = s.phase == Part::kApply;
    work.finish = work.apply && s.is_closed;
    optimizer.run(s.scalars, work, call);
  }
  if (!call.is_done_on_return()) leave(grads, call);  // on the CPU other threads are at work on the list
}

void Scaler::end_phase(Optimizer &optimizer, CallStream &call) {
  StepSlices &s = optimizer.slices;
  TensorList &grads = optimizer.grads();
  Iteration &it = grads.iteration;
  const int64_t chunks = grads.plan().chunk_count();
  if (s.phase == Part::kMoments) {
    optimizer.run(s.scalars, {0, 0, false, false, true, false, false}, call);
    s.is_begun = s.is_begun || optimizer.ratios_move();
    s.phase = Part::kApply;
    s.is_closed = false;
    s.next = 0;
    return;
  }
  if (!s.is_closed) {
    s.is_closed = true;
    run_chunks(optimizer, chunks, chunks, call);
  }
  if (s.phase == Part::kCheck) {
    it.ranges_were_checked(0, grads.plan().size() - it.tensors_checked(), s.fp64_limit, false);
    conclude_check(grads, call);
    s.phase = Part::kPrepare;
    return;
  }
  it.was_stepped(enabled() && !optimizer.writes_grads());
  optimizer.end_slices(s.id);
  s.phase = Part::kNone;
  s.is_begun = false;
  s.left = 0;
}

/// After the check: whether and how the step is taken. Moves nothing.
void Scaler::decide(Optimizer &optimizer, CallStream &call) {
  StepSlices &s = optimizer.slices;
  TensorList &grads = optimizer.grads();
  if (enabled() || grads.iteration.is_norm_pending()) complete(grads, call);
  s.scalars = enabled() ? step_scalars(grads) : disabled_scalars(grads, call);
  const float *found_inf = s.scalars.found_inf;
  s.is_skipped = call.is_done_on_return() && found_inf != nullptr && *found_inf != 0.0F;
}

void Scaler::begin_sweeps(Optimizer &optimizer, CallStream &call) {
  StepSlices &s = optimizer.slices;
  optimizer.run(s.scalars, {0, 0, true, false, false, false, false}, call);
  s.is_begun = !s.is_skipped && optimizer.preparing_moves();
  s.phase = optimizer.needs_norms() && !s.is_skipped ? Part::kMoments : Part::kApply;
  s.is_closed = false;
  s.next = s.is_skipped && !optimizer.zeroes_grads() ? optimizer.grads().plan().chunk_count() : 0;
  if (s.is_skipped) s.left = s.next > 0 ? 0 : phase_bytes(optimizer, Part::kApply);
}

}  // namespace gsc
