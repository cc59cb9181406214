// SPDX-License-Identifier: Apache-2.0
// The backend interface: each call fills in a kernel's parameters and enqueues it. Steps mean the same, in the same
// order, as on the CPU backend.
#include "core/cuda/backend.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>
#include <vector>

#include "core/cuda/apply.h"
#include "core/cuda/check.h"
#include "core/cuda/conversion.h"
#include "core/cuda/diagnose.h"
#include "core/cuda/elementwise.h"
#include "core/cuda/memory.h"
#include "core/cuda/norm.h"
#include "core/cuda/plan_on_device.h"
#include "core/cuda/records.h"
#include "core/cuda/teams.h"
#include "core/device/join.h"

namespace gsc::cuda {

std::atomic<int32_t> CudaBackend::live_{0};

namespace {

/// Names the device and the driver if kernels cannot be loaded: they may be the reason.
void load_kernels(int device) {
  for (const auto preload : {preload_check, preload_norm, preload_apply, preload_elementwise, preload_conversion,
                             preload_diagnose, preload_records, preload_plan, preload_memory}) {
    const cudaError_t error = preload();
    if (error == cudaSuccess) continue;
    int major = 0, minor = 0, driver = 0;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    (void)cudaDriverGetVersion(&driver);
    char what[100];
    std::snprintf(what, sizeof what, "loading the kernels on CUDA device %d (sm_%d%d, driver for CUDA %d.%d)", device,
                  major, minor, driver / 1000, driver % 1000 / 10);
    cuda::check(error, what, "cudaFuncGetAttributes");
  }
}

}  // namespace

CudaBackend::CudaBackend(std::pmr::memory_resource *memory, int32_t device, bool use_current, void *pool)
    : memory_(memory),
      context_(device, use_current),
      is_pool_given_(pool != nullptr),
      pool_(static_cast<cudaMemPool_t>(pool)),
      released_(memory),
      graph_memory_(memory) {
  released_.reserve(64);
  const DeviceGuard guard(context_);
  const RelaxedCapture relaxed;
  load_kernels(device);
  const char *what = "looking up the CUDA device";
  int units = 0;
  GSC_CUDA_CALL(what, cudaDeviceGetAttribute, &units, cudaDevAttrMultiProcessorCount, device);
  units_ = std::max(units, 1);
  int blocks = 0;
  cuda::check(count_check_blocks(blocks), what, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  check_slots_ = int64_t{units_} * blocks;
  int kilohertz = 0, bits = 0;
  GSC_CUDA_CALL(what, cudaDeviceGetAttribute, &kilohertz, cudaDevAttrMemoryClockRate, device);
  GSC_CUDA_CALL(what, cudaDeviceGetAttribute, &bits, cudaDevAttrGlobalMemoryBusWidth, device);
  // Two transfers a cycle, of which a copy reaches 0.8 on an H200. A device that shares the host's memory may report 0.
  const double bytes_per_us = 0.8 * 2.0 * kilohertz / 1e3 * bits / 8.0;
  bytes_per_us_ = bytes_per_us > 0.0 ? bytes_per_us : kH200BytesPerUs * units_;
  int uses_host_tables = 0;
  GSC_CUDA_CALL(what, cudaDeviceGetAttribute, &uses_host_tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables,
                device);
  reads_pageable_ = uses_host_tables != 0;
  int has_pools = 0;
  GSC_CUDA_CALL(what, cudaDeviceGetAttribute, &has_pools, cudaDevAttrMemoryPoolsSupported, device);
  GSC_CUDA_CALL("creating a stream", cudaStreamCreateWithFlags, &setup_stream_, cudaStreamNonBlocking);
  try {
    if (has_pools != 0 && !is_pool_given_) create_pool();
  } catch (...) {
    cudaStreamDestroy(setup_stream_);
    throw;
  }
  live_.fetch_add(1, std::memory_order_relaxed);
}

void CudaBackend::create_pool() {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = context_.device();
  const char *what = "creating a memory pool";
  GSC_CUDA_CALL(what, cudaMemPoolCreate, &pool_, &properties);
  // Keeps scratch memory between calls.
  uint64_t keep = UINT64_MAX;
  const cudaError_t error = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep);
  if (error == cudaSuccess) return;
  cudaMemPoolDestroy(pool_);
  cuda::check(error, what, "cudaMemPoolSetAttribute");
}

CudaBackend::~CudaBackend() {
  live_.fetch_sub(1, std::memory_order_relaxed);
  free_released();
  tidy_up([&] {
    for (void *memory : graph_memory_) give_back(memory);
    cudaStreamDestroy(setup_stream_);
    if (pool_ != nullptr && !is_pool_given_) cudaMemPoolDestroy(pool_);
  });
}

void *CudaBackend::obtain(int64_t bytes, const char *purpose, cudaMemPool_t pool, cudaStream_t stream) {
  void *memory = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  const auto attempt = [&] {
    if (pool != nullptr) return cudaMallocFromPoolAsync(&memory, size, pool, stream);
    const RelaxedCapture relaxed;
    return cudaMalloc(&memory, size);
  };
  cudaError_t error = attempt();
  if (error == cudaErrorMemoryAllocation && free_released()) {
    (void)cudaGetLastError();
    error = attempt();
  }
  if (error == cudaSuccess) return memory;
  char what[100];
  std::snprintf(what, sizeof what, "allocation of %lld bytes%s on CUDA device %d", static_cast<long long>(bytes),
                purpose, context_.device());
  cuda::check(error, what, pool != nullptr ? "cudaMallocFromPoolAsync" : "cudaMalloc");
  return nullptr;
}

void *CudaBackend::take(int64_t bytes, const char *purpose) {
  return obtain(bytes, purpose, is_pool_given_ ? pool_ : nullptr, setup_stream_);
}

void CudaBackend::give_back(void *memory) {
  if (is_pool_given_) {
    cudaFreeAsync(memory, setup_stream_);
  } else {
    cudaFree(memory);
  }
}

void *CudaBackend::allocate(int64_t bytes) {
  free_released();
  const DeviceGuard guard(context_);
  const RelaxedCapture relaxed;
  void *memory = take(bytes, "");
  try {
    GSC_CUDA_CALL("clearing new memory", cudaMemsetAsync, memory, 0, static_cast<std::size_t>(bytes), setup_stream_);
    GSC_CUDA_CALL("clearing new memory", cudaStreamSynchronize, setup_stream_);
  } catch (...) {
    give_back(memory);
    throw;
  }
  held_.fetch_add(bytes, std::memory_order_relaxed);
  return memory;
}

void CudaBackend::release(void *memory, int64_t bytes) noexcept {
  held_.fetch_sub(bytes, std::memory_order_relaxed);
  if (is_pool_given_) return tidy_up([&] { give_back(memory); });
  // cudaFree waits for all work of the device, replays of graphs among them, and holds up other threads' calls
  // meanwhile. A finalizer must not: the next creation frees the memory, unless it is worth having at once.
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  try {
    const std::lock_guard<std::mutex> lock(memory_mutex_);
    released_.push_back(memory);
    released_bytes_ += bytes;
    if (released_bytes_ <= kMostBytes) return;
  } catch (const std::bad_alloc &) {
    tidy_up([&] { cudaFree(memory); });
    return;
  }
  free_released();
}

bool CudaBackend::free_released() noexcept {
  std::pmr::vector<void *> freed(memory_);
  {
    const std::lock_guard<std::mutex> lock(memory_mutex_);
    if (released_.empty()) return false;
    freed.swap(released_);
    released_bytes_ = 0;
  }
  tidy_up([&] {
    for (void *memory : freed) cudaFree(memory);
    freed.clear();
  });
  if (freed.empty()) return true;
  const std::lock_guard<std::mutex> lock(memory_mutex_);
  if (released_.empty()) released_.swap(freed);  // for the next time
  return false;
}

void *CudaBackend::keep_for_graph(int64_t bytes) {
  const RelaxedCapture relaxed;
  void *memory = take(bytes, kForScratch);
  try {
    const std::lock_guard<std::mutex> lock(memory_mutex_);
    graph_memory_.push_back(memory);
  } catch (...) {
    give_back(memory);
    throw;
  }
  held_.fetch_add(bytes, std::memory_order_relaxed);
  if (is_pool_given_) GSC_CUDA_CALL("allocating scratch memory", cudaStreamSynchronize, setup_stream_);
  return memory;
}

void CudaBackend::require_not_capturing(gsc_stream stream, const char *what) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  GSC_CUDA_CALL(what, cudaStreamIsCapturing, to_stream(stream), &status);
  if (status != cudaStreamCaptureStatusNone) {
    fail(GSC_ERROR_BAD_STATE, "stream", "is being captured, but %s waits for the device", what);
  }
}

