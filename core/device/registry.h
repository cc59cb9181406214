// SPDX-License-Identifier: Apache-2.0
// The backends of this build, a row each. Everything above asks here and knows none of them by name. A new backend is a
// folder that defines its row, and an entry in registry.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "gradscaler/gradscaler.h"

struct gscx_vulkan_device;

namespace gsc {

class Backend;

/// Threads of a context at most.
inline constexpr int32_t kMaxThreads = 1024;

/// A backend that has just been made, in `bytes` bytes of the context's memory aligned to kMaxAlignment.
struct OpenBackend {
  Backend *backend;
  std::size_t bytes;
  int32_t cpu_target;    ///< GSC_CPU_*
  int32_t num_threads;   ///< of the host
  char description[64];  ///< for the log: "CPU context with avx2 kernels and 8 threads"
};

struct BackendRow {
  int32_t device_type;
  const char *name;   ///< for messages: "CPU", "CUDA"
  const char *build;  ///< what it was built for, for gsc_library_get_build_info
  int32_t (*device_count)();
  /// Throws UNAVAILABLE if there is no such device.
  gsc_device_info (*device_info)(int32_t device_index);
  /// Throws UNAVAILABLE, naming the field of the options, if there is no such device. `vulkan` is the caller's device,
  /// for Vulkan's row alone; NULL: the device that the options name.
  OpenBackend (*open)(std::pmr::memory_resource *memory, const gsc_context_options &options,
                      const gscx_vulkan_device *vulkan);
  /// The device whose memory an address is in, -1 if none of this kind. NULL: the backend cannot tell.
  int32_t (*device_of)(const void *address);
};

/// The row of a GSC_DEVICE_*; one that is not in this build has no devices. Throws INVALID_ARGUMENT naming `what` for
/// any other value.
const BackendRow &find_backend(int32_t device_type, const Argument &what);

/// The device whose memory an address is known to be in. Backend NULL: unknown, perhaps host memory.
struct Owner {
  const BackendRow *backend;
  int32_t device;
};
Owner owner_of(const void *address);

/// Writes what every backend was built for, each after ", ".
void describe_backends(char *text, std::size_t size);

/// Makes a backend of type B in `memory`; the caller fills in the rest.
template <typename B, typename... Args>
OpenBackend make_backend(std::pmr::memory_resource *memory, const Args &...args) {
  void *place = memory->allocate(sizeof(B), kMaxAlignment);
  try {
    return {new (place) B(memory, args...), sizeof(B), GSC_CPU_BASELINE, 1, ""};
  } catch (...) {
    memory->deallocate(place, sizeof(B), kMaxAlignment);
    throw;
  }
}

}  // namespace gsc
