// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: every pass is one or a few launches on the caller's stream. Only calls whose names end in _sync,
// creation and destruction wait for the device. Lists keep a mirror of their plan in device memory; stateless
// operations pass theirs in kernel parameters, into stream-ordered scratch memory.
#pragma once

#include <atomic>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "core/cuda/apply.h"
#include "core/cuda/plan.h"
#include "core/cuda/runtime.h"
#include "core/cuda/teams.h"
#include "core/device/backend.h"

namespace gsc::cuda {

/// A list's plan on the device.
struct Mirror {
  PlanView view;
  int32_t check_warps;  ///< that share a chunk in a check; `view` has those of a step
  DeviceTensor *tensors;
  const void **staged;  ///< room for an address of each tensor, if they are more than one launch can write
  ChunkPartial *partials;
  CheckCounters *counters;  ///< one for passes over the whole list, one for a check that takes several
  void *memory;             ///< one allocation for all of it
  bool has_fp64;            ///< tensors that are computed in fp64 when they are parameters
  bool has_others;
};

class CudaBackend final : public Backend {
 public:
  /// `pool`: the caller's cudaMemPool_t for all memory, or NULL.
  CudaBackend(std::pmr::memory_resource *memory, int32_t device, bool use_current, void *pool);
  ~CudaBackend() override;

  /// Number of backends in this process.
  static int32_t live_count() { return live_.load(std::memory_order_relaxed); }

  void *allocate(int64_t bytes) override;
  void release(void *memory, int64_t bytes) noexcept override;
  /// For memory of a pool, cudaFree waits for nothing.
  bool frees_in_order() const override { return is_pool_given_; }
  int64_t device_bytes() const override { return held_.load(std::memory_order_relaxed); }
  void write(void *device, const void *host, int64_t bytes, gsc_stream stream) override;
  void write_sync(void *device, const void *host, int64_t bytes, gsc_stream stream) override;
  void read_sync(void *host, const void *device, int64_t bytes, gsc_stream stream) override;
  void validate_memory(const gsc_tensor *tensors, int64_t count, const Argument &what) override;
  bool host_visible() const override { return false; }
  int32_t wanted_tasks() const override { return 1; }
  gsc_stream setup_stream() const override { return setup_stream_; }
  void finish_setup() override;

  StreamId identify(gsc_stream stream) override;
  void *make_event() override;
  void destroy_event(void *event) noexcept override;
  void record_event(void *event, gsc_stream stream) override;
  void wait_event(void *event, gsc_stream stream) override;
  void copy_from(void *to, const Backend &source, const void *from, int64_t bytes, gsc_stream stream) override;

  void bind(Plan &plan) override;
  void rebind(const Plan &plan, void *const *data, gsc_stream stream) override;
  void unbind(Plan &plan) noexcept override;

  void check(const CheckJob &job, gsc_stream stream) override;
  void apply(const ApplyJob &job, gsc_stream stream) override;
  void elementwise(const ElementwiseJob &job, gsc_stream stream) override;
  void norm(const NormJob &job, gsc_stream stream) override;
  void record(const RecordJob &job, gsc_stream stream) override;
  void convert(const StateConversion &job, gsc_stream stream) override;
  void diagnose_sync(const DiagnoseJob &job, gsc_stream stream) override;

 private:
  friend class Scratch;
  friend class PlanOnDevice;
  /// Runs f, which frees something, in the context. If the CUDA context is gone, so are its resources; an error here
  /// stems from earlier work, and there is no one to report it to.
  template <typename F>
  void tidy_up(const F &f) noexcept {
    try {
      const DeviceGuard guard(context_);
      const RelaxedCapture relaxed;
      f();
      (void)cudaGetLastError();
    } catch (const Error &) {
      return;
    }
  }
  void create_pool();
  /// Frees what has been released. True: there was some.
  bool free_released() noexcept;
  /// Memory for a captured call, whose graph may use it as long as this backend lives.
  void *keep_for_graph(int64_t bytes);
  void copy_sync(void *to, const void *from, int64_t bytes, cudaMemcpyKind kind, gsc_stream stream, const char *what);
  void require_not_capturing(gsc_stream stream, const char *what) const;
  /// A check without a record, for plans without a mirror.
  void check_alone(const CheckJob &job, gsc_stream stream);
  /// Memory of a pool, in the order of the stream, or if that is NULL of the device. If there is none, what has been
  /// released is freed. `purpose` follows the number of bytes in the message of a failure.
  void *obtain(int64_t bytes, const char *purpose, cudaMemPool_t pool, cudaStream_t stream);
  /// Memory of the pool that was given, in the order of the setup stream, or else of the device.
  void *take(int64_t bytes, const char *purpose);
  void give_back(void *memory);
  void update(const RecordJob &job, cudaStream_t stream);
  void report(RecordJob job, cudaStream_t stream);
  /// How many warps of a block share a chunk of the plan in a check, and how a step is cut. `shares` is scratch memory.
  int32_t check_warps(const Plan &plan, Vec<int64_t> &shares) const;
  Cut step_cut(const Plan &plan, Vec<int64_t> &shares) const;
  void launch_apply(const ApplyParams &p, const StepPart &part, const Mirror &params, bool *half_done,
                    cudaStream_t stream);

  static constexpr const char *kForScratch = " of scratch memory";

  static std::atomic<int32_t> live_;
  std::pmr::memory_resource *memory_;
  DeviceContext context_;
  int32_t units_ = 1;          ///< multiprocessors
  int64_t check_slots_ = 1;    ///< resident blocks of a check on the whole device
  double bytes_per_us_ = 1.0;  ///< that the memory bus moves
  cudaStream_t setup_stream_ = nullptr;
  const bool is_pool_given_;
  cudaMemPool_t pool_ = nullptr;  ///< for scratch, or given and for all memory; NULL: the device has none
  bool reads_pageable_ = false;   ///< kernels reach all host memory, by the host's page tables

  std::mutex memory_mutex_;
  std::pmr::vector<void *> released_;  ///< and not freed yet
  int64_t released_bytes_ = 0;
  std::pmr::vector<void *> graph_memory_;
  std::atomic<int64_t> held_{0};  ///< bytes of allocate and keep_for_graph
};

}  // namespace gsc::cuda
