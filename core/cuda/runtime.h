// SPDX-License-Identifier: Apache-2.0
// What all host code of the CUDA backend needs: errors of the runtime as gsc::Error, the place of an address, and guards
// that make the device current, or leave captures of other threads alone, and put things back as they were.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/base/error.h"

namespace gsc::cuda {

inline cudaStream_t to_stream(gsc_stream stream) { return static_cast<cudaStream_t>(stream); }

/// The status that an error of the runtime becomes.
gsc_status status_of(cudaError_t error);

/// Throws if `error` is one, with the runtime's text; `what` is what failed, such as "the check", and `call` the function
/// that said so. Takes the error off the runtime, so that a later call does not report it again.
void check(cudaError_t error, const char *what, const char *call);
/// check() around a call of the runtime, which it names.
#define GSC_CUDA_CALL(what, function, ...) ::gsc::cuda::check(function(__VA_ARGS__), what, #function)
/// The same of a launcher.
inline void check_launch(cudaError_t error, const char *what) { check(error, what, "cudaLaunchKernel"); }

/// What the library was built with and what the machine must have for it, as the end of a message; "" where that is not
/// what an error is about.
const char *needs_of(cudaError_t error);

/// Where an address lies, as the driver knows it.
struct Place {
  enum class Kind { kUnknown, kHost, kDevice, kManaged };
  Kind kind;  ///< kUnknown: memory that CUDA does not know, or that has been freed; kHost: pinned
  int32_t device;
  void *context;  ///< the CUDA context that allocated it; NULL: none, as memory from a pool, or unknown
};
/// Asks the driver, which neither needs a current context nor makes one. A context of the library's must have been opened.
Place place_of(const void *address);

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
  int number_ = 0;  ///< the driver's for the device
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

/// Lets this thread allocate, free and wait while another stream is being captured, which CUDA would otherwise break off:
/// none of it has a place in that graph. Lives within a DeviceGuard.
class RelaxedCapture {
 public:
  RelaxedCapture() : changed_(cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) {}
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;
  ~RelaxedCapture() {
    if (changed_) cudaThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool changed_;
};

}  // namespace gsc::cuda