void CudaBackend::write(void *device, const void *host, int64_t bytes, gsc_stream stream) {
  const DeviceGuard guard(context_);
  // In kernel parameters: a copy from pageable memory may block.
  for (int64_t done = 0; done < bytes; done += kParameterBytes) {
    const auto part = static_cast<int>(std::min<int64_t>(bytes - done, kParameterBytes));
    check_launch(launch_write(static_cast<char *>(device) + done, static_cast<const char *>(host) + done, part,
                              to_stream(stream)),
                 "writing to the device");
  }
}

void CudaBackend::write_sync(void *device, const void *host, int64_t bytes, gsc_stream stream) {
  copy_sync(device, host, bytes, cudaMemcpyHostToDevice, stream, "writing to the device");
}

void CudaBackend::read_sync(void *host, const void *device, int64_t bytes, gsc_stream stream) {
  copy_sync(host, device, bytes, cudaMemcpyDeviceToHost, stream, "reading from the device");
}

void CudaBackend::copy_sync(void *to, const void *from, int64_t bytes, cudaMemcpyKind kind, gsc_stream stream,
                            const char *what) {
  const DeviceGuard guard(context_);
  const RelaxedCapture relaxed;
  require_not_capturing(stream, what);
  GSC_CUDA_CALL(what, cudaMemcpyAsync, to, from, bytes, kind, to_stream(stream));
  GSC_CUDA_CALL(what, cudaStreamSynchronize, to_stream(stream));
}

