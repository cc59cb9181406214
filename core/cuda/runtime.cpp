// SPDX-License-Identifier: Apache-2.0
// CUDA runtime errors in the library's terms.
#include "core/cuda/runtime.h"

namespace gsc::cuda {

gsc_status status_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return GSC_ERROR_OUT_OF_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorInitializationError:
      return GSC_ERROR_UNAVAILABLE;
    case cudaErrorInvalidResourceHandle:
      return GSC_ERROR_INVALID_ARGUMENT;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread:
      return GSC_ERROR_BAD_STATE;
    default:
      return GSC_ERROR_DEVICE;
  }
}

const char *needs_of(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
#if CUDART_VERSION >= 13000
      return "; built with CUDA " GSC_CUDA_RELEASE ", this library needs NVIDIA's driver 580 or later";
#else
      return "; built with CUDA " GSC_CUDA_RELEASE ", this library needs NVIDIA's driver 525 or later";
#endif
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "; this library holds " GSC_CUDA_ARCHITECTURES
             "; the ptx is for all other devices and needs a driver for CUDA " GSC_CUDA_RELEASE " or later";
    default:
      return "";
  }
}

void check(cudaError_t error, const char *what, const char *call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  const gsc_status status = status_of(error);
  if (status == GSC_ERROR_INVALID_ARGUMENT) {
    fail(status, "stream", "is not a stream of the context's CUDA device, or no longer exists: %s failed: %s: %s (%s)",
         what, call, cudaGetErrorString(error), cudaGetErrorName(error));
  }
  if (status == GSC_ERROR_BAD_STATE) {
    fail(status, kNoArgument, "%s is not possible while a stream is being captured: %s: %s (%s)", what, call,
         cudaGetErrorString(error), cudaGetErrorName(error));
  }
  fail(status, kNoArgument, "%s failed: %s: %s (%s)%s", what, call, cudaGetErrorString(error), cudaGetErrorName(error),
       needs_of(error));
}

}  // namespace gsc::cuda
