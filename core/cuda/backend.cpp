// SPDX-License-Identifier: Apache-2.0
// The calls of the backend interface: each fills in a kernel's parameters and enqueues it. Meaning and order of every
// step are those of the CPU backend.
#include "core/cuda/backend.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cuda/apply.h"
#include "core/cuda/check.h"
#include "core/cuda/diagnose.h"
#include "core/cuda/elementwise.h"
#include "core/cuda/memory.h"
#include "core/cuda/norm.h"
#include "core/cuda/plan_on_device.h"
#include "core/cuda/records.h"
#include "core/device/join.h"

namespace gsc::cuda {

std::atomic<int32_t> CudaBackend::live_{0};

CudaBackend::CudaBackend(std::pmr::memory_resource *memory, int32_t device, bool use_current)
    : memory_(memory), context_(device, use_current) {
  const DeviceGuard guard(context_);
  const RelaxedCapture relaxed;
  for (const auto preload : {preload_check, preload_norm, preload_apply, preload_apply_fp32, preload_apply_fp64,
                             preload_elementwise, preload_diagnose, preload_records, preload_plan, preload_memory}) {
    cuda::check(preload(), "loading the kernels");
  }
  int units = 0;
  cuda::check(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device), "looking up the CUDA device");
  units_ = std::max(units, 1);
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cuda::check(cudaStreamCreateWithFlags(&setup_stream_, cudaStreamNonBlocking), "creating a stream");
  cudaError_t error = cudaMemPoolCreate(&pool_, &properties);
  if (error == cudaSuccess) {
    // Scratch memory is kept from call to call.
    uint64_t keep = UINT64_MAX;
    error = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep);
    if (error != cudaSuccess) cudaMemPoolDestroy(pool_);
  }
  if (error != cudaSuccess) {
    cudaStreamDestroy(setup_stream_);
    cuda::check(error, "creating a memory pool");
  }
  live_.fetch_add(1, std::memory_order_relaxed);
}

CudaBackend::~CudaBackend() {
  live_.fetch_sub(1, std::memory_order_relaxed);
  try {
    const DeviceGuard guard(context_);
    const RelaxedCapture relaxed;
    cudaStreamDestroy(setup_stream_);
    cudaMemPoolDestroy(pool_);
    (void)cudaGetLastError();
  } catch (const Error &) {
    // The CUDA context has gone, and the stream and the pool with it.
  }
}

void *CudaBackend::allocate(int64_t bytes) {
  const DeviceGuard guard(context_);
  const RelaxedCapture relaxed;
  void *memory = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  if (cudaMalloc(&memory, size) != cudaSuccess) {
    (void)cudaGetLastError();
    fail(GSC_ERROR_OUT_OF_MEMORY, kNoArgument, "allocation of %lld bytes on CUDA device %d failed",
         static_cast<long long>(bytes), context_.device());
  }
  cudaError_t error = cudaMemsetAsync(memory, 0, size, setup_stream_);
  if (error == cudaSuccess) error = cudaStreamSynchronize(setup_stream_);
  if (error != cudaSuccess) {
    cudaFree(memory);
    cuda::check(error, "clearing new memory");
  }
  return memory;
}

void CudaBackend::release(void *memory, int64_t /*bytes*/) noexcept {
  try {
    const DeviceGuard guard(context_);
    const RelaxedCapture relaxed;
    // Waits for work that may still use the memory.
    if (cudaFree(memory) != cudaSuccess) (void)cudaGetLastError();
  } catch (const Error &) {
    // The driver has gone, and the memory with it.
  }
}

void CudaBackend::require_not_capturing(gsc_stream stream, const char *what) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(to_stream(stream), &status);
  cuda::check(error, what);
  if (status != cudaStreamCaptureStatusNone) {
    fail(GSC_ERROR_BAD_STATE, "stream", "is being captured, but %s waits for the device", what);
  }
}

void CudaBackend::write(void *device, const void *host, int64_t bytes, gsc_stream stream) {
  const DeviceGuard guard(context_);
  // In kernel parameters, because a copy of pageable memory may wait.
  for (int64_t done = 0; done < bytes; done += kParameterBytes) {
    const auto part = static_cast<int>(std::min<int64_t>(bytes - done, kParameterBytes));
    cuda::check(launch_write(static_cast<char *>(device) + done, static_cast<const char *>(host) + done, part,
                             to_stream(stream)),
                "writing to the device");
  }
}

void CudaBackend::write_sync(void *device, const void *host, int64_t bytes, gsc_stream stream) {
  const DeviceGuard guard(context_);
  require_not_capturing(stream, "writing to the device");
  cuda::check(cudaMemcpyAsync(device, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, to_stream(stream)),
              "writing to the device");
  cuda::check(cudaStreamSynchronize(to_stream(stream)), "writing to the device");
}

void CudaBackend::read_sync(void *host, const void *device, int64_t bytes, gsc_stream stream) {
  const DeviceGuard guard(context_);
  require_not_capturing(stream, "reading from the device");
  cuda::check(cudaMemcpyAsync(host, device, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, to_stream(stream)),
              "reading from the device");
  cuda::check(cudaStreamSynchronize(to_stream(stream)), "reading from the device");
}