void CudaBackend::finish_setup() {
  const DeviceGuard guard(context_);
  const RelaxedCapture relaxed;
  GSC_CUDA_CALL("setting up", cudaStreamSynchronize, setup_stream_);
}

void CudaBackend::validate_memory(const gsc_tensor *tensors, int64_t count, const Argument &what) {
  for (int64_t i = 0; i < count; ++i) {
    if (tensors[i].count == 0) continue;
    const Place place = place_of(tensors[i].data);
    if (place.kind == Place::Kind::kManaged) continue;
    if (place.kind == Place::Kind::kUnknown && reads_pageable_) continue;
    if (place.kind == Place::Kind::kHost) {
      const DeviceGuard guard(context_);
      const void *there = device_address(tensors[i].data);
      if (there == tensors[i].data) continue;
      if (there != nullptr) {
        refuse(what.tensor(i).field("data"),
               "is %p, which is pinned host memory that CUDA device %d has at %p: pass that address", tensors[i].data,
               context_.device(), there);
      }
    }
    if (place.kind != Place::Kind::kDevice) {
      refuse(what.tensor(i).field("data"),
             "is %p, which is host memory that is not pinned, or has been freed; the context is for CUDA device %d",
             tensors[i].data, context_.device());
    }
    if (place.device != context_.device()) {
      refuse(what.tensor(i).field("data"), "is memory of CUDA device %d, but the context is for CUDA device %d",
             place.device, context_.device());
    }
    if (place.context != nullptr && place.context != context_.handle()) {
      refuse(what.tensor(i).field("data"),
             "is memory of another CUDA context of device %d, which kernels of this one cannot reach; create the "
             "gsc_context with GSC_CONTEXT_USE_CURRENT while that CUDA context is current",
             place.device);
    }
  }
}

