// SPDX-License-Identifier: Apache-2.0
// What all host code of the CUDA backend needs: errors of the runtime as gsc::Error, and guards that make the device
// current, or allow allocation while another thread captures, and put things back as they were.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/base/error.h"

namespace gsc::cuda {

inline cudaStream_t to_stream(gsc_stream stream) { return static_cast<cudaStream_t>(stream); }

/// The status that an error of the runtime becomes.
gsc_status status_of(cudaError_t error);

/// Throws if `error` is one, with the runtime's text; `what` is what failed, such as "the check". Takes the error off
/// the runtime, so that a later call does not report it again.
void check(cudaError_t error, const char *what);

/// The CUDA context that a backend works in, from its creation to its end.
class DeviceContext {
 public:
  /// The primary context of the device, or with `use_current` the one that is current on the calling thread, which must
  /// be of that device.
  DeviceContext(int32_t device, bool use_current);
  DeviceContext(const DeviceContext &) = delete;
  DeviceContext &operator=(const DeviceContext &) = delete;
  ~DeviceContext();
  [[nodiscard]] int32_t device() const { return device_; }
  [[nodiscard]] void *handle() const { return handle_; }

 private:
  int32_t device_;
  bool retained_;
  void *handle_ = nullptr;
};

/// Enqueues a copy of device memory of one context to that of another, which may be the same.
void copy_between(const DeviceContext &to_context, void *to, const DeviceContext &from_context, const void *from,
                  int64_t bytes, cudaStream_t stream);

/// Makes a context current for the calling thread and restores what was there, also if that was a context of
/// the caller's own or none at all.
class DeviceGuard {
 public:
  explicit DeviceGuard(const DeviceContext &context);
  DeviceGuard(const DeviceGuard &) = delete;
  DeviceGuard &operator=(const DeviceGuard &) = delete;
  ~DeviceGuard();

 private:
  void *previous_ = nullptr;
  bool changed_ = false;
};

/// Lets this thread allocate and free while some stream is being captured: neither has a place in the graph.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace gsc::cuda
