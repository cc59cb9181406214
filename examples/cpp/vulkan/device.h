// SPDX-License-Identifier: Apache-2.0
//
// The part of an engine that this example needs: a device of Vulkan with one queue, memory that shaders reach by its
// address, compute shaders that take addresses as push constants, and frames that run one after the other.
#pragma once
#include <vulkan/vulkan.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>

/// There is no device with what this needs: nothing to show, and no failure.
struct NoDevice : std::runtime_error {
  using runtime_error::runtime_error;
};

/// A struct of Vulkan with its type, and zeros.
template <typename Struct>
Struct make(VkStructureType type, void *next = nullptr) {
  Struct made{};
  made.sType = type;
  made.pNext = next;
  return made;
}

/// Throws a sentence that names the call.
void require(VkResult result, const char *call);
#define CALL(function, ...) require(function(__VA_ARGS__), #function)

/// Numbers on the device, by both of their addresses. The memory is coherent, and freed with the device.
template <typename Number>
struct Array {
  Number *host = nullptr;
  VkDeviceAddress device = 0;
  size_t size = 0;
  /// As a tensor's data.
  void *data(size_t first = 0) const { return reinterpret_cast<void *>(device + first * sizeof(Number)); }
};

class Device {
 public:
  /// The first physical device, with what the library's Vulkan backend needs.
  Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;
  ~Device();

  template <typename Number>
  Array<Number> allocate(size_t count) {
    const size_t offset = cut(count * sizeof(Number));
    return {reinterpret_cast<Number *>(mapped_ + offset), address_ + offset, count};
  }
  VkPipeline make_pipeline(std::span<const uint32_t> spirv);
  void dispatch(VkCommandBuffer commands, VkPipeline pipeline, uint32_t groups, const void *arguments,
                uint32_t bytes) const;
  /// Records a frame, submits it and waits for its end. An engine would go on to the next, and wait later.
  void run(const std::function<void(VkCommandBuffer)> &record);

  VkInstance instance = nullptr;
  VkPhysicalDevice physical = nullptr;
  VkDevice device = nullptr;
  VkQueue queue = nullptr;
  uint32_t family = 0;
  VkPhysicalDeviceVulkan12Features v12 =
      make<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  VkPhysicalDeviceVulkan11Features v11 =
      make<VkPhysicalDeviceVulkan11Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
  VkPhysicalDeviceFeatures2 features =
      make<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);  ///< the chain of vkCreateDevice
  static constexpr uint32_t kArgumentBytes = 128;  ///< push constants; every device has as many

 private:
  size_t cut(size_t bytes);
  void make_memory();

  static constexpr size_t kBytes = 8 << 20;
  VkBuffer buffer_ = nullptr;
  VkDeviceMemory memory_ = nullptr;
  char *mapped_ = nullptr;
  VkDeviceAddress address_ = 0;
  size_t used_ = 0;
  VkPipelineLayout layout_ = nullptr;
  std::array<VkPipeline, 4> pipelines_{};
  size_t pipeline_count_ = 0;
  VkCommandPool pool_ = nullptr;
  VkCommandBuffer commands_ = nullptr;
  VkFence fence_ = nullptr;
};

/// Compute shaders wait for what compute shaders wrote before, and see it.
void barrier(VkCommandBuffer commands, VkPipelineStageFlags to = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
             VkAccessFlags access = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