void CudaBackend::check(const CheckJob &job, gsc_stream stream) {
  if (job.record == nullptr) return check_alone(job, stream);
  const DeviceGuard guard(context_);
  const Mirror *mirror = mirror_of(*job.plan);
  // The block that finishes a check clears its counters, and an unfinished check does not. It has its own, so that one
  // that is never finished leaves no counts to a check of the whole list, which may be in a graph already.
  CheckCounters *const counters = mirror->counters + (job.begin && job.finish ? 0 : 1);
  if (job.begin && !job.finish) check_launch(launch_reset_counters(counters, to_stream(stream)), "the check");
  CheckParams p{};
  p.plan = mirror->view;
  p.plan.warps_per_chunk = mirror->check_warps;
  p.inv_scale = job.inv_scale;
  p.first_chunk = job.first_chunk;
  p.last_chunk = job.last_chunk;
  p.partials = mirror->partials;
  p.counters = counters;
  p.record = job.record;
  p.rule = job.rule;
  p.fp64_limit = job.plan->fp64_limit();
  p.finish = job.finish;
  // A launch of its own judges the norm. In the last block of the check that would cost all its threads registers.
  const bool judges = job.conclude && job.finish && job.scaler != nullptr;
  p.conclude = job.conclude && !judges;
  check_launch(launch_check(p, job.unscale, check_slots_, to_stream(stream)), "the check");
  const auto finish = [&](cudaError_t error, const char *what) {
    if (error != cudaSuccess && job.half_done != nullptr) *job.half_done = true;
    check_launch(error, what);
  };
  if (job.finish && job.tensor_norms != nullptr) {
    NormParams norm{};
    norm.plan = p.plan;
    norm.partials = p.partials;
    norm.inv_scale = p.inv_scale;
    norm.out_tensor_norms = job.tensor_norms;
    finish(launch_norm(norm, to_stream(stream)), "the norms of the tensors");
  }
  if (!judges) return;
  finish(launch_record({.kind = RecordJob::Kind::kConclude,
                        .list = job.record,
                        .rule = job.rule,
                        .scaler = const_cast<ScalerRecord *>(job.scaler)},
                       to_stream(stream)),
         "judging the norm");
}

void CudaBackend::launch_apply(const ApplyParams &p, const StepPart &part, const Mirror &params, bool *half_done,
                               cudaStream_t stream) {
  bool has_begun = false;
  const auto launched = [&](cudaError_t error) {
    if (error != cudaSuccess) *half_done = has_begun;
    check_launch(error, has_begun ? "the rest of the step, of which a part has been done," : "the step");
    has_begun = true;
  };
  if (part.prepare && has_tensor_coefficients(p.step)) {
    launched(launch_prepare(p, stream));
  } else if (part.prepare && !shares_groups(p)) {
    check_launch(launch_prepare(p, stream), "the step");
  }
  const Arithmetic others = p.step.coded ? Arithmetic::kCoded : Arithmetic::kFp32;
  if (needs_norms(p.step.variant) && part.moments) {
    ApplyParams first = p;
    if (gradients_last(p.step.variant)) first.step.zero_grads = first.step.write_grads = false;
    if (params.has_others) launched(launch_moments(others, first, units_, stream));
    if (params.has_fp64) launched(launch_moments(Arithmetic::kFp64, first, units_, stream));
  }
  if (needs_norms(p.step.variant) && part.ratios) launched(launch_ratios(p, stream));
  if (!part.apply) return;
  ApplyParams last = p;
  if (params.has_others && params.has_fp64) {
    launched(cuda::launch_apply(others, p, units_, stream));
    last.finish = part.finish;
    launched(cuda::launch_apply(Arithmetic::kFp64, last, units_, stream));
    return;
  }
  last.finish = part.finish;
  launched(cuda::launch_apply(params.has_fp64 ? Arithmetic::kFp64 : others, last, units_, stream));
}

