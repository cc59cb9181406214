// SPDX-License-Identifier: Apache-2.0
// CUDA's row in the registry of backends. Device queries leave no error behind in the runtime.
#include <cstdio>

#include "core/cuda/backend.h"
#include "core/cuda/runtime.h"
#include "core/device/registry.h"

namespace gsc::cuda {
namespace {

/// 0 without a driver or without a device.
int32_t device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

void require_device(int32_t device_index, const Argument &what) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    fail(GSC_ERROR_UNAVAILABLE, what, "is %d, but no CUDA device is available: cudaGetDeviceCount: %s (%s)%s",
         device_index, cudaGetErrorString(error), cudaGetErrorName(error), needs_of(error));
  }
  if (device_index < 0 || device_index >= count) {
    fail(GSC_ERROR_UNAVAILABLE, what, "is %d, but there are %d CUDA devices", device_index, count);
  }
}

gsc_device_info device_info(int32_t device_index) {
  require_device(device_index, "device_index");
  cudaDeviceProp properties;
  GSC_CUDA_CALL("looking up the CUDA device", cudaGetDeviceProperties, &properties, device_index);
  gsc_device_info info{};
  info.struct_size = sizeof info;
  info.device_type = GSC_DEVICE_CUDA;
  info.device_index = device_index;
  info.units = properties.multiProcessorCount;
  info.level = 10 * properties.major + properties.minor;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  std::snprintf(info.name, sizeof info.name, "%.*s", static_cast<int>(sizeof info.name) - 1, properties.name);
  return info;
}

/// -1 for host memory. Asks CUDA only after a context of the library has been created in this process: asking would
/// start the driver.
int32_t device_of(const void *address) {
  if (CudaBackend::live_count() == 0) return -1;
  const Place place = place_of(address);
  return place.kind == Place::Kind::kDevice ? place.device : -1;
}

OpenBackend open(std::pmr::memory_resource *memory, const gsc_context_options &options,
                 const gscx_vulkan_device * /*vulkan*/) {
  require_device(options.device_index, kOptions.field("device_index"));
  const bool use_current = (options.flags & GSC_CONTEXT_USE_CURRENT) != 0;
  OpenBackend made = make_backend<CudaBackend>(memory, options.device_index, use_current, options.device_pool);
  std::snprintf(made.description, sizeof made.description, "CUDA context on device %d", options.device_index);
  return made;
}

}  // namespace

extern const BackendRow kBackendRow;
const BackendRow kBackendRow = {
    GSC_DEVICE_CUDA, "CUDA", "CUDA: " GSC_CUDA_ARCHITECTURES, device_count, device_info, open, device_of,
};

}  // namespace gsc::cuda
