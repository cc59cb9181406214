// SPDX-License-Identifier: Apache-2.0
//
// Weights and gradients in a buffer of Vulkan, stepped by the CUDA backend. The buffer's memory and a timeline semaphore
// are exported by Vulkan and imported by CUDA: Vulkan writes the gradients of a frame and signals, the step waits for it
// on its stream and signals back. The host waits only at the end. Exit status 77 where no device has both.
//
// With Direct3D 12 the same calls of CUDA take a shared handle of an ID3D12Resource or ID3D12Heap
// (cudaExternalMemoryHandleTypeD3D12Resource, cudaExternalMemoryDedicated) and of an ID3D12Fence
// (cudaExternalSemaphoreHandleTypeD3D12Fence).
#include <cuda_runtime.h>
#include <gradscaler/gradscaler.h>
#include <vulkan/vulkan.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr VkDeviceSize kCount = 1 << 16, kBytes = kCount * sizeof(float);
constexpr float kRate = 0.125F;
constexpr float kScale = 1024.0F;
/// The gradients of three frames as they are in memory, multiplied by the scale. The second overflows: its step is
/// skipped and the scale halved.
constexpr float kFrames[] = {0.5F * 1024, HUGE_VALF, 0.5F * 512};
constexpr float kExpected = 1.0F - 2 * kRate * 0.5F;

void require(bool condition, const char *what) {
  if (condition) return;
  std::fprintf(stderr, "vulkan_memory: %s failed\n", what);
  std::exit(1);
}
void require(VkResult result, const char *what) { require(result == VK_SUCCESS, what); }
void require(cudaError_t error, const char *what) { require(error == cudaSuccess, what); }
#define CALL(function, ...) require(function(__VA_ARGS__), #function)
void require(gsc_status status) {
  if (status != GSC_OK) std::fprintf(stderr, "vulkan_memory: %s\n", gsc_error_get_message());
  require(status == GSC_OK, "step");
}
[[noreturn]] void skip(const char *why) {
  std::printf("vulkan_memory: skipped, %s\n", why);
  std::exit(77);
}

/// A device of Vulkan that is CUDA device 0, with one queue. It lives as long as the program.
struct Device {
  VkPhysicalDevice physical = nullptr;
  VkDevice device = nullptr;
  VkQueue queue = nullptr;
  uint32_t family = 0;

