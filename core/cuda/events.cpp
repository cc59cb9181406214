// SPDX-License-Identifier: Apache-2.0
// Ordering and copies between two CUDA backends, on the same device or two: all stream-ordered.
#include "core/cuda/backend.h"

namespace gsc::cuda {
namespace {

struct Event {
  cudaEvent_t event;
  unsigned long long capture;  ///< id of the capture it was recorded in; 0: none
};

/// The id of the capture that `stream` takes part in; 0: none.
unsigned long long capture_of(cudaStream_t stream, const char *what) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  GSC_CUDA_CALL(what, cudaStreamGetCaptureInfo, stream, &status, &id);
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

}  // namespace

void *CudaBackend::make_event() {
  const DeviceGuard guard(context_);
  std::pmr::polymorphic_allocator<Event> allocator(memory_);
  Event *made = allocator.allocate(1);
  *made = {};
  const cudaError_t error = cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming);
  if (error != cudaSuccess) {
    allocator.deallocate(made, 1);
    cuda::check(error, "creating an event", "cudaEventCreateWithFlags");
  }
  return made;
}

void CudaBackend::destroy_event(void *event) noexcept {
  auto *e = static_cast<Event *>(event);
  tidy_up([&] { cudaEventDestroy(e->event); });
  std::pmr::polymorphic_allocator<Event>(memory_).deallocate(e, 1);
}

void CudaBackend::record_event(void *event, gsc_stream stream) {
  const char *what = "recording an event";
  auto *e = static_cast<Event *>(event);
  try {
    const DeviceGuard guard(context_);
    e->capture = capture_of(to_stream(stream), what);
    GSC_CUDA_CALL(what, cudaEventRecord, e->event, to_stream(stream));
  } catch (const Error &) {
    // The work that the event marks is already enqueued, so the call must not fail because of the event. Waiting for
    // the work replaces it: no one needs to wait for finished work.
    const DeviceGuard guard(context_);
    const RelaxedCapture relaxed;
    require_not_capturing(stream, what);
    GSC_CUDA_CALL(what, cudaStreamSynchronize, to_stream(stream));
  }
}

void CudaBackend::wait_event(const void *event, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const auto *e = static_cast<const Event *>(event);
  if (capture_of(to_stream(stream), "waiting for an event") != e->capture) return;
  GSC_CUDA_CALL("waiting for an event", cudaStreamWaitEvent, to_stream(stream), e->event, 0);
}

void CudaBackend::copy_from(void *to, const Backend &source, const void *from, int64_t bytes, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const auto &other = static_cast<const CudaBackend &>(source);
  copy_between(context_, to, other.context_, from, bytes, to_stream(stream));
}

}  // namespace gsc::cuda
