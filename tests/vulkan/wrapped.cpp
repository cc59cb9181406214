// SPDX-License-Identifier: Apache-2.0
#include "tests/vulkan/wrapped.h"

namespace gsc_test {
namespace {

Wrapped *current = nullptr;

template <typename F>
F real(const char *name) {
  PFN_vkVoidFunction found = vkGetDeviceProcAddr(vulkan_device()->device, name);
  if (found == nullptr) found = vkGetInstanceProcAddr(vulkan_device()->instance, name);
  return reinterpret_cast<F>(found);
}

constexpr bool begins_with(const char *name, const char *word) {
  for (; *word != '\0'; ++name, ++word) {
    if (*name != *word) return false;
  }
  return true;
}

/// Stands in for a function. What returns a VkResult can fail; objects are counted.
template <typename F, const char *name>
struct StandIn;
template <typename R, typename... Args, const char *name>
struct StandIn<R(VKAPI_PTR *)(Args...), name> {
  static VKAPI_ATTR R VKAPI_CALL call(Args... args) {
    constexpr bool makes = begins_with(name, "vkCreate") || begins_with(name, "vkAllocateMemory");
    if constexpr (std::is_same_v<R, VkResult>) {
      if (current->fails(name)) {
        if (current->error() == VK_ERROR_DEVICE_LOST) current->unfinished.clear();
        return current->error();
      }
      if (is_refused(args...)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
      const VkResult result = real<R(VKAPI_PTR *)(Args...)>(name)(args...);
      if (makes && result == VK_SUCCESS) ++current->live;
      if (result == VK_SUCCESS) note(args...);
      return result;
    } else {
      if constexpr (begins_with(name, "vkDestroy") || begins_with(name, "vkFreeMemory")) {
        if (handle(args...)) --current->live;
        if constexpr (begins_with(name, "vkFreeMemory")) note_freed(args...);
      }
      return real<R(VKAPI_PTR *)(Args...)>(name)(args...);
    }
  }
  template <typename Device, typename Handle>
  static bool handle(Device, Handle object, const VkAllocationCallbacks *) {
    return object != Handle{};
  }

 private:
  template <typename... Any>
  static bool is_refused(Any...) {
    return false;
  }
  static bool is_refused(VkDevice, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *, VkDeviceMemory *) {
    return current->bytes + static_cast<int64_t>(info->allocationSize) > current->budget;
  }
  template <typename... Any>
  static void note(Any...) {}
  static void note(VkDevice, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *, VkDeviceMemory *made) {
    ++current->allocations;
    current->allocated(*made, static_cast<int64_t>(info->allocationSize));
  }
  static void note(VkQueue, uint32_t, const VkSubmitInfo *, VkFence fence) { current->unfinished.insert(fence); }
  static void note(VkDevice, uint32_t count, const VkFence *fences, VkBool32, uint64_t) {
    for (uint32_t i = 0; i < count; ++i) current->unfinished.erase(fences[i]);
  }
  static void note_freed(VkDevice, VkDeviceMemory memory, const VkAllocationCallbacks *) { current->freed(memory); }
};

VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *out) {
  vkGetPhysicalDeviceProperties2(device, out);
  auto *controls = static_cast<VkPhysicalDeviceFloatControlsProperties *>(out->pNext);
  Said said{out->properties, *controls, {}};
  current->say(said);
  out->properties = said.properties;
  *controls = said.controls;
}

VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *out) {
  vkGetPhysicalDeviceFeatures2(device, out);
  Said said{{}, {}, out->features};
  current->say(said);
  out->features = said.features;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice device, const char *name);

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance(VkInstance instance, const char *name) {
  const std::string wanted = name;
  if (wanted == "vkGetPhysicalDeviceProperties2") return reinterpret_cast<PFN_vkVoidFunction>(get_properties);
  if (wanted == "vkGetPhysicalDeviceFeatures2") return reinterpret_cast<PFN_vkVoidFunction>(get_features);
  if (wanted == "vkGetDeviceProcAddr") return reinterpret_cast<PFN_vkVoidFunction>(get_device);
  return vkGetInstanceProcAddr(instance, name);
}

#define GSC_FOR_EACH_STAND_IN(X) \
  X(CreateBuffer)                \
  X(DestroyBuffer)               \
  X(AllocateMemory)              \
  X(FreeMemory)                  \
  X(BindBufferMemory)            \
  X(MapMemory)                   \
  X(CreateShaderModule)          \
  X(DestroyShaderModule)         \
  X(CreatePipelineLayout)        \
  X(DestroyPipelineLayout)       \
  X(CreateComputePipelines)      \
  X(DestroyPipeline)             \
  X(CreateCommandPool)           \
  X(DestroyCommandPool)          \
  X(AllocateCommandBuffers)      \
  X(BeginCommandBuffer)          \
  X(EndCommandBuffer) X(CreateFence) X(DestroyFence) X(WaitForFences) X(ResetFences) X(QueueSubmit)
#define GSC_NAME(name) constexpr char kName##name[] = "vk" #name;
GSC_FOR_EACH_STAND_IN(GSC_NAME)
#undef GSC_NAME

PFN_vkVoidFunction get_device(VkDevice device, const char *name) {
#define GSC_TRY(function)                                                                          \
  if (std::strcmp(name, kName##function) == 0) {                                                   \
    return reinterpret_cast<PFN_vkVoidFunction>(StandIn<PFN_vk##function, kName##function>::call); \
  }
  GSC_FOR_EACH_STAND_IN(GSC_TRY)
#undef GSC_TRY
  return vkGetDeviceProcAddr(device, name);
}

}  // namespace

Wrapped::Wrapped() { current = this; }
Wrapped::~Wrapped() { current = nullptr; }

gscx_vulkan_device Wrapped::handles() const {
  gscx_vulkan_device h = vulkan_device()->handles();
  h.get_instance_proc_addr = reinterpret_cast<void *>(get_instance);
  h.enabled_features = nullptr;
  return h;
}

void Wrapped::fail_at(int n, bool lost) {
  left_ = n;
  lost_ = lost;
  failed_.clear();
}

void Wrapped::allocated(VkDeviceMemory memory, int64_t size) { bytes += sizes_[memory] = size; }

void Wrapped::freed(VkDeviceMemory memory) {
  if (memory == nullptr) return;
  EXPECT_TRUE(unfinished.empty()) << "memory is freed, but work that may use it has not been waited for";
  bytes -= sizes_[memory];
  sizes_.erase(memory);
}

bool Wrapped::fails(const char *name) {
  if (left_ == 0) return false;
  if (left_ > 1) {
    --left_;
    return false;
  }
  if (!lost_) left_ = 0;  // a lost device stays so
  if (failed_.empty()) failed_ = name;
  return true;
}

}  // namespace gsc_test