  Device() {
    cudaDeviceProp cuda{};
    if (cudaGetDeviceProperties(&cuda, 0) != cudaSuccess) skip("there is no CUDA device");
    VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.apiVersion = VK_API_VERSION_1_2;
    VkInstanceCreateInfo of_instance{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    of_instance.pApplicationInfo = &application;
    VkInstance instance = nullptr;
    if (vkCreateInstance(&of_instance, nullptr, &instance) != VK_SUCCESS) skip("there is no driver of Vulkan");
    uint32_t count = 0;
    vkEnumeratePhysicalDevices(instance, &count, nullptr);
    std::vector<VkPhysicalDevice> devices(count);
    vkEnumeratePhysicalDevices(instance, &count, devices.data());
    for (VkPhysicalDevice candidate : devices) {
      VkPhysicalDeviceIDProperties id{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
      VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &id};
      vkGetPhysicalDeviceProperties2(candidate, &properties);
      if (std::memcmp(id.deviceUUID, &cuda.uuid, VK_UUID_SIZE) == 0) physical = candidate;
    }
    if (physical == nullptr) skip("CUDA device 0 is no device of Vulkan");

    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
    while (family < count && (families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) ++family;
    const float priority = 1.0F;
    VkDeviceQueueCreateInfo of_queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    of_queue.queueFamilyIndex = family;
    of_queue.queueCount = 1;
    of_queue.pQueuePriorities = &priority;
    VkPhysicalDeviceTimelineSemaphoreFeatures features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES};
    features.timelineSemaphore = VK_TRUE;
    const char *extensions[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME};
    VkDeviceCreateInfo of_device{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features};
    of_device.queueCreateInfoCount = 1;
    of_device.pQueueCreateInfos = &of_queue;
    of_device.enabledExtensionCount = 2;
    of_device.ppEnabledExtensionNames = extensions;
    CALL(vkCreateDevice, physical, &of_device, nullptr, &device);
    vkGetDeviceQueue(device, family, 0, &queue);
  }

  /// A buffer, and memory of this kind for it. `exported`: CUDA can import the memory.
  VkBuffer make_buffer(VkDeviceSize bytes, VkMemoryPropertyFlags kind, bool exported, VkDeviceMemory *memory,
                       VkDeviceSize *allocated) const {
    VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
    external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    VkBufferCreateInfo of_buffer{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, exported ? &external : nullptr};
    of_buffer.size = bytes;
    of_buffer.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    VkBuffer buffer = nullptr;
    CALL(vkCreateBuffer, device, &of_buffer, nullptr, &buffer);
    VkMemoryRequirements needs{};
    vkGetBufferMemoryRequirements(device, buffer, &needs);
    VkPhysicalDeviceMemoryProperties types{};
    vkGetPhysicalDeviceMemoryProperties(physical, &types);
    uint32_t type = 0;
    while (type < types.memoryTypeCount &&
           ((needs.memoryTypeBits >> type & 1) == 0 || (types.memoryTypes[type].propertyFlags & kind) != kind)) {
      ++type;
    }
    VkMemoryDedicatedAllocateInfo dedicated{VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
    dedicated.buffer = buffer;
    VkExportMemoryAllocateInfo exporting{VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, &dedicated};
    exporting.handleTypes = external.handleTypes;
    VkMemoryAllocateInfo allocation{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, exported ? &exporting : nullptr};
    allocation.allocationSize = *allocated = needs.size;
    allocation.memoryTypeIndex = type;
    CALL(vkAllocateMemory, device, &allocation, nullptr, memory);
    CALL(vkBindBufferMemory, device, buffer, *memory, 0);
    return buffer;
  }

  template <typename Function>
  Function function(const char *name) const {
    return reinterpret_cast<Function>(vkGetDeviceProcAddr(device, name));
  }
};

/// Memory of Vulkan at an address of CUDA. CUDA owns the file descriptor once it is imported.
void *import_memory(const Device &vulkan, VkDeviceMemory memory, VkDeviceSize bytes) {
  VkMemoryGetFdInfoKHR wanted{VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR};
  wanted.memory = memory;
  wanted.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
  cudaExternalMemoryHandleDesc handle{};
  handle.type = cudaExternalMemoryHandleTypeOpaqueFd;
  handle.size = bytes;
  handle.flags = cudaExternalMemoryDedicated;
  require(vulkan.function<PFN_vkGetMemoryFdKHR>("vkGetMemoryFdKHR")(vulkan.device, &wanted, &handle.handle.fd),
          "vkGetMemoryFdKHR");
  cudaExternalMemory_t imported = nullptr;
  CALL(cudaImportExternalMemory, &imported, &handle);
  cudaExternalMemoryBufferDesc whole{};
  whole.size = bytes;
  void *address = nullptr;
  CALL(cudaExternalMemoryGetMappedBuffer, &address, imported, &whole);
  return address;
}

VkSemaphore make_timeline(const Device &vulkan, cudaExternalSemaphore_t *imported) {
  VkExportSemaphoreCreateInfo exporting{VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO};
  exporting.handleTypes = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, &exporting};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  const VkSemaphoreCreateInfo of_semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
  VkSemaphore semaphore = nullptr;
  CALL(vkCreateSemaphore, vulkan.device, &of_semaphore, nullptr, &semaphore);
  VkSemaphoreGetFdInfoKHR wanted{VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR};
  wanted.semaphore = semaphore;
  wanted.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
  cudaExternalSemaphoreHandleDesc handle{};
  handle.type = cudaExternalSemaphoreHandleTypeTimelineSemaphoreFd;
  require(vulkan.function<PFN_vkGetSemaphoreFdKHR>("vkGetSemaphoreFdKHR")(vulkan.device, &wanted, &handle.handle.fd),
          "vkGetSemaphoreFdKHR");
  CALL(cudaImportExternalSemaphore, imported, &handle);
  return semaphore;
}

/// Hands the buffer from `from` to `to`, of which one is Vulkan's queue family and one VK_QUEUE_FAMILY_EXTERNAL.
void hand_over(VkCommandBuffer commands, VkBuffer buffer, uint32_t from, uint32_t to) {
  VkBufferMemoryBarrier barrier{VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER};
  const VkAccessFlags transfer = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  barrier.srcAccessMask = from == VK_QUEUE_FAMILY_EXTERNAL ? 0 : transfer;
  barrier.dstAccessMask = from == VK_QUEUE_FAMILY_EXTERNAL ? transfer : 0;
  barrier.srcQueueFamilyIndex = from;
  barrier.dstQueueFamilyIndex = to;
  barrier.buffer = buffer;
  barrier.size = VK_WHOLE_SIZE;
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, nullptr, 1,
                       &barrier, 0, nullptr);
}

uint32_t bits(float value) {
  uint32_t result = 0;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

}  // namespace

