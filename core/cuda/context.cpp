// SPDX-License-Identifier: Apache-2.0
// The current context of a thread, through the driver API: the runtime only knows devices, and so would lose a context
// that the caller created. Driver functions are looked up by name at run time; the library does not link the driver and
// loads without it.
#include <cuda.h>

#include <type_traits>

#include "core/cuda/runtime.h"

namespace gsc::cuda {
namespace {

/// Placeholder for a driver function until it has been found.
template <typename... Args>
CUresult not_found(Args... /*arguments*/) {
  return CUDA_ERROR_NOT_INITIALIZED;
}

struct Driver {
  CUresult (*get_current)(CUcontext *) = not_found;
  CUresult (*set_current)(CUcontext) = not_found;
  CUresult (*device_get)(CUdevice *, int) = not_found;
  CUresult (*retain)(CUcontext *, CUdevice) = not_found;
  CUresult (*release)(CUdevice) = not_found;
  CUresult (*get_device)(CUdevice *) = not_found;
  CUresult (*get_attributes)(unsigned, CUpointer_attribute *, void **, CUdeviceptr) = not_found;
  CUresult (*copy_peer)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream) = not_found;
  CUresult (*error_name)(CUresult, const char **) = not_found;
  CUresult (*error_string)(CUresult, const char **) = not_found;
  cudaError_t error = cudaSuccess;

  template <typename F>
  void find(const char *name, F *&function) {
    if (error != cudaSuccess) return;
    void *address = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(name, &address, 11000, cudaEnableDefault, &found);
#else
    error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
    if (error == cudaSuccess && (found != cudaDriverEntryPointSuccess || address == nullptr)) {
      error = cudaErrorCallRequiresNewerDriver;
    }
    if (error == cudaSuccess) function = reinterpret_cast<F *>(address);
  }

  Driver() {
    find("cuCtxGetCurrent", get_current);
    find("cuCtxSetCurrent", set_current);
    find("cuDeviceGet", device_get);
    find("cuDevicePrimaryCtxRetain", retain);
    find("cuDevicePrimaryCtxRelease", release);
    find("cuCtxGetDevice", get_device);
    find("cuPointerGetAttributes", get_attributes);
    find("cuMemcpyPeerAsync", copy_peer);
    find("cuGetErrorName", error_name);
    find("cuGetErrorString", error_string);
  }
};

const Driver &driver() {
  static const Driver instance;
  return instance;
}

void check_driver(CUresult result, const char *what, const char *call) {
  if (result == CUDA_SUCCESS) return;
  const gsc_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? GSC_ERROR_OUT_OF_MEMORY : GSC_ERROR_DEVICE;
  const char *name = nullptr, *text = nullptr;
  if (driver().error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  if (driver().error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
  fail(status, kNoArgument, "%s failed: %s: %s (%s)", what, call, text, name);
}

}  // namespace

DeviceContext::DeviceContext(int32_t device, bool use_current) : device_(device), retained_(!use_current) {
  check(driver().error, "finding the CUDA driver's functions", "cudaGetDriverEntryPoint");
  static_assert(std::is_same_v<CUdevice, int>);
  check_driver(driver().device_get(&number_, device), "opening the CUDA device", "cuDeviceGet");
  CUcontext context{};
  if (use_current) {
    check_driver(driver().get_current(&context), "looking up the current CUDA context", "cuCtxGetCurrent");
    if (context == nullptr) {
      refuse(kOptions.field("flags"), "has GSC_CONTEXT_USE_CURRENT, but no CUDA context is current on this thread");
    }
    CUdevice current{};
    check_driver(driver().get_device(&current), "looking up the device of the current CUDA context", "cuCtxGetDevice");
    if (current != number_) {
      refuse(kOptions.field("device_index"),
             "is %d, but the CUDA context that is current on this thread is for device %d", device,
             static_cast<int>(current));
    }
  } else {
    check_driver(driver().retain(&context, number_), "opening the CUDA device", "cuDevicePrimaryCtxRetain");
  }
  handle_ = context;
}

DeviceContext::~DeviceContext() {
  if (retained_) driver().release(number_);
}

void copy_between(const DeviceContext &to_context, void *to, const DeviceContext &from_context, const void *from,
                  int64_t bytes, cudaStream_t stream) {
  check_driver(driver().copy_peer(reinterpret_cast<CUdeviceptr>(to), static_cast<CUcontext>(to_context.handle()),
                                  reinterpret_cast<CUdeviceptr>(from), static_cast<CUcontext>(from_context.handle()),
                                  static_cast<std::size_t>(bytes), stream),
               "copying from another device", "cuMemcpyPeerAsync");
}

Place place_of(const void *address) {
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
  unsigned type = 0, managed = 0;
  int device = -1;
  CUcontext context{};
  void *out[] = {&type, &managed, &device, &context};
  // An address unknown to CUDA is not an error; all its attributes are 0.
  check_driver(driver().get_attributes(4, attributes, out, reinterpret_cast<CUdeviceptr>(address)),
               "looking up an address", "cuPointerGetAttributes");
  Place place{Place::Kind::kUnknown, device, context};
  if (managed != 0) {
    place.kind = Place::Kind::kManaged;
  } else if (type == CU_MEMORYTYPE_DEVICE) {
    place.kind = Place::Kind::kDevice;
  } else if (type == CU_MEMORYTYPE_HOST) {
    place.kind = Place::Kind::kHost;
  }
  return place;
}

void *device_address(const void *pinned) {
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
  CUdeviceptr result = 0;
  void *out[] = {&result};
  check_driver(driver().get_attributes(1, &attribute, out, reinterpret_cast<CUdeviceptr>(pinned)),
               "looking up an address", "cuPointerGetAttributes");
  return reinterpret_cast<void *>(result);
}

DeviceGuard::DeviceGuard(const DeviceContext &context) {
  CUcontext previous{};
  check_driver(driver().get_current(&previous), "looking up the current CUDA context", "cuCtxGetCurrent");
  previous_ = previous;
  if (previous == context.handle()) return;
  check_driver(driver().set_current(static_cast<CUcontext>(context.handle())), "making the CUDA context current",
               "cuCtxSetCurrent");
  changed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) driver().set_current(static_cast<CUcontext>(previous_));
}

}  // namespace gsc::cuda
