// SPDX-License-Identifier: Apache-2.0
// Ordering of streams, and copies between two CUDA backends, on the same device or two: all stream-ordered.
#include "core/cuda/backend.h"

namespace gsc::cuda {

StreamId CudaBackend::identify(gsc_stream stream) {
  constexpr uint64_t kDefaultStream = UINT64_MAX;
  if (stream == nullptr || stream == cudaStreamLegacy) {
    // Memory of a given pool is released behind its object's last work, on any thread and while others capture streams,
    // when no event can be recorded on the default stream. So it is recorded with the work.
    return {kDefaultStream, 0, !is_pool_given_};
  }
  const char *what = "identifying the stream";
  const DeviceGuard guard(context_);
  unsigned long long id = 0;
  unsigned long long capture = 0;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  GSC_CUDA_CALL(what, cudaStreamGetId, to_stream(stream), &id);
  GSC_CUDA_CALL(what, cudaStreamGetCaptureInfo, to_stream(stream), &status, &capture);
  const bool is_captured = status == cudaStreamCaptureStatusActive;
  return {id + 1, is_captured ? capture : 0, false, is_captured};
}

void *CudaBackend::make_event() {
  const DeviceGuard guard(context_);
  cudaEvent_t event = nullptr;
  GSC_CUDA_CALL("creating an event", cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
  return event;
}

void CudaBackend::destroy_event(void *event) noexcept {
  tidy_up([&] { cudaEventDestroy(static_cast<cudaEvent_t>(event)); });
}

void CudaBackend::record_event(void *event, gsc_stream stream) {
  const char *what = "recording an event";
  const DeviceGuard guard(context_);
  try {
    GSC_CUDA_CALL(what, cudaEventRecord, static_cast<cudaEvent_t>(event), to_stream(stream));
  } catch (const Error &) {
    // The work that the event marks is already enqueued, so the call must not fail because of the event. Waiting for
    // the work replaces it: no one needs to wait for finished work.
    const RelaxedCapture relaxed;
    require_not_capturing(stream, what);
    GSC_CUDA_CALL(what, cudaStreamSynchronize, to_stream(stream));
  }
}

void CudaBackend::wait_event(void *event, gsc_stream stream) {
  const DeviceGuard guard(context_);
  GSC_CUDA_CALL("waiting for an event", cudaStreamWaitEvent, to_stream(stream), static_cast<cudaEvent_t>(event), 0);
}

void CudaBackend::copy_from(void *to, const Backend &source, const void *from, int64_t bytes, gsc_stream stream) {
  const DeviceGuard guard(context_);
  const auto &other = static_cast<const CudaBackend &>(source);
  copy_between(context_, to, other.context_, from, bytes, to_stream(stream));
}

}  // namespace gsc::cuda