int main() {
  const Device vulkan;
  VkDeviceMemory memory = nullptr, result_memory = nullptr;
  VkDeviceSize allocated = 0, unused = 0;
  const VkBuffer shared =
      vulkan.make_buffer(2 * kBytes, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, true, &memory, &allocated);
  const VkBuffer result =
      vulkan.make_buffer(kBytes, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, false,
                         &result_memory, &unused);
  auto *weights = static_cast<float *>(import_memory(vulkan, memory, allocated));
  cudaExternalSemaphore_t cuda_timeline = nullptr;
  const VkSemaphore timeline = make_timeline(vulkan, &cuda_timeline);

  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  gsc_context *context = nullptr;
  gsc_tensor_list *params = nullptr, *grads = nullptr;
  gsc_optimizer *sgd = nullptr;
  gsc_scaler *scaler = nullptr;
  require(gsc_context_create(&options, &context));
  const gsc_tensor weight = GSC_TENSOR_INIT(weights, kCount, GSC_FP32);
  const gsc_tensor gradient = GSC_TENSOR_INIT(weights + kCount, kCount, GSC_FP32);
  require(gsc_tensor_list_create(context, &weight, 1, nullptr, &params));
  require(gsc_tensor_list_create(context, &gradient, 1, nullptr, &grads));
  gsc_optimizer_options of_sgd;
  require(gsc_optimizer_options_init(&of_sgd, sizeof of_sgd, GSC_SGD));
  of_sgd.lr = kRate;
  require(gsc_optimizer_create(context, &of_sgd, params, grads, nullptr, nullptr, 0, &sgd));
  gsc_scaler_options scaling = GSC_SCALER_OPTIONS_INIT;
  scaling.init_scale = kScale;
  require(gsc_scaler_create(context, &scaling, &scaler));
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");

  VkCommandPoolCreateInfo of_pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  of_pool.queueFamilyIndex = vulkan.family;
  VkCommandPool pool = nullptr;
  CALL(vkCreateCommandPool, vulkan.device, &of_pool, nullptr, &pool);
  uint64_t reached = 0;
  /// Runs what `record` records once the timeline has reached its last value, and makes it reach the next.
  const auto submit = [&](auto record) {
    VkCommandBufferAllocateInfo of_commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    of_commands.commandPool = pool;
    of_commands.commandBufferCount = 1;
    VkCommandBuffer commands = nullptr;
    CALL(vkAllocateCommandBuffers, vulkan.device, &of_commands, &commands);
    VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    CALL(vkBeginCommandBuffer, commands, &begin);
    if (reached > 0) hand_over(commands, shared, VK_QUEUE_FAMILY_EXTERNAL, vulkan.family);
    record(commands);
    hand_over(commands, shared, vulkan.family, VK_QUEUE_FAMILY_EXTERNAL);
    CALL(vkEndCommandBuffer, commands);
    const uint64_t after = reached, next = reached + 1;
    VkTimelineSemaphoreSubmitInfo values{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
    values.waitSemaphoreValueCount = values.signalSemaphoreValueCount = 1;
    values.pWaitSemaphoreValues = &after;
    values.pSignalSemaphoreValues = &next;
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkSubmitInfo submission{VK_STRUCTURE_TYPE_SUBMIT_INFO, &values};
    submission.waitSemaphoreCount = submission.signalSemaphoreCount = submission.commandBufferCount = 1;
    submission.pWaitSemaphores = submission.pSignalSemaphores = &timeline;
    submission.pWaitDstStageMask = &stage;
    submission.pCommandBuffers = &commands;
    CALL(vkQueueSubmit, vulkan.queue, 1, &submission, nullptr);
    reached = next;
  };

  for (const float value : kFrames) {
    submit([&](VkCommandBuffer commands) {  // stands for the shaders of a backward pass
      if (reached == 0) vkCmdFillBuffer(commands, shared, 0, kBytes, bits(1.0F));
      vkCmdFillBuffer(commands, shared, kBytes, kBytes, bits(value));
    });
    cudaExternalSemaphoreWaitParams wait{};
    wait.params.fence.value = reached;
    CALL(cudaWaitExternalSemaphoresAsync, &cuda_timeline, &wait, 1, stream);
    require(gsc_scaler_step_and_update(scaler, sgd, stream));
    cudaExternalSemaphoreSignalParams signal{};
    signal.params.fence.value = ++reached;
    CALL(cudaSignalExternalSemaphoresAsync, &cuda_timeline, &signal, 1, stream);
  }
  submit([&](VkCommandBuffer commands) {
    const VkBufferCopy copy{0, 0, kBytes};
    vkCmdCopyBuffer(commands, shared, result, 1, &copy);
  });
  CALL(vkQueueWaitIdle, vulkan.queue);
  void *mapped = nullptr;
  CALL(vkMapMemory, vulkan.device, result_memory, 0, kBytes, 0, &mapped);
  VkDeviceSize right = 0;
  for (VkDeviceSize i = 0; i < kCount; ++i) right += static_cast<const float *>(mapped)[i] == kExpected ? 1 : 0;
  float scale = 0.0F;
  require(gsc_scaler_get_scale_sync(scaler, &scale, stream));
  std::printf("three frames, one of them skipped: scale %g, %llu of %llu weights are %g\n", static_cast<double>(scale),
              static_cast<unsigned long long>(right), static_cast<unsigned long long>(kCount),
              static_cast<double>(kExpected));
  gsc_optimizer_destroy(sgd);
  gsc_scaler_destroy(scaler);
  gsc_tensor_list_destroy(params);
  gsc_tensor_list_destroy(grads);
  gsc_context_destroy(context);
  return right == kCount && scale == kScale / 2 ? 0 : 1;
}
