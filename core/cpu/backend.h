// SPDX-License-Identifier: Apache-2.0
// The CPU backend: kernels over plans in parallel regions. "Device memory" is host memory from the context's Resource.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory_resource>

#include "core/cpu/dispatch.h"
#include "core/cpu/kernels.h"
#include "core/cpu/parallel.h"
#include "core/device/backend.h"

namespace gsc::cpu {

inline char *element(const Tensor &t, int64_t offset) {
  return static_cast<char *>(t.data) + offset * dtype_bytes(t.dtype);
}

inline void add_relaxed(int64_t &word, int64_t value) {
  std::atomic_ref<int64_t>(word).fetch_add(value, std::memory_order_relaxed);
}

inline void min_relaxed(int64_t &word, int64_t value) {
  std::atomic_ref<int64_t> ref(word);
  int64_t seen = ref.load(std::memory_order_relaxed);
  while (value < seen && !ref.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

/// Above this size (parameters of a step, or all arrays of an element-wise operation) write-only results use
/// non-temporal stores: they would not stay in the caches.
inline constexpr int64_t kStreamingBytes = int64_t{32} << 20;

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::pmr::memory_resource *memory, const Kernels *kernels, int32_t threads,
             gsc_parallel_for_fn parallel_for, void *parallel_for_user);

  void *allocate(int64_t bytes) override;
  void release(void *memory, int64_t bytes) noexcept override;
  void write(void *device, const void *host, int64_t bytes, gsc_stream stream) override;
  void write_sync(void *device, const void *host, int64_t bytes, gsc_stream stream) override;
  void read_sync(void *host, const void *device, int64_t bytes, gsc_stream stream) override;
  void validate_memory(const gsc_tensor *tensors, int64_t count, const Argument &what) override;
  bool host_visible() const override { return true; }
  int32_t wanted_tasks() const override;

  void bind(Plan & /*plan*/) override {}
  void rebind(const Plan & /*plan*/, void *const * /*data*/, gsc_stream /*stream*/) override {}
  void unbind(Plan & /*plan*/) noexcept override {}

  void check(const CheckJob &job, gsc_stream stream) override;
  void apply(const ApplyJob &job, gsc_stream stream) override;
  void elementwise(const ElementwiseJob &job, gsc_stream stream) override;
  void norm(const NormJob &job, gsc_stream stream) override;
  void record(const RecordJob &job, gsc_stream stream) override;
  void convert(const StateConversion &job, gsc_stream stream) override;
  void diagnose_sync(const DiagnoseJob &job, gsc_stream stream) override;

 private:
  /// A check without a record, for plans that keep no partial results.
  void check_alone(const CheckJob &job);
  void run_apply(const ApplyJob &job);
  void zero_chunks(const Plan &plan, int64_t begin, int64_t end);
  /// f(first, last) for chunks [begin, end): as the plan's tasks, or if it is a part of the plan as equal ones.
  template <typename F>
  void for_tasks(const Plan &plan, int64_t begin, int64_t end, const F &f) {
    const int64_t chunks = end - begin;
    if (chunks == plan.chunk_count()) {
      parallel_.run(plan.task_count(), [&](int32_t task) { f(plan.split(task), plan.split(task + 1)); });
    } else if (chunks > 0) {
      // One for each thread if there are not enough for all of them, so that all end together. The larger ones first,
      // which the calling thread begins at once.
      const int32_t most = plan.task_count(chunks);
      const int32_t tasks = most < plan.task_count() ? std::min(most, parallel_.threads()) : most;
      const auto split = [&](int64_t task) { return begin + (chunks * task + tasks - 1) / tasks; };
      parallel_.run(tasks, [&](int32_t task) { f(split(task), split(task + 1)); });
    }
  }
  /// Plan::for_chunks over chunks [begin, end), in parallel.
  template <typename... F>
  void for_chunks(const Plan &plan, int64_t begin, int64_t end, const F &...f) {
    for_tasks(plan, begin, end, [&](int64_t first, int64_t last) { plan.for_chunks(first, last, f...); });
  }

  std::pmr::memory_resource *memory_;
  const Kernels *kernels_;
  const ReadAhead ahead_ = best_read_ahead();
  /// Not where the next tile is read ahead: on Zen 5 two threads at four places each are slower than one thread.
  const bool in_places_ = ahead_ != ReadAhead::kNextTile;
  Parallel parallel_;
};

}  // namespace gsc::cpu
