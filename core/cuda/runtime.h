// SPDX-License-Identifier: Apache-2.0
// Shared by all host code of the CUDA backend: runtime errors as gsc::Error, the location of an address, and guards
// that make the device current, or leave other threads' captures alone, and restore the previous state.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/base/error.h"

namespace gsc::cuda {

inline cudaStream_t to_stream(gsc_stream stream) { return static_cast<cudaStream_t>(stream); }

/// The status for a runtime error.
gsc_status status_of(cudaError_t error);

/// Throws if `error` is not success, with the runtime's text; `what` is what failed, such as "the check", and `call`
/// the function that reported it. Clears the runtime's last error, so that a later call does not report it again.
void check(cudaError_t error, const char *what, const char *call);
/// check() around a runtime call, which it names.
#define GSC_CUDA_CALL(what, function, ...) ::gsc::cuda::check(function(__VA_ARGS__), what, #function)
/// The same for a launcher.
inline void check_launch(cudaError_t error, const char *what) { check(error, what, "cudaLaunchKernel"); }

/// The end of a message: how the library was built and which driver it needs; "" for unrelated errors.
const char *needs_of(cudaError_t error);

/// The location of an address, according to the driver.
struct Place {
  enum class Kind { kUnknown, kHost, kDevice, kManaged };
  Kind kind;  ///< kUnknown: unknown to CUDA, or freed; kHost: pinned
  int32_t device;
  void *context;  ///< the CUDA context that allocated it; NULL: none (memory from a pool) or unknown
};
/// Asks the driver, which neither needs a current context nor creates one. Requires that the library has opened a
/// context.
Place place_of(const void *address);
/// The address by which kernels of the current CUDA context reach pinned host memory; NULL: they do not.
void *device_address(const void *pinned);

/// The CUDA context of a backend, for its lifetime.
class DeviceContext {
 public:
  /// The primary context of the device, or with `use_current` the calling thread's current one, which must belong to
  /// that device.
  DeviceContext(int32_t device, bool use_current);
  DeviceContext(const DeviceContext &) = delete;
  DeviceContext &operator=(const DeviceContext &) = delete;
  ~DeviceContext();
  int32_t device() const { return device_; }
  void *handle() const { return handle_; }

 private:
  int32_t device_;
  int number_ = 0;  ///< the driver's number of the device
  bool retained_;
  void *handle_ = nullptr;
};

/// Enqueues a copy of device memory between two contexts, which may be the same.
void copy_between(const DeviceContext &to_context, void *to, const DeviceContext &from_context, const void *from,
                  int64_t bytes, cudaStream_t stream);

/// Makes a context current for the calling thread and restores the previous one, whether the caller's own or none.
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

/// Lets this thread allocate, free and wait while another stream is being captured, which CUDA would otherwise
/// invalidate: none of it belongs in that graph. Lives within a DeviceGuard.
class RelaxedCapture {
 public:
  RelaxedCapture() : changed_(exchange()) {}
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;
  ~RelaxedCapture() {
    if (changed_) exchange();
  }

 private:
  bool exchange() {
    if (cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
  }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool changed_;
};

}  // namespace gsc::cuda
