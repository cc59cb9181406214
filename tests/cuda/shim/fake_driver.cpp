// SPDX-License-Identifier: Apache-2.0
//
// The driver functions that core/cuda looks up by name. None of them needs a current context or creates one.
#include <cstring>
#include <utility>

#include "fake_state.h"

using namespace gsc::cuda::emulation;

namespace {

CUresult get_current(CUcontext *out) {
  if (fails("cuCtxGetCurrent")) return CUDA_ERROR_UNKNOWN;
  *out = this_thread().current;
  return CUDA_SUCCESS;
}
// Taking a context away does not fail, so that a failure can be told from one that was not cleaned up after.
CUresult set_current(CUcontext context) {
  if (context != nullptr && fails("cuCtxSetCurrent")) return CUDA_ERROR_UNKNOWN;
  this_thread().current = context;
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice *out, int ordinal) {
  if (fails("cuDeviceGet")) return CUDA_ERROR_UNKNOWN;
  *out = ordinal;
  return ordinal >= 0 && ordinal < kDevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult retain(CUcontext *out, CUdevice device) {
  if (fails("cuDevicePrimaryCtxRetain")) return CUDA_ERROR_UNKNOWN;
  *out = &state().primary[device];
  ++(*out)->references;
  return CUDA_SUCCESS;
}
CUresult release(CUdevice device) {
  --state().primary[device].references;
  return CUDA_SUCCESS;
}
CUresult get_device(CUdevice *out) {
  if (fails("cuCtxGetDevice")) return CUDA_ERROR_UNKNOWN;
  if (this_thread().current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *out = this_thread().current->device;
  return CUDA_SUCCESS;
}

/// For an address unknown to CUDA everything is 0.
CUresult get_attributes(unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address) {
  if (fails("cuPointerGetAttributes")) return CUDA_ERROR_UNKNOWN;
  const auto *found = find_allocation(reinterpret_cast<const void *>(address));
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<CUcontext *>(data[i]) = found != nullptr ? found->second.context : nullptr;
        break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned *>(data[i]) =
            found == nullptr ? 0 : (found->second.device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *static_cast<CUdeviceptr *>(data[i]) =
            found == nullptr || this_thread().current == nullptr ? 0 : address + state().mapping_distance;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<unsigned *>(data[i]) = 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(data[i]) = found != nullptr ? found->second.device : 0;
        break;
    }
  }
  return CUDA_SUCCESS;
}

CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                   CUstream stream) {
  if (fails("cuMemcpyPeerAsync")) return CUDA_ERROR_UNKNOWN;
  for (const auto &[address, context] : {std::pair(to, to_context), {from, from_context}}) {
    const auto *found = find_allocation(reinterpret_cast<const void *>(address));
    if (found == nullptr || found->second.device != context->device) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_CONTEXT;
  enqueue_work(stream, [=] {
    std::memcpy(reach(reinterpret_cast<void *>(to)), reach(reinterpret_cast<const void *>(from)), bytes);
  });
  return CUDA_SUCCESS;
}

CUresult error_name(CUresult, const char **out) {
  *out = "CUDA_ERROR_EMULATED";
  return CUDA_SUCCESS;
}
CUresult error_string(CUresult, const char **out) {
  *out = "emulated error";
  return CUDA_SUCCESS;
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **address, unsigned, unsigned,
                                             cudaDriverEntryPointQueryResult *found) {
#define ENTRY(name, function) \
  { #name, reinterpret_cast < void *>(function) }
  static const struct {
    const char *name;
    void *function;
  } functions[] = {
      ENTRY(cuCtxGetCurrent, get_current),
      ENTRY(cuCtxSetCurrent, set_current),
      ENTRY(cuDeviceGet, device_get),
      ENTRY(cuDevicePrimaryCtxRetain, retain),
      ENTRY(cuDevicePrimaryCtxRelease, release),
      ENTRY(cuCtxGetDevice, get_device),
      ENTRY(cuPointerGetAttributes, get_attributes),
      ENTRY(cuMemcpyPeerAsync, copy_peer),
      ENTRY(cuGetErrorName, error_name),
      ENTRY(cuGetErrorString, error_string),
  };
  if (fails("cudaGetDriverEntryPoint")) return failure();
  *found = cudaDriverEntryPointSymbolNotFound;
  for (const auto &f : functions) {
    if (std::strcmp(f.name, name) != 0) continue;
    *address = f.function;
    *found = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
