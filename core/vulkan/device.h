// SPDX-License-Identifier: Apache-2.0
// The Vulkan device of a context: the caller's, or one that the library opens. Checks that it has what the kernels need.
#pragma once

#include <span>

#include "core/vulkan/functions.h"
#include "gradscaler/vulkan.h"

namespace gsc::vulkan {

/// The argument that has the caller's handles.
inline constexpr Argument kDevice = "device";

/// A VkInstance of the library's own, for looking at devices and for opening one.
class Instance {
 public:
  /// Throws UNAVAILABLE, naming `what`, if there is no Vulkan.
  Instance(Functions &functions, const Argument &what);
  Instance(const Instance &) = delete;
  Instance &operator=(const Instance &) = delete;
  ~Instance() { close(); }
  void close() noexcept;
  VkInstance get() const { return instance_; }
  int32_t count() const { return static_cast<int32_t>(count_); }
  /// Throws UNAVAILABLE, naming `what`, if there is no such device.
  VkPhysicalDevice device(int32_t index, const Argument &what) const;

 private:
  static constexpr uint32_t kMost = 32;
  Functions &functions_;
  VkInstance instance_ = nullptr;
  uint32_t count_ = kMost;
  VkPhysicalDevice devices_[kMost] = {};
};

/// Which kinds of subnormal numbers the device can be told to keep.
struct FloatControls {
  bool denormals32;
  bool denormals64;
};

/// The first thing that the kernels need and a device lacks, as a sentence that begins with "has no"; "" if it has all.
/// `enabled` is a chain that begins with VkPhysicalDeviceFeatures2; NULL: what the device supports.
class Requirements {
 public:
  Requirements(const Functions &functions, VkPhysicalDevice device, const void *enabled);
  const char *missing() const { return missing_; }
  const VkPhysicalDeviceProperties &properties() const { return properties_; }
  const FloatControls &float_controls() const { return float_controls_; }

 private:
  char missing_[160] = "";
  FloatControls float_controls_{};
  VkPhysicalDeviceProperties properties_{};
};

class Device {
 public:
  /// `given`: the caller's; NULL: the library opens that of the options.
  Device(const gsc_context_options &options, const gscx_vulkan_device *given);
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;
  ~Device();

  const Functions &functions() const { return functions_; }
  VkDevice get() const { return device_; }
  uint32_t queue_family() const { return family_; }
  const FloatControls &float_controls() const { return float_controls_; }
  /// That have compute, of which command buffers may be.
  std::span<const uint32_t> compute_families() const { return {families_, family_count_}; }
  const char *name() const { return properties_.deviceName; }
  const VkPhysicalDeviceMemoryProperties &memory() const { return memory_; }
  /// The caller's; all NULL if the library opened the device.
  const gscx_vulkan_device &given() const { return given_; }
  /// Under the caller's lock.
  VkResult submit(const VkSubmitInfo &info, VkFence fence);

 private:
  void borrow(const gscx_vulkan_device &given);
  void open(int32_t index);
  void close() noexcept;
  void find_families();
  /// Throws UNAVAILABLE for what is missing.
  void require(const Argument &what, const void *enabled);

  Functions functions_;
  Instance *own_instance_ = nullptr;  ///< in instance_memory_
  alignas(Instance) unsigned char instance_memory_[sizeof(Instance)];
  VkPhysicalDevice physical_ = nullptr;
  VkDevice device_ = nullptr;
  VkQueue queue_ = nullptr;
  uint32_t family_ = UINT32_MAX;
  static constexpr uint32_t kMostFamilies = 16;
  uint32_t families_[kMostFamilies];
  std::size_t family_count_ = 0;
  FloatControls float_controls_{};
  gscx_vulkan_device given_{};
  VkPhysicalDeviceProperties properties_{};
  VkPhysicalDeviceMemoryProperties memory_{};
};

}  // namespace gsc::vulkan
