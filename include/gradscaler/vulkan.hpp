// SPDX-License-Identifier: Apache-2.0
#ifndef GRADSCALER_VULKAN_HPP
#define GRADSCALER_VULKAN_HPP
//
// EXPERIMENTAL: <gradscaler/vulkan.h> in C++20. Everything in it may change or go in any release. The contracts, and
// what differs on Vulkan, are in that header.
//
//     gscx_vulkan_device handles{};
//     handles.struct_size = sizeof handles;
//     ...
//     gradscaler::Context ctx = gradscaler::experimental::context_create_vulkan(handles);
//
#include <gradscaler/vulkan.h>

#include <gradscaler/gradscaler.hpp>

namespace gradscaler::experimental {

/// GSCX_DEVICE_VULKAN, for device_get_count, device_get_info and ContextOptions.
inline constexpr DeviceType device_vulkan = static_cast<DeviceType>(GSCX_DEVICE_VULKAN);

/// A context on your Vulkan device. The options have device_vulkan, or the default.
inline Context context_create_vulkan(const gscx_vulkan_device &device, const ContextOptions &options = {}) {
  const gsc_context_options c = options.to_c();
  gsc_context *made = nullptr;
  detail::check(gscx_context_create_vulkan(&c, &device, &made));
  return Context::adopt(made);
}

}  // namespace gradscaler::experimental

#endif  // GRADSCALER_VULKAN_HPP
