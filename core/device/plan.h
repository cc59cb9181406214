// SPDX-License-Identifier: Apache-2.0
// A plan: tensors cut into chunks of one power-of-two size, numbered across the list. The cut depends on the element
// counts alone, never on the device or the thread count, because sums are grouped by chunk (reduction.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/memory.h"
#include "core/device/tensor.h"
#include "core/rules/check.h"

namespace gsc {

class Plan {
 public:
  explicit Plan(std::pmr::memory_resource *memory)
      : tensors_(memory),
        bound_(memory),
        first_chunk_(memory),
        run_end_(memory),
        splits_(memory),
        partials_(memory),
        backend_memory_(memory) {}

  /// Takes validated tensors and cuts them for up to `pieces` parallel tasks. Reuses its memory when called again.
  void build(const gsc_tensor *tensors, int64_t count, int32_t pieces);
  /// New addresses for the same shapes. Tensors that are absent stay absent.
  void rebind(void *const *data);
  /// Room for what set_present keeps, which then allocates nothing.
  void reserve_absent() { bound_.reserve(tensors_.size()); }
  /// Whether set_present was ever called.
  bool can_be_absent() const { return !bound_.empty(); }
  /// A tensor whose byte is 0 counts as empty from now on, but keeps its chunks. NULL: all are present. `data` is NULL or
  /// has new addresses; those of absent tensors may be NULL. A tensor without elements is always present.
  void set_present(const uint8_t *present, void *const *data);

  int64_t size() const { return static_cast<int64_t>(tensors_.size()); }
  const Tensor &tensor(int64_t i) const { return tensors_[i]; }
  const Tensor *tensors() const { return tensors_.data(); }
  /// Tensor `i` as it is when it is present.
  const Tensor &bound(int64_t i) const { return bounds()[i]; }
  const Tensor *bounds() const { return can_be_absent() ? bound_.data() : tensors_.data(); }
  bool is_absent(int64_t i) const { return tensor(i).count != bound(i).count; }
  bool has_absent() const { return has_absent_; }
  int64_t chunk_elements() const { return int64_t{1} << chunk_shift_; }
  int64_t chunk_count() const { return first_chunk_.empty() ? 0 : first_chunk_.back(); }
  /// Chunks of tensors before `i`; i = size() gives chunk_count().
  int64_t first_chunk(int64_t i) const { return first_chunk_[i]; }
  /// The tensor that chunk `chunk` belongs to.
  int64_t tensor_of(int64_t chunk) const;
  /// Tensors [i, run_end(i)) are of one dtype and lie in memory one after the other. Empty tensors lie anywhere; an
  /// absent one ends the run.
  int64_t run_end(int64_t i) const { return run_end_[i]; }
  /// Parallel tasks of about equal cost; task t covers chunks [split(t), split(t + 1)).
  int32_t task_count() const { return static_cast<int32_t>(splits_.size()) - 1; }
  int64_t split(int32_t t) const { return splits_[t]; }
  /// Into how many tasks a part of this many chunks is worth being cut.
  int32_t task_count(int64_t chunks) const;
  /// Of all tensors, absent or not.
  int64_t total_elements() const { return total_elements_; }
  int64_t total_bytes() const { return total_bytes_; }

  /// One partial per chunk, made on first use so that lists which are never summed do without.
  void need_partials() { partials_.resize(chunk_count()); }
  ChunkPartial *partials() { return partials_.data(); }

  /// For a backend to work in while it prepares a pass, by one thread at a time; kept, so that the next pass allocates
  /// nothing.
  Vec<int64_t> &backend_memory() const { return backend_memory_; }

  /// The smallest magnitude of fp64 gradients that counts as inf.
  double fp64_limit() const {
    return fp32_optimizers_.load(std::memory_order_relaxed) > 0 ? kFp64AsFp32Limit : kFp64Limit;
  }
  /// One optimizer more, or less, that narrows them to fp32. From any thread: it may be a finalizer's.
  void add_fp32_optimizers(int32_t difference) { fp32_optimizers_.fetch_add(difference, std::memory_order_relaxed); }

  /// The backend's own data for this plan; NULL if it keeps none.
  void *mirror() const { return mirror_; }
  void set_mirror(void *mirror) { mirror_ = mirror; }

  /// Calls f(tensor_index, offset, elements, chunk) for every chunk of [begin, end). Chunks of absent tensors have 0
  /// elements.
  template <typename F>
  void for_chunks(int64_t begin, int64_t end, const F &f) const {
    for_chunks(begin, end, f, [](int64_t, int64_t, int64_t) { return int64_t{0}; });
  }

  /// The same, where batch(tensor_index, chunk, end) may deal with whole tensors of one chunk each, and returns with how
  /// many it did. It is asked where a tensor begins; f gets the rest.
  template <typename F, typename B>
  void for_chunks(int64_t begin, int64_t end, const F &f, const B &batch) const {
    int64_t t = begin < end ? tensor_of(begin) : 0;
    for (int64_t chunk = begin; chunk < end;) {
      while (chunk >= first_chunk(t + 1)) ++t;
      const int64_t offset = (chunk - first_chunk(t)) << chunk_shift_;
      if (const int64_t done = offset == 0 ? batch(t, chunk, end) : 0; done > 0) {
        chunk += done;
        t += done - 1;
        continue;
      }
      const int64_t left = tensor(t).count - offset;
      f(t, offset, left < 0 ? 0 : (left < chunk_elements() ? left : chunk_elements()), chunk);
      ++chunk;
    }
  }

  /// Calls f(tensor_index, offset, elements) for runs of chunks of [begin, end): as long as the task and the tensors'
  /// places in memory allow, where what a chunk costs would be more than its elements. run_end(i, limit) is the end of
  /// the tensors from i that may be merged, at most `limit`.
  template <typename R, typename F>
  void for_runs(int64_t begin, int64_t end, const R &run_end, const F &f) const {
    if (begin >= end) return;
    const int64_t limit = tensor_of(end - 1) + 1;
    for (int64_t t = tensor_of(begin); t < limit;) {
      if (tensor(t).count == 0) {
        ++t;  // or absent, without a valid address
        continue;
      }
      const int64_t next = run_end(t, limit);
      const int64_t before = begin - first_chunk(t);
      const int64_t offset = before > 0 ? before << chunk_shift_ : 0;
      int64_t elements = -offset;
      for (int64_t i = t; i < next; ++i) elements += tensor(i).count;
      if (first_chunk(next) > end) {  // the last tensor continues in the next task
        elements += ((end - first_chunk(next - 1)) << chunk_shift_) - tensor(next - 1).count;
      }
      f(t, offset, elements);
      t = next;
    }
  }

 private:
  void find_runs();

  Vec<Tensor> tensors_;
  Vec<Tensor> bound_;  ///< empty as long as no tensor was ever absent
  Vec<int64_t> first_chunk_;
  Vec<int64_t> run_end_;
  Vec<int64_t> splits_;
  Vec<ChunkPartial> partials_;
  mutable Vec<int64_t> backend_memory_;
  void *mirror_ = nullptr;
  std::atomic<int32_t> fp32_optimizers_{0};
  int64_t total_elements_ = 0;
  int64_t total_bytes_ = 0;
  int32_t chunk_shift_ = 0;
  bool has_absent_ = false;
};

}  // namespace gsc
