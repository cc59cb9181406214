// SPDX-License-Identifier: Apache-2.0
//
// The rest of the runtime that benchmarks/gpu needs: events that always report one millisecond, and graphs whose replay
// does nothing. Enough to run the benchmark's own code.
#include <cstdlib>

#include "cuda_runtime_api.h"
#include "emulation.h"

namespace emulation = gsc::cuda::emulation;

cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1.0F;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  emulation::begin_capture(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  *graph = static_cast<cudaGraph_t>(std::malloc(1));
  return emulation::end_capture(stream) ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t, unsigned long long) {
  *executable = static_cast<cudaGraphExec_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t stream) {
  return emulation::is_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  std::free(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  std::free(graph);
  return cudaSuccess;
}