void CudaBackend::finish_setup() {
  const DeviceGuard guard(context_);
  const RelaxedCapture relaxed;
  cuda::check(cudaStreamSynchronize(setup_stream_), "setting up");
}

void CudaBackend::validate_memory(const gsc_tensor *tensors, int64_t count, const Argument &what) {
  const DeviceGuard guard(context_);
  for (int64_t i = 0; i < count; ++i) {
    if (tensors[i].count == 0) continue;
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, tensors[i].data) != cudaSuccess) {
      (void)cudaGetLastError();
      attributes.type = cudaMemoryTypeUnregistered;
    }
    if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i).field("data"),
           "is %p, which is host memory or has been freed; the context is of CUDA device %d", tensors[i].data,
           context_.device());
    }
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != context_.device()) {
      fail(GSC_ERROR_INVALID_ARGUMENT, what.tensor(i).field("data"),
           "is memory of CUDA device %d, but the context is of CUDA device %d", attributes.device, context_.device());
    }
  }
}

void CudaBackend::check(const CheckJob &job, gsc_stream stream) {
  if (job.record == nullptr) return check_alone(job, stream);
  const DeviceGuard guard(context_);
  auto *mirror = static_cast<Mirror *>(job.plan->mirror());
  // The block that finishes a check leaves the counters empty; one that was broken off does not.
  if (job.begin && (mirror->counted || !job.finish)) {
    cuda::check(launch_reset_counters(mirror->counters, to_stream(stream)), "the check");
  }
  CheckParams p{};
  p.plan = mirror->view;
  p.inv_scale = job.inv_scale;
  p.first_chunk = job.first_chunk;
  p.last_chunk = job.last_chunk;
  p.partials = mirror->partials;
  p.counters = mirror->counters;
  p.record = job.record;
  p.rule = job.rule;
  p.fp64_limit = job.plan->fp64_limit();
  p.finish = job.finish;
  p.conclude = job.conclude;
  mirror->counted = !job.finish;
  cuda::check(launch_check(p, job.unscale, units_, to_stream(stream)), "the check");
}

void CudaBackend::launch_apply(const ApplyParams &p, const Mirror &params, cudaStream_t stream) {
  const char *what = "the step";
  if (p.group_count > kMaxSharedGroups) cuda::check(launch_prepare(p, stream), what);
  if (needs_norms(p.variant)) {
    if (params.has_others) cuda::check(launch_moments_fp32(p, units_, stream), what);
    if (params.has_fp64) cuda::check(launch_moments_fp64(p, units_, stream), what);
    cuda::check(launch_ratios(p, stream), what);
  }
  ApplyParams last = p;
  if (params.has_others && params.has_fp64) {
    cuda::check(launch_apply_fp32(p, units_, stream), what);
    last.finish = true;
    cuda::check(launch_apply_fp64(last, units_, stream), what);
    return;
  }
  last.finish = true;
  cuda::check((params.has_fp64 ? launch_apply_fp64 : launch_apply_fp32)(last, units_, stream), what);
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
  }
  p.group_of = job.group_of;
  p.groups = job.groups;
  p.coefficients = job.coefficients;
  p.ratios = job.ratios;
  p.partials = grads.partials;
  p.counters = grads.counters;
  p.record = job.record;
  p.inv_scale = job.inv_scale;
  p.clip = job.clip;
  p.found_inf = job.found_inf;
  p.clip_value = job.clip_value;
  p.update = job.update;
  p.checked = job.checked;
  p.variant = job.variant;
  p.group_count = job.group_count;
  p.maximize = job.maximize;
  p.zero_grads = job.zero_grads;
  p.write_grads = job.write_grads;
  p.device_lrs = job.device_lrs;
  launch_apply(p, params, to_stream(stream));
}

void CudaBackend::update(const RecordJob &job, cudaStream_t stream) {
  for (int64_t first = 0; first < job.list_count; first += PointerBatch::kCount) {
    PointerBatch batch{};
    const auto part = static_cast<int>(std::min<int64_t>(job.list_count - first, PointerBatch::kCount));
    std::copy_n(job.lists + first, part, batch.pointers);
    cuda::check(launch_update(job.scaler, batch, part, first == 0, first + part == job.list_count, stream),
                "the update");
  }
}

void CudaBackend::report(const RecordJob &job, cudaStream_t stream) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, job.out) != cudaSuccess || attributes.type != cudaMemoryTypeHost) {
    (void)cudaGetLastError();
    fail(GSC_ERROR_INVALID_ARGUMENT, "out_report", "is %p, which is not pinned host memory",
         static_cast<void *>(job.out));
  }
  const Scratch scratch(*this, sizeof(gsc_report), stream);
  RecordJob on_device = job;
  on_device.out = static_cast<gsc_report *>(scratch.data());
  cuda::check(launch_record(on_device, stream), "the report");
  cuda::check(cudaMemcpyAsync(job.out, scratch.data(), sizeof *job.out, cudaMemcpyDeviceToHost, stream), "the report");
}

