// SPDX-License-Identifier: Apache-2.0
// Vulkan's functions, looked up at run time, and its errors as gsc::Error. The library neither links nor loads libvulkan
// if the caller hands over a device.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "core/base/error.h"

namespace gsc::vulkan {

/// X(name without vk) for those that need no instance, an instance, and a device.
#define GSC_FOR_EACH_GLOBAL_FUNCTION(X) X(CreateInstance) X(EnumerateInstanceVersion)
#define GSC_FOR_EACH_INSTANCE_FUNCTION(X) \
  X(DestroyInstance)                      \
  X(EnumeratePhysicalDevices)             \
  X(GetPhysicalDeviceProperties2)         \
  X(GetPhysicalDeviceFeatures2)           \
  X(GetPhysicalDeviceMemoryProperties) X(GetPhysicalDeviceQueueFamilyProperties) X(CreateDevice) X(GetDeviceProcAddr)
#define GSC_FOR_EACH_DEVICE_FUNCTION(X) \
  X(DestroyDevice)                      \
  X(GetDeviceQueue)                     \
  X(CreateBuffer)                       \
  X(DestroyBuffer)                      \
  X(GetBufferMemoryRequirements)        \
  X(AllocateMemory)                     \
  X(FreeMemory)                         \
  X(BindBufferMemory)                   \
  X(MapMemory)                          \
  X(GetBufferDeviceAddress)             \
  X(CreateShaderModule)                 \
  X(DestroyShaderModule)                \
  X(CreatePipelineLayout)               \
  X(DestroyPipelineLayout)              \
  X(CreateComputePipelines)             \
  X(DestroyPipeline)                    \
  X(CreateCommandPool)                  \
  X(DestroyCommandPool)                 \
  X(AllocateCommandBuffers)             \
  X(BeginCommandBuffer)                 \
  X(EndCommandBuffer)                   \
  X(CreateFence)                        \
  X(DestroyFence)                       \
  X(WaitForFences)                      \
  X(ResetFences)                        \
  X(QueueSubmit)                        \
  X(CmdBindPipeline) X(CmdPushConstants) X(CmdDispatch) X(CmdPipelineBarrier) X(CmdUpdateBuffer) X(CmdFillBuffer)

/// Named as in vulkan.h, without vk. All are found, or the constructor of Device has thrown.
struct Functions {
#define GSC_MEMBER(name) PFN_vk##name name = nullptr;
  GSC_FOR_EACH_GLOBAL_FUNCTION(GSC_MEMBER)
  GSC_FOR_EACH_INSTANCE_FUNCTION(GSC_MEMBER)
  GSC_FOR_EACH_DEVICE_FUNCTION(GSC_MEMBER)
#undef GSC_MEMBER
  PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;

  void find_global(PFN_vkGetInstanceProcAddr get);
  void find_instance(VkInstance instance);
  void find_device(VkDevice device);
};

/// Throws if `result` is an error, with Vulkan's name of it; `what` is what failed, such as "the check", and `call` the
/// function that reported it.
void check(VkResult result, const char *what, const char *call);
/// check() around a function, which it names.
#define GSC_VK_CALL(what, functions, name, ...) ::gsc::vulkan::check((functions).name(__VA_ARGS__), what, "vk" #name)

/// vkGetInstanceProcAddr of the system's loader, which stays open; NULL if there is none.
PFN_vkGetInstanceProcAddr find_loader();

}  // namespace gsc::vulkan