void CudaBackend::apply(const ApplyJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const Mirror &grads = *mirror_of(*job.grads);
  const Mirror &params = *mirror_of(*job.params);
  ApplyParams p{};
  p.grads = grads.view;
  p.params = params.tensors;
  if (job.model_copy != nullptr) p.model_copy = mirror_of(*job.model_copy)->tensors;
  for (int s = 0; s < kMaxStates; ++s) {
    if (job.state[s] != nullptr) p.state[s] = mirror_of(*job.state[s])->tensors;
    if (job.scales[s] != nullptr) p.scales[s] = mirror_of(*job.scales[s])->tensors;
  }
  if (job.remainder != nullptr) p.remainder = mirror_of(*job.remainder)->tensors;
  if (job.numbers != nullptr) p.numbers = mirror_of(*job.numbers)->tensors;
  if (job.ema != nullptr) p.ema = mirror_of(*job.ema)->tensors;
  p.partials = grads.partials;
  p.counters = grads.counters;
  p.step = job.step;
  p.first_chunk = job.part.first_chunk;
  p.last_chunk = job.part.last_chunk;
  launch_apply(p, job.part, params, job.half_done, to_stream(stream));
}

void CudaBackend::update(const RecordJob &job, cudaStream_t stream) {
  for (int64_t first = 0; first < job.list_count; first += PointerBatch::kCount) {
    PointerBatch batch{};
    const auto part = static_cast<int>(std::min<int64_t>(job.list_count - first, PointerBatch::kCount));
    std::copy_n(job.lists + first, part, batch.pointers);
    check_launch(launch_update(job.scaler, batch, part, first == 0, first + part == job.list_count, stream),
                 "the update");
  }
}

void CudaBackend::report(RecordJob job, cudaStream_t stream) {
  const Place::Kind kind = place_of(job.out).kind;
  void *there = kind == Place::Kind::kHost ? device_address(job.out) : nullptr;
  if (kind == Place::Kind::kUnknown && reads_pageable_) there = job.out;
  if (there == nullptr) {
    refuse("out_report", "is %p, which is not pinned host memory", static_cast<void *>(job.out));
  }
  job.out = static_cast<gsc_report *>(there);
  check_launch(launch_record(job, stream), "the report");
}

void CudaBackend::record(const RecordJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  switch (job.kind) {
    case RecordJob::Kind::kUpdate:
      return update(job, to_stream(stream));
    case RecordJob::Kind::kReport:
      return report(job, to_stream(stream));
    case RecordJob::Kind::kMultiply:
      return check_launch(launch_record(job, to_stream(stream)), "reading the device factor");
    case RecordJob::Kind::kConclude:
      return check_launch(launch_record(job, to_stream(stream)), "concluding the check");
    case RecordJob::Kind::kClip:
      return check_launch(launch_record(job, to_stream(stream)), "setting the clip factor");
    case RecordJob::Kind::kSetPolicy:
      return check_launch(launch_record(job, to_stream(stream)), "setting the options");
    case RecordJob::Kind::kSetScale:
      return check_launch(launch_record(job, to_stream(stream)), "setting the scale");
    case RecordJob::Kind::kUpdateScale:
      return check_launch(launch_record(job, to_stream(stream)), "updating the scale");
  }
}

void CudaBackend::elementwise(const ElementwiseJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  if (job.dst->chunk_count() == 0) return;
  const bool filling = job.op == Elementwise::kFill;
  const char *what = filling ? "filling" : "the operation";
  const PlanOnDevice dst(*this, *job.dst, PlanOnDevice::Use::kElementwise, to_stream(stream));
  ElementwiseParams p{};
  p.dst = dst.view();
  p.factor = job.factor;
  p.a = job.a;
  p.b = job.b;
  p.op = job.op;
  p.same = filling || job.src == job.dst;
  if (p.same) {
    p.src = p.dst.tensors;
    check_launch(launch_elementwise(p, units_, to_stream(stream)), what);
    return;
  }
  const PlanOnDevice src(*this, *job.src, PlanOnDevice::Use::kElementwise, to_stream(stream));
  p.src = src.view().tensors;
  check_launch(launch_elementwise(p, units_, to_stream(stream)), what);
}

