// SPDX-License-Identifier: Apache-2.0
#include "core/vulkan/functions.h"

#include <new>

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace gsc::vulkan {
namespace {

const char *name_of(VkResult result) {
  switch (result) {
#define GSC_NAME(name) \
  case name:           \
    return #name;
    GSC_NAME(VK_NOT_READY)
    GSC_NAME(VK_TIMEOUT)
    GSC_NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
    GSC_NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    GSC_NAME(VK_ERROR_INITIALIZATION_FAILED)
    GSC_NAME(VK_ERROR_DEVICE_LOST)
    GSC_NAME(VK_ERROR_MEMORY_MAP_FAILED)
    GSC_NAME(VK_ERROR_LAYER_NOT_PRESENT)
    GSC_NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
    GSC_NAME(VK_ERROR_FEATURE_NOT_PRESENT)
    GSC_NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
    GSC_NAME(VK_ERROR_TOO_MANY_OBJECTS)
    GSC_NAME(VK_ERROR_FRAGMENTED_POOL)
    GSC_NAME(VK_ERROR_FRAGMENTATION)
    GSC_NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE)
    GSC_NAME(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS)
    GSC_NAME(VK_ERROR_INVALID_SHADER_NV)
#undef GSC_NAME
    default:
      return "VK_ERROR_UNKNOWN";
  }
}

gsc_status status_of(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_FRAGMENTATION:
      return GSC_ERROR_OUT_OF_MEMORY;
    case VK_ERROR_INITIALIZATION_FAILED:
    case VK_ERROR_LAYER_NOT_PRESENT:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return GSC_ERROR_UNAVAILABLE;
    default:
      return GSC_ERROR_DEVICE;
  }
}

/// Takes what the Vulkan `object` has found as `name`.
template <typename F>
void take(F &function, PFN_vkVoidFunction found, const char *name, const char *object) {
  if (found == nullptr) {
    fail(GSC_ERROR_UNAVAILABLE, kNoArgument, "%s was not found: the Vulkan %s is older than version 1.2", name, object);
  }
  function = reinterpret_cast<F>(found);
}

}  // namespace

void check(VkResult result, const char *what, const char *call) {
  if (result == VK_SUCCESS) return;
  fail(status_of(result), kNoArgument, "%s failed: %s: %s (%d)%s", what, call, name_of(result),
       static_cast<int>(result),
       result == VK_ERROR_DEVICE_LOST ? "; the Vulkan device and all contexts on it are of no more use" : "");
}

void Functions::find_global(PFN_vkGetInstanceProcAddr get) {
  GetInstanceProcAddr = get;
#define GSC_FIND(name) take(name, get(nullptr, "vk" #name), "vk" #name, "loader");
  GSC_FOR_EACH_GLOBAL_FUNCTION(GSC_FIND)
#undef GSC_FIND
}

void Functions::find_instance(VkInstance instance) {
#define GSC_FIND(name) take(name, GetInstanceProcAddr(instance, "vk" #name), "vk" #name, "instance");
  GSC_FOR_EACH_INSTANCE_FUNCTION(GSC_FIND)
#undef GSC_FIND
}

void Functions::find_device(VkDevice device) {
#define GSC_FIND(name) take(name, GetDeviceProcAddr(device, "vk" #name), "vk" #name, "device");
  GSC_FOR_EACH_DEVICE_FUNCTION(GSC_FIND)
#undef GSC_FIND
}

PFN_vkGetInstanceProcAddr find_loader() {
#if defined(_WIN32)
  static const HMODULE library = LoadLibraryA("vulkan-1.dll");
  if (library == nullptr) return nullptr;
  void *const found = reinterpret_cast<void *>(GetProcAddress(library, "vkGetInstanceProcAddr"));
#else
#if defined(__APPLE__)
  static void *const library = dlopen("libvulkan.1.dylib", RTLD_NOW | RTLD_LOCAL);
#else
  static void *const library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
#endif
  if (library == nullptr) return nullptr;
  void *const found = dlsym(library, "vkGetInstanceProcAddr");
#endif
  return reinterpret_cast<PFN_vkGetInstanceProcAddr>(found);
}

}  // namespace gsc::vulkan
