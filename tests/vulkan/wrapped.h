// SPDX-License-Identifier: Apache-2.0
//
// The device of the tests behind a vkGetInstanceProcAddr that makes functions fail, and changes what the physical device
// says about itself. One at a time lives.
#ifndef GRADSCALER_TESTS_VULKAN_WRAPPED_H
#define GRADSCALER_TESTS_VULKAN_WRAPPED_H
#include <functional>
#include <map>
#include <set>
#include <string>

#include "tests/vulkan/device.h"

namespace gsc_test {

struct Said {
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceFloatControlsProperties controls;
  VkPhysicalDeviceFeatures features;
};

class Wrapped {
 public:
  Wrapped();
  Wrapped(const Wrapped &) = delete;
  Wrapped &operator=(const Wrapped &) = delete;
  ~Wrapped();
  gscx_vulkan_device handles() const;
  /// From now on, the n-th call that can fail does, and all after it if `lost`, as a device that was lost. 0: none.
  void fail_at(int n, bool lost = false);
  /// The function that has failed, "" if none has.
  const std::string &failed() const { return failed_; }
  std::function<void(Said &)> say = [](Said &) {};

  /// For the functions that stand in for Vulkan's.
  bool fails(const char *name);
  VkResult error() const { return lost_ ? VK_ERROR_DEVICE_LOST : VK_ERROR_OUT_OF_DEVICE_MEMORY; }
  void allocated(VkDeviceMemory memory, int64_t bytes);
  void freed(VkDeviceMemory memory);
  int64_t live = 0;              ///< objects that were created through this, and not destroyed
  int allocations = 0;           ///< calls of vkAllocateMemory
  int64_t bytes = 0;             ///< of vkAllocateMemory, not freed
  int64_t budget = INT64_MAX;    ///< of `bytes`: vkAllocateMemory fails beyond it
  std::set<VkFence> unfinished;  ///< of submissions not waited for yet: memory must not be freed meanwhile

 private:
  int left_ = 0;
  bool lost_ = false;
  std::string failed_;
  std::map<VkDeviceMemory, int64_t> sizes_;
};

}  // namespace gsc_test
#endif
