// SPDX-License-Identifier: Apache-2.0
#include "tests/vulkan/device.h"

#include <cstdlib>
#include <memory>

namespace gsc_test {
namespace {

void expect_success(VkResult result, const char *call) { ASSERT_EQ(result, VK_SUCCESS) << call; }
#define EXPECT_VK(call) expect_success(call, #call)

bool is_set(const char *variable) {
  const char *value = std::getenv(variable);
  return value != nullptr && *value != '\0' && *value != '0';
}

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT *data, void *user) {
  ++static_cast<VulkanDevice *>(user)->messages;
  ADD_FAILURE() << data->pMessage;
  return VK_FALSE;
}

/// A large buffer from which memory is cut until it is full. Once all of it is given back, cutting begins at its start.
struct Arena {
  gscx_vulkan_buffer made;
  int64_t bytes, used = 0, live = 0;
  bool holds(const void *at) const {
    const auto a = reinterpret_cast<uint64_t>(at);
    return a >= made.address && a < made.address + static_cast<uint64_t>(bytes);
  }
};
std::vector<Arena> arenas;
std::mutex arenas_mutex;

Arena make_arena(VulkanDevice &d, int64_t bytes) {
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = static_cast<VkDeviceSize>(bytes);
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  return {d.make_buffer(info, true, false), bytes};
}

Arena &arena_of(const void *at) {
  for (Arena &a : arenas) {
    if (a.holds(at)) return a;
  }
  ADD_FAILURE() << at << " is not memory of the tests";
  std::abort();
}

char *mapped_at(const void *device) {
  const std::lock_guard lock(arenas_mutex);
  const Arena &a = arena_of(device);
  return static_cast<char *>(a.made.mapped) + (reinterpret_cast<uint64_t>(device) - a.made.address);
}

}  // namespace

VulkanDevice::VulkanDevice() {
  const bool validates = is_set("GRADSCALER_TEST_VALIDATION");
  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.apiVersion = VK_API_VERSION_1_2;
  const char *layers[] = {"VK_LAYER_KHRONOS_validation"};
  const char *extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
  const VkValidationFeatureEnableEXT checks[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  VkValidationFeaturesEXT validation{};
  validation.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT;
  validation.enabledValidationFeatureCount = 1;
  validation.pEnabledValidationFeatures = checks;
  VkDebugUtilsMessengerCreateInfoEXT messages_to{};
  messages_to.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
  messages_to.pNext = nullptr;
  messages_to.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messages_to.messageType =
      VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
  messages_to.pfnUserCallback = on_message;
  messages_to.pUserData = this;
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  if (validates) {
    info.pNext = &validation;
    info.enabledLayerCount = info.enabledExtensionCount = 1;
    info.ppEnabledLayerNames = layers;
    info.ppEnabledExtensionNames = extensions;
  }
  if (const VkResult result = vkCreateInstance(&info, nullptr, &instance); result != VK_SUCCESS) {
    EXPECT_FALSE(validates) << "the validation layer is missing: " << result;
    return;
  }
  if (validates) {
    const auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance, "vkCreateDebugUtilsMessengerEXT"));
    EXPECT_VK(create(instance, &messages_to, nullptr, &messenger_));
  }
  VkPhysicalDevice found[8];
  uint32_t count = 8;
  const char *chosen = std::getenv("GRADSCALER_TEST_VULKAN_DEVICE");
  const auto index = static_cast<uint32_t>(chosen != nullptr ? std::atoi(chosen) : 0);
  if (vkEnumeratePhysicalDevices(instance, &count, found) < 0 || index >= count) return;
  physical = found[index];
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &v11;
  v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  v11.pNext = &v12;
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  features.features.shaderFloat64 = features.features.shaderInt64 = VK_TRUE;
  v11.storageBuffer16BitAccess = v12.storageBuffer8BitAccess = v12.bufferDeviceAddress = VK_TRUE;
  VkQueueFamilyProperties families[16];
  uint32_t family_count = 16;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &family_count, families);
  while (family < family_count && (families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) ++family;
  const float priority = 1.0F;
  VkDeviceQueueCreateInfo queues{};
  queues.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queues.queueFamilyIndex = family;
  queues.queueCount = 1;
  queues.pQueuePriorities = &priority;
  VkDeviceCreateInfo create{};
  create.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  create.pNext = &features;
  create.queueCreateInfoCount = 1;
  create.pQueueCreateInfos = &queues;
  EXPECT_VK(vkCreateDevice(physical, &create, nullptr, &device));
  if (device == nullptr) return;
  vkGetDeviceQueue(device, family, 0, &queue);
  VkCommandPoolCreateInfo pools{};
  pools.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pools.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pools.queueFamilyIndex = family;
  EXPECT_VK(vkCreateCommandPool(device, &pools, nullptr, &pool));
}

VulkanDevice::~VulkanDevice() {
  if (device != nullptr) {
    for (const Arena &a : arenas) destroy(a.made);
    vkDestroyCommandPool(device, pool, nullptr);
    vkDestroyDevice(device, nullptr);
  }
  if (messenger_ != nullptr) {
    reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance, "vkDestroyDebugUtilsMessengerEXT"))(instance, messenger_, nullptr);
  }
  if (instance != nullptr) vkDestroyInstance(instance, nullptr);
}

gscx_vulkan_device VulkanDevice::handles() {
  gscx_vulkan_device h{};
  h.struct_size = sizeof h;
  h.queue_family = family;
  h.instance = instance;
  h.physical_device = physical;
  h.device = device;
  h.queue = queue;
  h.get_instance_proc_addr = reinterpret_cast<void *>(vkGetInstanceProcAddr);
  h.enabled_features = &features;
  h.lock = [](void *user) {
    auto *d = static_cast<VulkanDevice *>(user);
    d->mutex.lock();
    ++d->locks;
  };
  h.unlock = [](void *user) { static_cast<VulkanDevice *>(user)->mutex.unlock(); };
  h.lock_user = this;
  return h;
}