void CudaBackend::record(const RecordJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  switch (job.kind) {
    case RecordJob::Kind::kUpdate:
      return update(job, to_stream(stream));
    case RecordJob::Kind::kReport:
      return report(job, to_stream(stream));
    case RecordJob::Kind::kConclude:
      return cuda::check(launch_record(job, to_stream(stream)), "concluding the check");
    case RecordJob::Kind::kSetPolicy:
      return cuda::check(launch_record(job, to_stream(stream)), "setting the options");
    case RecordJob::Kind::kSetScale:
      return cuda::check(launch_record(job, to_stream(stream)), "setting the scale");
    case RecordJob::Kind::kUpdateScale:
      return cuda::check(launch_record(job, to_stream(stream)), "updating the scale");
  }
}

void CudaBackend::elementwise(const ElementwiseJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  if (job.dst->chunk_count() == 0) return;
  const bool filling = job.op == Elementwise::kFill;
  const char *what = filling ? "filling" : "the operation";
  const PlanOnDevice dst(*this, *job.dst, false, to_stream(stream));
  ElementwiseParams p{};
  p.dst = dst.view();
  p.factor = job.factor;
  p.a = job.a;
  p.b = job.b;
  p.op = job.op;
  p.same = filling || job.src == job.dst;
  if (p.same) {
    p.src = p.dst.tensors;
    cuda::check(launch_elementwise(p, units_, to_stream(stream)), what);
    return;
  }
  const PlanOnDevice src(*this, *job.src, false, to_stream(stream));
  p.src = src.view().tensors;
  cuda::check(launch_elementwise(p, units_, to_stream(stream)), what);
}

void CudaBackend::norm(const NormJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const Plan &plan = *job.plan;
  const PlanOnDevice on_device(*this, plan, true, to_stream(stream));
  CheckParams p{};
  p.plan = on_device.view();
  p.last_chunk = plan.chunk_count();
  p.partials = on_device.partials();
  p.fp64_limit = kFp64Limit;
  p.amax_keeps_nonfinite = true;
  cuda::check(launch_check(p, false, units_, to_stream(stream)), "the norm");
  cuda::check(launch_norm({p.plan, p.partials, job.out_norm, job.out_tensor_norms, job.amax}, to_stream(stream)),
              "the norm");
}

void CudaBackend::check_alone(const CheckJob &job, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const Plan &plan = *job.plan;
  if (plan.chunk_count() == 0) return;
  const PlanOnDevice on_device(*this, plan, false, to_stream(stream));
  CheckParams p{};
  p.plan = on_device.view();
  p.inv_scale = job.inv_scale;
  p.first_chunk = job.first_chunk;
  p.last_chunk = job.last_chunk;
  p.found_inf = job.found_inf;
  p.fp64_limit = kFp64Limit;
  cuda::check(launch_check(p, true, units_, to_stream(stream)), "unscaling");
}

void CudaBackend::diagnose_sync(const DiagnoseJob &job, gsc_stream stream) {
  const Plan &plan = *job.plan;
  int64_t *histogram = job.histogram;
  const DeviceGuard guard(context_);
  require_not_capturing(stream, "diagnose");
  const int64_t bins = histogram != nullptr ? plan.size() * GSC_EXPONENT_BINS : 0;
  const int64_t chunk_bytes = plan.chunk_count() * static_cast<int64_t>(sizeof(ChunkDiagnosis));
  const int64_t bin_bytes = bins * static_cast<int64_t>(sizeof(int64_t));
  std::pmr::vector<ChunkDiagnosis> chunks(static_cast<std::size_t>(plan.chunk_count()), memory_);
  std::fill_n(histogram, bins, int64_t{0});
  if (plan.chunk_count() > 0) {
    const cudaStream_t s = to_stream(stream);
    const PlanOnDevice on_device(*this, plan, false, s);
    const Scratch scratch(*this, chunk_bytes + bin_bytes, s);
    DiagnoseParams p{on_device.view(), static_cast<ChunkDiagnosis *>(scratch.data()), nullptr};
    if (histogram != nullptr) p.histogram = reinterpret_cast<int64_t *>(p.out + plan.chunk_count());
    const char *what = "diagnose";
    if (bins > 0) cuda::check(cudaMemsetAsync(p.histogram, 0, static_cast<std::size_t>(bin_bytes), s), what);
    cuda::check(launch_diagnose(p, units_, s), what);
    cuda::check(cudaMemcpyAsync(chunks.data(), p.out, static_cast<std::size_t>(chunk_bytes), cudaMemcpyDeviceToHost, s),
                what);
    if (bins > 0) {
      cuda::check(
          cudaMemcpyAsync(histogram, p.histogram, static_cast<std::size_t>(bin_bytes), cudaMemcpyDeviceToHost, s),
          what);
    }
    cuda::check(cudaStreamSynchronize(s), what);
  }
  for (int64_t t = 0; t < plan.size(); ++t) {
    job.out[t] = join_diagnoses(
        plan, t, [&](int64_t chunk) -> const ChunkDiagnosis & { return chunks[static_cast<std::size_t>(chunk)]; });
  }
}

}  // namespace gsc::cuda
