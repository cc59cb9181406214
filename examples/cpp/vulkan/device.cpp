// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <algorithm>
#include <string>
#include <vector>

void require(VkResult result, const char *call) {
  if (result == VK_SUCCESS) return;
  throw std::runtime_error(std::string(call) + " failed with VkResult " + std::to_string(result));
}

void barrier(VkCommandBuffer commands, VkPipelineStageFlags to, VkAccessFlags access) {
  auto all = make<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  all.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT;
  all.dstAccessMask = access;
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, to, 0, 1, &all, 0, nullptr, 0, nullptr);
}

Device::Device() {
  auto application = make<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  application.apiVersion = VK_API_VERSION_1_2;
  auto of_instance = make<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  of_instance.pApplicationInfo = &application;
  if (const VkResult made = vkCreateInstance(&of_instance, nullptr, &instance); made != VK_SUCCESS) {
    if (made == VK_ERROR_INCOMPATIBLE_DRIVER) throw NoDevice("there is no driver of Vulkan");
    require(made, "vkCreateInstance");
  }
  uint32_t count = 0;
  CALL(vkEnumeratePhysicalDevices, instance, &count, nullptr);
  if (count == 0) throw NoDevice("there is no device of Vulkan");
  std::vector<VkPhysicalDevice> devices(count);
  CALL(vkEnumeratePhysicalDevices, instance, &count, devices.data());
  physical = devices[0];
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  while (family < count && (families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) ++family;
  if (family == count) throw NoDevice("the device has no queue with compute");

  features.pNext = &v11;
  v11.pNext = &v12;
  features.features.shaderFloat64 = features.features.shaderInt64 = VK_TRUE;
  v11.storageBuffer16BitAccess = v12.storageBuffer8BitAccess = v12.bufferDeviceAddress = VK_TRUE;
  const float priority = 1.0F;
  auto of_queue = make<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
  of_queue.queueFamilyIndex = family;
  of_queue.queueCount = 1;
  of_queue.pQueuePriorities = &priority;
  auto of_device = make<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features);
  of_device.queueCreateInfoCount = 1;
  of_device.pQueueCreateInfos = &of_queue;
  const VkResult made = vkCreateDevice(physical, &of_device, nullptr, &device);
  if (made == VK_ERROR_FEATURE_NOT_PRESENT) throw NoDevice("the device lacks a feature");
  require(made, "vkCreateDevice");
  vkGetDeviceQueue(device, family, 0, &queue);
  make_memory();

  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, kArgumentBytes};
  auto of_layout = make<VkPipelineLayoutCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
  of_layout.pushConstantRangeCount = 1;
  of_layout.pPushConstantRanges = &range;
  CALL(vkCreatePipelineLayout, device, &of_layout, nullptr, &layout_);
  auto of_pool = make<VkCommandPoolCreateInfo>(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO);
  of_pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  of_pool.queueFamilyIndex = family;
  CALL(vkCreateCommandPool, device, &of_pool, nullptr, &pool_);
  auto of_commands = make<VkCommandBufferAllocateInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
  of_commands.commandPool = pool_;
  of_commands.commandBufferCount = 1;
  CALL(vkAllocateCommandBuffers, device, &of_commands, &commands_);
  auto of_fence = make<VkFenceCreateInfo>(VK_STRUCTURE_TYPE_FENCE_CREATE_INFO);
  CALL(vkCreateFence, device, &of_fence, nullptr, &fence_);
}

/// Null handles are ignored. If the constructor throws, the program ends.
Device::~Device() {
  for (VkPipeline pipeline : pipelines_) vkDestroyPipeline(device, pipeline, nullptr);
  vkDestroyFence(device, fence_, nullptr);
  vkDestroyCommandPool(device, pool_, nullptr);
  vkDestroyPipelineLayout(device, layout_, nullptr);
  vkDestroyBuffer(device, buffer_, nullptr);
  vkFreeMemory(device, memory_, nullptr);
  vkDestroyDevice(device, nullptr);
  vkDestroyInstance(instance, nullptr);
}

void Device::make_memory() {
  auto of_buffer = make<VkBufferCreateInfo>(VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO);
  of_buffer.size = kBytes;
  of_buffer.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  CALL(vkCreateBuffer, device, &of_buffer, nullptr, &buffer_);
  VkMemoryRequirements needs{};
  vkGetBufferMemoryRequirements(device, buffer_, &needs);
  VkPhysicalDeviceMemoryProperties types{};
  vkGetPhysicalDeviceMemoryProperties(physical, &types);
  constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  uint32_t type = 0;  // Vulkan promises that one fits
  while ((needs.memoryTypeBits >> type & 1U) == 0 || (types.memoryTypes[type].propertyFlags & kHost) != kHost) ++type;
  auto with_address = make<VkMemoryAllocateFlagsInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
  with_address.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  auto allocation = make<VkMemoryAllocateInfo>(VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &with_address);
  allocation.allocationSize = needs.size;
  allocation.memoryTypeIndex = type;
  CALL(vkAllocateMemory, device, &allocation, nullptr, &memory_);
  CALL(vkBindBufferMemory, device, buffer_, memory_, 0);
  void *mapped = nullptr;
  CALL(vkMapMemory, device, memory_, 0, VK_WHOLE_SIZE, 0, &mapped);
  mapped_ = static_cast<char *>(mapped);
  auto of_address = make<VkBufferDeviceAddressInfo>(VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO);
  of_address.buffer = buffer_;
  address_ = vkGetBufferDeviceAddress(device, &of_address);
}

size_t Device::cut(size_t bytes) {
  const size_t offset = used_;
  used_ += (bytes + 255) / 256 * 256;
  if (used_ > kBytes) throw std::runtime_error("the arrays need more memory than the example has");
  return offset;
}

VkPipeline Device::make_pipeline(std::span<const uint32_t> spirv) {
  auto of_module = make<VkShaderModuleCreateInfo>(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
  of_module.codeSize = spirv.size_bytes();
  of_module.pCode = spirv.data();
  VkShaderModule module = nullptr;
  CALL(vkCreateShaderModule, device, &of_module, nullptr, &module);
  auto info = make<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.layout = layout_;
  VkPipeline &pipeline = pipelines_.at(pipeline_count_++);
  const VkResult made = vkCreateComputePipelines(device, nullptr, 1, &info, nullptr, &pipeline);
  vkDestroyShaderModule(device, module, nullptr);
  require(made, "vkCreateComputePipelines");
  return pipeline;
}

void Device::dispatch(VkCommandBuffer commands, VkPipeline pipeline, uint32_t groups, const void *arguments,
                      uint32_t bytes) const {
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  vkCmdPushConstants(commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, bytes, arguments);
  vkCmdDispatch(commands, groups, 1, 1);
}

void Device::run(const std::function<void(VkCommandBuffer)> &record) {
  auto once = make<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  once.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  CALL(vkBeginCommandBuffer, commands_, &once);
  barrier(commands_);  // after the frame before
  record(commands_);
  barrier(commands_, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
  CALL(vkEndCommandBuffer, commands_);
  auto submit = make<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &commands_;
  CALL(vkQueueSubmit, queue, 1, &submit, fence_);
  CALL(vkWaitForFences, device, 1, &fence_, VK_TRUE, UINT64_MAX);
  CALL(vkResetFences, device, 1, &fence_);
}