void CudaBackend::convert(const StateConversion &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  if (job.count > 0) check_launch(launch_conversion(job, units_, to_stream(stream)), "the conversion");
}

void CudaBackend::norm(const NormJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const Plan &plan = *job.plan;
  const PlanOnDevice on_device(*this, plan, PlanOnDevice::Use::kNorm, to_stream(stream));
  CheckParams p{};
  p.plan = on_device.view();
  p.last_chunk = plan.chunk_count();
  p.partials = on_device.partials();
  p.fp64_limit = kFp64Limit;
  p.amax_keeps_nonfinite = true;
  check_launch(launch_check(p, false, check_slots_, to_stream(stream)), "the norm");
  NormParams norm{};
  norm.plan = p.plan;
  norm.partials = p.partials;
  norm.out_norm = job.out_norm;
  norm.out_tensor_norms = job.out_tensor_norms;
  norm.amax = job.amax;
  check_launch(launch_norm(norm, to_stream(stream)), "the norm");
}

void CudaBackend::check_alone(const CheckJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const Plan &plan = *job.plan;
  if (plan.chunk_count() == 0) return;
  const PlanOnDevice on_device(*this, plan, PlanOnDevice::Use::kCheck, to_stream(stream));
  CheckParams p{};
  p.plan = on_device.view();
  p.inv_scale = job.inv_scale;
  p.first_chunk = job.first_chunk;
  p.last_chunk = job.last_chunk;
  p.found_inf = job.found_inf;
  p.fp64_limit = kFp64Limit;
  check_launch(launch_check(p, true, check_slots_, to_stream(stream)), "unscaling");
}

void CudaBackend::diagnose_sync(const DiagnoseJob &job, gsc_stream stream) {
  const Plan &plan = *job.plan;
  int64_t *histogram = job.histogram;
  const DeviceGuard guard(context_);
  const RelaxedCapture relaxed;
  require_not_capturing(stream, "diagnose");
  const int64_t bins = histogram != nullptr ? plan.size() * GSC_EXPONENT_BINS : 0;
  const int64_t chunk_bytes = plan.chunk_count() * int64_t{sizeof(ChunkDiagnosis)};
  const int64_t bin_bytes = bins * int64_t{sizeof(int64_t)};
  std::pmr::vector<ChunkDiagnosis> chunks(plan.chunk_count(), memory_);
  std::pmr::vector<int64_t> counts(bins, 0, memory_);
  if (plan.chunk_count() > 0) {
    const cudaStream_t s = to_stream(stream);
    const PlanOnDevice on_device(*this, plan, PlanOnDevice::Use::kDiagnose, s);
    const Scratch scratch(*this, chunk_bytes + bin_bytes, s);
    DiagnoseParams p{on_device.view(), static_cast<ChunkDiagnosis *>(scratch.data()), nullptr};
    if (histogram != nullptr) p.histogram = reinterpret_cast<int64_t *>(p.out + plan.chunk_count());
    const char *what = "diagnose";
    if (bins > 0) GSC_CUDA_CALL(what, cudaMemsetAsync, p.histogram, 0, bin_bytes, s);
    check_launch(launch_diagnose(p, units_, s), what);
    GSC_CUDA_CALL(what, cudaMemcpyAsync, chunks.data(), p.out, chunk_bytes, cudaMemcpyDeviceToHost, s);
    if (bins > 0) {
      GSC_CUDA_CALL(what, cudaMemcpyAsync, counts.data(), p.histogram, bin_bytes, cudaMemcpyDeviceToHost, s);
    }
    GSC_CUDA_CALL(what, cudaStreamSynchronize, s);
  }
  std::copy(counts.begin(), counts.end(), histogram);
  for (int64_t t = 0; t < plan.size(); ++t) job.out[t] = join_diagnoses(plan, t, chunks);
}

}  // namespace gsc::cuda