gscx_vulkan_buffer VulkanDevice::make_buffer(const VkBufferCreateInfo &info, bool is_mapped, bool is_shifted) {
  VkBuffer buffer = nullptr;
  VkDeviceMemory memory = nullptr;
  EXPECT_VK(vkCreateBuffer(device, &info, nullptr, &buffer));
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device, buffer, &needs);
  VkPhysicalDeviceMemoryProperties types;
  vkGetPhysicalDeviceMemoryProperties(physical, &types);
  const VkMemoryPropertyFlags wanted = is_mapped
                                           ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                                           : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  uint32_t type = 0;
  while ((needs.memoryTypeBits >> type & 1U) == 0 || (types.memoryTypes[type].propertyFlags & wanted) != wanted) ++type;
  const VkDeviceSize offset = is_shifted ? needs.alignment : 0;
  VkMemoryAllocateFlagsInfo flags{};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo allocate{};
  allocate.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  allocate.pNext = &flags;
  allocate.allocationSize = needs.size + offset;
  allocate.memoryTypeIndex = type;
  EXPECT_VK(vkAllocateMemory(device, &allocate, nullptr, &memory));
  EXPECT_VK(vkBindBufferMemory(device, buffer, memory, offset));
  VkBufferDeviceAddressInfo address{};
  address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  address.buffer = buffer;
  gscx_vulkan_buffer made{buffer, vkGetBufferDeviceAddress(device, &address), nullptr, memory};
  if (is_mapped) EXPECT_VK(vkMapMemory(device, memory, offset, VK_WHOLE_SIZE, 0, &made.mapped));
  return made;
}

VkBuffer VulkanDevice::alias(const gscx_vulkan_buffer &whole, const VkBufferCreateInfo &info, int64_t offset) const {
  VkBuffer buffer = nullptr;
  EXPECT_VK(vkCreateBuffer(device, &info, nullptr, &buffer));
  EXPECT_VK(vkBindBufferMemory(device, buffer, static_cast<VkDeviceMemory>(whole.allocation),
                               static_cast<VkDeviceSize>(offset)));
  return buffer;
}

void VulkanDevice::destroy(const gscx_vulkan_buffer &buffer) const {
  vkDestroyBuffer(device, static_cast<VkBuffer>(buffer.buffer), nullptr);
  vkFreeMemory(device, static_cast<VkDeviceMemory>(buffer.allocation), nullptr);
}

void VulkanDevice::submit(const std::vector<VkCommandBuffer> &commands) {
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.commandBufferCount = static_cast<uint32_t>(commands.size());
  info.pCommandBuffers = commands.data();
  const std::lock_guard lock(mutex);
  EXPECT_VK(vkQueueSubmit(queue, 1, &info, nullptr));
}

void VulkanDevice::wait() {
  const std::lock_guard lock(mutex);
  EXPECT_VK(vkQueueWaitIdle(queue));
}

VkCommandBuffer VulkanDevice::make_commands(VkCommandBufferLevel level) {
  VkCommandBufferAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  info.commandPool = pool;
  info.level = level;
  info.commandBufferCount = 1;
  VkCommandBuffer commands = nullptr;
  EXPECT_VK(vkAllocateCommandBuffers(device, &info, &commands));
  return commands;
}

void VulkanDevice::begin(VkCommandBuffer commands, VkCommandBufferUsageFlags flags) {
  VkCommandBufferInheritanceInfo inheritance{};
  inheritance.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO;
  VkCommandBufferBeginInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  info.flags = flags;
  info.pInheritanceInfo = &inheritance;
  EXPECT_VK(vkBeginCommandBuffer(commands, &info));
}

VulkanDevice *vulkan_device() {
  static const auto device = std::make_unique<VulkanDevice>();
  return device->device != nullptr ? device.get() : nullptr;
}

DeviceBytes::DeviceBytes(int64_t bytes) {
  bytes = (bytes + 255) & ~int64_t{255};
  const std::lock_guard lock(arenas_mutex);
  Arena *room = nullptr;
  for (Arena &a : arenas) {
    if (a.bytes - a.used >= bytes) room = &a;
  }
  if (room == nullptr) {
    arenas.push_back(make_arena(*vulkan_device(), std::max(bytes, int64_t{16} << 20)));
    room = &arenas.back();
  }
  data_ = reinterpret_cast<char *>(room->made.address) + room->used;
  room->used += bytes;
  ++room->live;
}

DeviceBytes::~DeviceBytes() {
  if (data_ == nullptr) return;
  vulkan_device()->wait();
  const std::lock_guard lock(arenas_mutex);
  Arena &a = arena_of(data_);
  if (--a.live == 0) a.used = 0;
}

void copy_to_device(void *device, const void *host, int64_t bytes) {
  if (bytes == 0) return;
  vulkan_device()->wait();
  std::memcpy(mapped_at(device), host, static_cast<size_t>(bytes));
}

void copy_to_host(void *host, const void *device, int64_t bytes) {
  if (bytes == 0) return;
  vulkan_device()->wait();
  std::memcpy(host, mapped_at(device), static_cast<size_t>(bytes));
}

DeviceContext device_context() {
  vulkan_device();  // which is destroyed later
  static const Context context = make_device_context();
  return context;
}

Context make_context(const gscx_vulkan_device &handles) {
  gsc_context *context = nullptr;
  EXPECT_GSC_OK(gscx_context_create_vulkan(nullptr, &handles, &context));
  return Context(context);
}

}  // namespace gsc_test
