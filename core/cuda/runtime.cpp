// SPDX-License-Identifier: Apache-2.0
// Errors of the CUDA runtime in the library's terms.
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

void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  const gsc_status status = status_of(error);
  if (status == GSC_ERROR_INVALID_ARGUMENT) {
    fail(status, "stream", "is not a stream of the context's CUDA device, or no longer exists: %s failed: %s (%s)",
         what, cudaGetErrorString(error), cudaGetErrorName(error));
  }
  if (status == GSC_ERROR_BAD_STATE) {
    fail(status, kNoArgument, "%s is not possible while a stream is being captured: %s (%s)", what,
         cudaGetErrorString(error), cudaGetErrorName(error));
  }
  fail(status, kNoArgument, "%s failed: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace gsc::cuda
