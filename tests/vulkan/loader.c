/* SPDX-License-Identifier: Apache-2.0
 * A loader of Vulkan, libvulkan.so.1, that has the version in GSC_TEST_LOADER_VERSION and makes no instance. */
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan_core.h>

static VkResult enumerate_version(uint32_t *version) {
  *version = (uint32_t)strtoul(getenv("GSC_TEST_LOADER_VERSION"), NULL, 10);
  return VK_SUCCESS;
}

static VkResult create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *memory,
                                VkInstance *out) {
  (void)info, (void)memory, (void)out;
  return VK_ERROR_INCOMPATIBLE_DRIVER;
}

__attribute__((visibility("default"))) PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name) {
  (void)instance;
  if (strcmp(name, "vkEnumerateInstanceVersion") == 0) return (PFN_vkVoidFunction)enumerate_version;
  if (strcmp(name, "vkCreateInstance") == 0) return (PFN_vkVoidFunction)create_instance;
  return NULL;
}
