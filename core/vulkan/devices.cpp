// SPDX-License-Identifier: Apache-2.0
// Vulkan's row in the registry of backends.
#include <cstdio>

#include "core/device/registry.h"
#include "core/vulkan/backend.h"

namespace gsc::vulkan {
namespace {

static_assert(sizeof(void *) == sizeof(uint64_t), "addresses of devices are passed as pointers");

/// 0 without a loader or a driver.
int32_t device_count() {
  try {
    Functions functions;
    return Instance(functions, "device_type").count();
  } catch (const Error &) {
    return 0;
  }
}

gsc_device_info device_info(int32_t device_index) {
  constexpr Argument kIndex = "device_index";
  Functions functions;
  const Instance instance(functions, kIndex);
  const VkPhysicalDevice device = instance.device(device_index, kIndex);
  const VkPhysicalDeviceProperties properties = Requirements(functions, device, nullptr).properties();
  VkPhysicalDeviceMemoryProperties memory;
  functions.GetPhysicalDeviceMemoryProperties(device, &memory);
  gsc_device_info info{};
  info.struct_size = sizeof info;
  info.device_type = GSCX_DEVICE_VULKAN;
  info.device_index = device_index;
  info.level = static_cast<int32_t>(10 * VK_API_VERSION_MAJOR(properties.apiVersion) +
                                    VK_API_VERSION_MINOR(properties.apiVersion));
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
    info.memory_bytes += static_cast<int64_t>(memory.memoryHeaps[i].size);
  }
  std::snprintf(info.name, sizeof info.name, "%.127s", properties.deviceName);
  return info;
}

OpenBackend open(std::pmr::memory_resource *memory, const gsc_context_options &options,
                 const gscx_vulkan_device *vulkan) {
  OpenBackend made = make_backend<VulkanBackend>(memory, options, vulkan);
  std::snprintf(made.description, sizeof made.description, "Vulkan context on \"%.36s\"",
                static_cast<VulkanBackend *>(made.backend)->device_name());
  return made;
}

}  // namespace

extern const BackendRow kBackendRow;
// An address of a device cannot be told from others.
const BackendRow kBackendRow = {
    GSCX_DEVICE_VULKAN, "Vulkan", "Vulkan: SPIR-V 1.5", device_count, device_info, open, nullptr,
};

}  // namespace gsc::vulkan
