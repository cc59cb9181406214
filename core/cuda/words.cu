// SPDX-License-Identifier: Apache-2.0
// Launchers of the kernels on records and tables.
#include <cstring>

#include "core/cuda/kernel_words.cuh"
#include "core/cuda/launch.cuh"

namespace gsc::cuda {

cudaError_t preload_words() {
  return preload_all(write_kernel, write_tensors_kernel, write_pointers_kernel, conclude_kernel, update_kernel,
                     set_policy_kernel, set_scale_kernel, report_kernel, update_scale_kernel);
}

cudaError_t launch_write(void *to, const void *host, int bytes, cudaStream_t stream) {
  Payload payload;
  std::memcpy(payload.bytes, host, static_cast<std::size_t>(bytes));
  return enqueue(write_kernel, 1, kThreads, stream, static_cast<unsigned char *>(to), payload, bytes);
}

cudaError_t launch_write_tensors(DeviceTensor *tensors, int32_t *tensor_of, const TensorBatch &batch, int64_t first,
                                 int count, int64_t end_chunk, cudaStream_t stream) {
  return enqueue(write_tensors_kernel, 1, kThreads, stream, tensors, tensor_of, batch, first, count, end_chunk);
}

cudaError_t launch_write_pointers(DeviceTensor *to, const PointerBatch &batch, int count, cudaStream_t stream) {
  return enqueue(write_pointers_kernel, 1, kThreads, stream, to, batch, count);
}

cudaError_t launch_conclude(ListRecord *record, const ClipRule &rule, cudaStream_t stream) {
  return enqueue(conclude_kernel, 1, 1, stream, record, rule);
}

cudaError_t launch_update(ScalerRecord *record, const PointerBatch &lists, int count, bool first, bool last,
                          cudaStream_t stream) {
  return enqueue(update_kernel, 1, 1, stream, record, lists, count, first, last);
}

cudaError_t launch_set_policy(ScalerRecord *record, const Policy &policy, cudaStream_t stream) {
  return enqueue(set_policy_kernel, 1, 1, stream, record, policy);
}

cudaError_t launch_set_scale(ScalerRecord *record, float scale, cudaStream_t stream) {
  return enqueue(set_scale_kernel, 1, 1, stream, record, scale);
}

cudaError_t launch_report(const ScalerRecord *record, const ListRecord *list, gsc_report *out, cudaStream_t stream) {
  return enqueue(report_kernel, 1, 1, stream, record, list, out);
}

cudaError_t launch_update_scale(const Policy &policy, float *scale, int32_t *growth_tracker, const float *found_inf,
                                cudaStream_t stream) {
  return enqueue(update_scale_kernel, 1, 1, stream, policy, scale, growth_tracker, found_inf);
}

}  // namespace gsc::cuda
