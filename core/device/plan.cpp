// SPDX-License-Identifier: Apache-2.0
// Cutting tensors into chunks, and chunks into tasks of about equal cost.
#include "core/device/plan.h"

#include <algorithm>

namespace gsc {
namespace {

// Chunks: at most 2^16 elements (offender_key), at least 2^14 so that the plan stays under 0.1 % of the data, and about
// 4096 of them in between so that thousands of processors share the work evenly.
constexpr int32_t kMinChunkShift = 14;
constexpr int32_t kMaxChunkShift = 16;
constexpr int64_t kWantedChunks = 4096;

// What a chunk costs besides its elements, in elements: function calls, table look-ups, a cold cache line per array.
constexpr int64_t kChunkOverhead = 128;

// Below this a task is not worth waking a thread for.
constexpr int64_t kMinTaskCost = 32768;
// The same for a part of a plan, such as a slice of a step: threads are still awake from the part before.
constexpr int64_t kMinPartCost = 16384;

}  // namespace

void Plan::build(const gsc_tensor *tensors, int64_t count, int32_t pieces) {
  tensors_.resize(count);
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i] = {tensors[i].data, tensors[i].count, tensors[i].dtype};
  bound_.clear();
  has_absent_ = false;
  total_elements_ = 0;
  total_bytes_ = 0;
  for (const Tensor &t : tensors_) {
    total_elements_ += t.count;
    total_bytes_ += t.count * dtype_bytes(t.dtype);
  }
  chunk_shift_ = kMinChunkShift;
  while (chunk_shift_ < kMaxChunkShift && (total_elements_ >> chunk_shift_) > kWantedChunks) ++chunk_shift_;

  first_chunk_.resize(count + 1);
  int64_t chunks = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    first_chunk_[i] = chunks;
    chunks += (tensors_[i].count + chunk_elements() - 1) >> chunk_shift_;
  }
  first_chunk_.back() = chunks;
  find_runs();

  const int64_t cost = total_elements_ + chunks * kChunkOverhead;
  const int64_t tasks = std::clamp<int64_t>(cost / kMinTaskCost, 1, std::max<int32_t>(pieces, 1));
  splits_.assign(tasks + 1, chunks);
  splits_[0] = 0;
  int64_t done = 0;
  std::size_t next = 1;
  for_chunks(0, chunks, [&](int64_t, int64_t, int64_t elements, int64_t chunk) {
    done += elements + kChunkOverhead;
    while (next < static_cast<std::size_t>(tasks) && done * tasks >= cost * static_cast<int64_t>(next)) {
      splits_[next++] = chunk + 1;
    }
  });
}

int32_t Plan::task_count(int64_t chunks) const {
  const int64_t mean = kChunkOverhead + total_elements_ / std::max<int64_t>(chunk_count(), 1);
  return static_cast<int32_t>(std::clamp<int64_t>(chunks * mean / kMinPartCost, 1, task_count()));
}

void Plan::rebind(void *const *data) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (can_be_absent()) bound_[i].data = data[i];
    if (!is_absent(static_cast<int64_t>(i))) tensors_[i].data = data[i];
  }
  find_runs();
}

void Plan::set_present(const uint8_t *present, void *const *data) {
  if (!can_be_absent()) bound_ = tensors_;
  has_absent_ = false;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (data != nullptr) bound_[i].data = data[i];
    const bool is_here = present == nullptr || present[i] != 0 || bound_[i].count == 0;
    tensors_[i] = is_here ? bound_[i] : Tensor{nullptr, 0, bound_[i].dtype};
    has_absent_ = has_absent_ || !is_here;
  }
  find_runs();
}

void Plan::find_runs() {
  run_end_.resize(tensors_.size());
  const Tensor *next = nullptr;  // the first after tensor i that is not empty
  auto end = static_cast<int64_t>(tensors_.size());
  for (auto i = static_cast<int64_t>(tensors_.size()) - 1; i >= 0; --i) {
    const Tensor &t = tensor(i);
    if (is_absent(i)) {
      run_end_[i] = i + 1;
      end = i;
      next = nullptr;
      continue;
    }
    if (t.count > 0) {
      const char *after = static_cast<const char *>(t.data) + t.count * dtype_bytes(t.dtype);
      if (next != nullptr && (next->dtype != t.dtype || next->data != after)) end = i + 1;
      next = &t;
    }
    run_end_[i] = end;
  }
}

int64_t Plan::tensor_of(int64_t chunk) const {
  return std::upper_bound(first_chunk_.begin(), first_chunk_.end(), chunk) - first_chunk_.begin() - 1;
}

}  // namespace gsc
