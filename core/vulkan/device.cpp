// SPDX-License-Identifier: Apache-2.0
#include "core/vulkan/device.h"

#include <algorithm>
#include <iterator>

#include "core/base/callback.h"
#include "core/device/backend.h"

namespace gsc::vulkan {
namespace {

/// Features that the kernels need, from either way to ask for them: the structs of a version, or of an extension.
struct Features {
  bool float64, int64, storage8, storage16, address;
};

template <typename T>
const T *next_as(const VkBaseInStructure *s, VkStructureType type) {
  return s->sType == type ? reinterpret_cast<const T *>(s) : nullptr;
}

Features read_features(const void *chain) {
  Features f{};
  for (auto *s = static_cast<const VkBaseInStructure *>(chain); s != nullptr; s = s->pNext) {
    if (const auto *c = next_as<VkPhysicalDeviceFeatures2>(s, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2)) {
      f.float64 = c->features.shaderFloat64 != 0;
      f.int64 = c->features.shaderInt64 != 0;
    }
    if (const auto *c =
            next_as<VkPhysicalDeviceVulkan11Features>(s, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES)) {
      f.storage16 |= c->storageBuffer16BitAccess != 0;
    }
    if (const auto *c =
            next_as<VkPhysicalDeviceVulkan12Features>(s, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES)) {
      f.storage8 |= c->storageBuffer8BitAccess != 0;
      f.address |= c->bufferDeviceAddress != 0;
    }
    if (const auto *c = next_as<VkPhysicalDevice16BitStorageFeatures>(
            s, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES)) {
      f.storage16 |= c->storageBuffer16BitAccess != 0;
    }
    if (const auto *c =
            next_as<VkPhysicalDevice8BitStorageFeatures>(s, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES)) {
      f.storage8 |= c->storageBuffer8BitAccess != 0;
    }
    if (const auto *c = next_as<VkPhysicalDeviceBufferDeviceAddressFeatures>(
            s, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES)) {
      f.address |= c->bufferDeviceAddress != 0;
    }
  }
  return f;
}

/// A chain of the features of Vulkan 1.0 to 1.2.
struct FeatureChain {
  FeatureChain() {
    all.pNext = &v11;
    v11.pNext = &v12;
  }
  FeatureChain(const FeatureChain &) = delete;
  FeatureChain &operator=(const FeatureChain &) = delete;
  VkPhysicalDeviceFeatures2 all{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, nullptr, {}};
  VkPhysicalDeviceVulkan11Features v11{};
  VkPhysicalDeviceVulkan12Features v12{};
};

FeatureChain &prepare(FeatureChain &chain) {
  chain.v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  chain.v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  return chain;
}

}  // namespace

Instance::Instance(Functions &functions, const Argument &what) : functions_(functions) {
  const PFN_vkGetInstanceProcAddr get = find_loader();
  if (get == nullptr) fail(GSC_ERROR_UNAVAILABLE, what, "is for Vulkan, but its loader (libvulkan) was not found");
  functions.find_global(get);
  const char *doing = "opening Vulkan";
  uint32_t version = 0;
  GSC_VK_CALL(doing, functions, EnumerateInstanceVersion, &version);
  if (version < VK_API_VERSION_1_2) {
    fail(GSC_ERROR_UNAVAILABLE, what, "is for Vulkan, but its loader is older than version 1.2");
  }
  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "gradscaler";
  application.apiVersion = VK_API_VERSION_1_2;
  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  GSC_VK_CALL(doing, functions, CreateInstance, &info, nullptr, &instance_);
  try {
    functions.find_instance(instance_);
    const VkResult result = functions.EnumeratePhysicalDevices(instance_, &count_, devices_);
    if (result != VK_INCOMPLETE) check(result, doing, "vkEnumeratePhysicalDevices");
  } catch (...) {
    close();
    throw;
  }
}

void Instance::close() noexcept {
  if (instance_ != nullptr && functions_.DestroyInstance != nullptr) functions_.DestroyInstance(instance_, nullptr);
  instance_ = nullptr;
}

VkPhysicalDevice Instance::device(int32_t index, const Argument &what) const {
  if (index < 0 || index >= count()) {
    fail(GSC_ERROR_UNAVAILABLE, what, "is %d, but there are %d Vulkan devices", index, count());
  }
  return devices_[index];
}

Requirements::Requirements(const Functions &functions, VkPhysicalDevice device, const void *enabled) {
  VkPhysicalDeviceFloatControlsProperties controls{};
  controls.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES;
  VkPhysicalDeviceProperties2 asked{};
  asked.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  asked.pNext = &controls;
  functions.GetPhysicalDeviceProperties2(device, &asked);
  properties_ = asked.properties;
  float_controls_ = {controls.shaderDenormPreserveFloat32 != 0, controls.shaderDenormPreserveFloat64 != 0};
  const VkPhysicalDeviceLimits &limits = properties_.limits;

  FeatureChain supported;
  functions.GetPhysicalDeviceFeatures2(device, &prepare(supported).all);
  const Features has = read_features(&supported.all);
  const Features on = enabled != nullptr ? read_features(enabled) : has;
  const struct {
    bool there, on;
    const char *what;
  } needs[] = {
      {properties_.apiVersion >= VK_API_VERSION_1_2, true, "Vulkan 1.2"},
      {has.float64, on.float64, "the feature shaderFloat64"},
      {has.int64, on.int64, "the feature shaderInt64"},
      {has.storage8, on.storage8, "the feature storageBuffer8BitAccess"},
      {has.storage16, on.storage16, "the feature storageBuffer16BitAccess"},
      {has.address, on.address, "the feature bufferDeviceAddress"},
      {controls.shaderRoundingModeRTEFloat32 != 0, true, "rounding to nearest: shaderRoundingModeRTEFloat32"},
      {controls.shaderRoundingModeRTEFloat64 != 0, true, "rounding to nearest: shaderRoundingModeRTEFloat64"},
      {controls.shaderSignedZeroInfNanPreserveFloat32 != 0, true,
       "inf and NaN in arithmetic: shaderSignedZeroInfNanPreserveFloat32"},
      {controls.shaderSignedZeroInfNanPreserveFloat64 != 0, true,
       "inf and NaN in arithmetic: shaderSignedZeroInfNanPreserveFloat64"},
      {limits.maxComputeWorkGroupInvocations >= 256 && limits.maxComputeWorkGroupSize[0] >= 256, true,
       "workgroups of 256 invocations: maxComputeWorkGroupInvocations"},
      {limits.maxComputeSharedMemorySize >= 16384, true, "16 KiB of shared memory: maxComputeSharedMemorySize"},
  };
  for (const auto &need : needs) {
    if (need.there && need.on) continue;
    std::snprintf(missing_, sizeof missing_, need.there ? "was created without %s" : "has no %s", need.what);
    return;
  }
}

Device::Device(const gsc_context_options &options, const gscx_vulkan_device *given) {
  if ((options.flags & GSC_CONTEXT_USE_CURRENT) != 0) {
    refuse(kOptions.field("flags"), "has GSC_CONTEXT_USE_CURRENT, which is for CUDA devices");
  }
  if (options.device_pool != nullptr) {
    refuse(kOptions.field("device_pool"), "is not NULL, but it is for CUDA devices");
  }
  try {
    given != nullptr ? borrow(*given) : open(options.device_index);
    functions_.GetPhysicalDeviceMemoryProperties(physical_, &memory_);
  } catch (...) {
    close();
    throw;
  }
}

Device::~Device() { close(); }

void Device::close() noexcept {
  if (own_instance_ == nullptr) return;
  if (device_ != nullptr && functions_.DestroyDevice != nullptr) functions_.DestroyDevice(device_, nullptr);
  own_instance_->~Instance();
  own_instance_ = nullptr;
}

void Device::require(const Argument &what, const void *enabled) {
  const Requirements requirements(functions_, physical_, enabled);
  properties_ = requirements.properties();
  float_controls_ = requirements.float_controls();
  if (*requirements.missing() == '\0') return;
  fail(GSC_ERROR_UNAVAILABLE, what, "is for the Vulkan device \"%.100s\", which %s", name(), requirements.missing());
}

void Device::borrow(const gscx_vulkan_device &given) {
  const struct {
    const void *handle;
    Literal field;
  } handles[] = {{given.instance, "instance"},
                 {given.physical_device, "physical_device"},
                 {given.device, "device"},
                 {given.queue, "queue"},
                 {given.get_instance_proc_addr, "get_instance_proc_addr"}};
  for (const auto &[handle, field] : handles) {
    if (handle == nullptr) refuse(kDevice.field(field), "is NULL");
  }
  if ((given.lock == nullptr) != (given.unlock == nullptr)) {
    refuse(kDevice.field(given.lock == nullptr ? Literal("lock") : Literal("unlock")),
           "is NULL; give both lock and unlock, or neither");
  }
  if ((given.allocate == nullptr) != (given.release == nullptr)) {
    refuse(kDevice.field(given.allocate == nullptr ? Literal("allocate") : Literal("release")),
           "is NULL; give both allocate and release, or neither");
  }
  given_ = given;
  functions_.GetInstanceProcAddr = reinterpret_cast<PFN_vkGetInstanceProcAddr>(given.get_instance_proc_addr);
  functions_.find_instance(static_cast<VkInstance>(given.instance));
  physical_ = static_cast<VkPhysicalDevice>(given.physical_device);
  find_families();
  family_ = given.queue_family;
  if (std::ranges::find(compute_families(), family_) == compute_families().end()) {
    refuse(kDevice.field("queue_family"), "is %u, which is not a family of the device with VK_QUEUE_COMPUTE_BIT",
           family_);
  }
  require(kDevice, given.enabled_features);
  device_ = static_cast<VkDevice>(given.device);
  functions_.find_device(device_);
  queue_ = static_cast<VkQueue>(given.queue);
}

void Device::open(int32_t index) {
  const Argument what = kOptions.field("device_index");
  own_instance_ = new (instance_memory_) Instance(functions_, what);
  physical_ = own_instance_->device(index, what);
  require(what, nullptr);
  find_families();
  if (family_count_ == 0) fail(GSC_ERROR_UNAVAILABLE, what, "is for a Vulkan device without a queue for compute");
  family_ = families_[0];
  FeatureChain needed;
  prepare(needed).all.features.shaderFloat64 = VK_TRUE;
  needed.all.features.shaderInt64 = VK_TRUE;
  needed.v11.storageBuffer16BitAccess = VK_TRUE;
  needed.v12.storageBuffer8BitAccess = VK_TRUE;
  needed.v12.bufferDeviceAddress = VK_TRUE;
  const float priority = 1.0F;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = family_;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &needed.all;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  GSC_VK_CALL("opening the Vulkan device", functions_, CreateDevice, physical_, &info, nullptr, &device_);
  functions_.find_device(device_);
  functions_.GetDeviceQueue(device_, family_, 0, &queue_);
}

void Device::find_families() {
  VkQueueFamilyProperties families[kMostFamilies];
  uint32_t count = kMostFamilies;
  functions_.GetPhysicalDeviceQueueFamilyProperties(physical_, &count, families);
  for (uint32_t i = 0; i < count; ++i) {
    if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0) families_[family_count_++] = i;
  }
}

VkResult Device::submit(const VkSubmitInfo &info, VkFence fence) {
  if (given_.lock != nullptr) call_back([&] { given_.lock(given_.lock_user); });
  const VkResult result = functions_.QueueSubmit(queue_, 1, &info, fence);
  if (given_.unlock != nullptr) call_back([&] { given_.unlock(given_.lock_user); });
  return result;
}

}  // namespace gsc::vulkan
