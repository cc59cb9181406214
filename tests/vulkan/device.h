// SPDX-License-Identifier: Apache-2.0
//
// The Vulkan device of the tests, and its memory, in the terms of tests/cuda/twin.h. The first physical device, or
// GRADSCALER_TEST_VULKAN_DEVICE; tests are skipped if there is none. With GRADSCALER_TEST_VALIDATION=1 it is opened under
// VK_LAYER_KHRONOS_validation with synchronization validation, and any message of it fails the test that runs.
#ifndef GRADSCALER_TESTS_VULKAN_DEVICE_H
#define GRADSCALER_TESTS_VULKAN_DEVICE_H
#include <vulkan/vulkan.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "gradscaler/vulkan.h"
#include "tests/support/objects.h"

namespace gsc_test {

struct VulkanDevice {
  VulkanDevice();
  VulkanDevice(const VulkanDevice &) = delete;
  VulkanDevice &operator=(const VulkanDevice &) = delete;
  ~VulkanDevice();
  /// What a context is opened with; the lock counts.
  gscx_vulkan_device handles();
  /// A buffer with an address and separate memory. It begins at the second address that its alignment allows if
  /// `is_shifted`, and else at the first.
  gscx_vulkan_buffer make_buffer(const VkBufferCreateInfo &info, bool is_mapped, bool is_shifted);
  /// A buffer in the memory of another, from this byte on.
  VkBuffer alias(const gscx_vulkan_buffer &whole, const VkBufferCreateInfo &info, int64_t offset) const;
  void destroy(const gscx_vulkan_buffer &buffer) const;
  void submit(const std::vector<VkCommandBuffer> &commands);
  /// Until the queue has run all.
  void wait();
  VkCommandBuffer make_commands(VkCommandBufferLevel level = VK_COMMAND_BUFFER_LEVEL_PRIMARY);
  static void begin(VkCommandBuffer commands,
                    VkCommandBufferUsageFlags flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);

  VkInstance instance = nullptr;
  VkPhysicalDevice physical = nullptr;
  VkDevice device = nullptr;
  VkQueue queue = nullptr;
  VkCommandPool pool = nullptr;
  uint32_t family = 0;
  VkPhysicalDeviceVulkan12Features v12{};
  VkPhysicalDeviceVulkan11Features v11{};
  VkPhysicalDeviceFeatures2 features{};  ///< the chain that the device was created with
  std::mutex mutex;
  std::atomic<int> locks = 0, messages = 0;

 private:
  VkDebugUtilsMessengerEXT messenger_ = nullptr;
};

/// Opened once; NULL: there is none.
VulkanDevice *vulkan_device();

inline void set_order(unsigned /*order*/) {}
inline bool device_is_missing() { return vulkan_device() == nullptr; }
#define SKIP_WITHOUT_DEVICE() \
  if (device_is_missing()) GTEST_SKIP() << "there is no Vulkan device"

void copy_to_device(void *device, const void *host, int64_t bytes);
void copy_to_host(void *host, const void *device, int64_t bytes);

/// Memory with an address, which the host sees.
class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes);
  DeviceBytes(DeviceBytes &&other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceBytes &operator=(DeviceBytes &&) = delete;
  ~DeviceBytes();
  char *data() const { return data_; }

 private:
  char *data_ = nullptr;
};

Context make_context(const gscx_vulkan_device &handles);
inline Context make_device_context() { return make_context(vulkan_device()->handles()); }
/// One for all tests: its kernels are compiled once.
using DeviceContext = const Context &;
DeviceContext device_context();

}  // namespace gsc_test
#endif
