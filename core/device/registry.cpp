// SPDX-License-Identifier: Apache-2.0
// The table of backends: the one file that asks which of them are in this build.
#include "core/device/registry.h"

#include <cstdio>
#include <cstring>

#include "core/base/decimal.h"
#include "core/base/error.h"
#include "gradscaler/vulkan.h"

namespace gsc {

namespace {

template <typename Names>
[[noreturn]] void fail_without(const Argument &what) {
  fail(GSC_ERROR_UNAVAILABLE, what, "is %s, but this library was built without %s", Names::kConstant, Names::kName);
}

/// The row of a backend that is not in this build.
template <typename Names>
constexpr BackendRow absent_row(int32_t device_type) {
  return {
      device_type,
      Names::kName,
      Names::kBuild,
      [] { return int32_t{0}; },
      [](int32_t) -> gsc_device_info { fail_without<Names>("device_type"); },
      [](std::pmr::memory_resource *, const gsc_context_options &, const gscx_vulkan_device *vulkan) -> OpenBackend {
        if (vulkan == nullptr) fail_without<Names>(kOptions.field("device_type"));
        fail(GSC_ERROR_UNAVAILABLE, "device", "cannot be opened: this library was built without %s", Names::kName);
      },
      nullptr,
  };
}

}  // namespace

namespace cpu {
extern const BackendRow kBackendRow;  // core/cpu/devices.cpp
}
namespace cuda {
#if defined(GSC_HAVE_CUDA)
extern const BackendRow kBackendRow;  // core/cuda/devices.cpp
#else
namespace {
struct Names {
  static constexpr char kConstant[] = "GSC_DEVICE_CUDA", kName[] = "CUDA", kBuild[] = "CUDA: none";
};
constexpr BackendRow kBackendRow = absent_row<Names>(GSC_DEVICE_CUDA);
}  // namespace
#endif
}  // namespace cuda
namespace vulkan {
#if defined(GSC_HAVE_VULKAN)
extern const BackendRow kBackendRow;  // core/vulkan/devices.cpp
#else
namespace {
struct Names {
  static constexpr char kConstant[] = "GSCX_DEVICE_VULKAN", kName[] = "Vulkan", kBuild[] = "Vulkan: no";
};
constexpr BackendRow kBackendRow = absent_row<Names>(GSCX_DEVICE_VULKAN);
}  // namespace
#endif
}  // namespace vulkan

namespace {

const BackendRow *const kBackends[] = {&cpu::kBackendRow, &cuda::kBackendRow, &vulkan::kBackendRow};

}  // namespace

const BackendRow &find_backend(int32_t device_type, const Argument &what) {
  for (const BackendRow *row : kBackends) {
    if (row->device_type == device_type) return *row;
  }
  refuse_value(what, device_type, "one of GSC_DEVICE_*");
}

Owner owner_of(const void *address) {
  for (const BackendRow *row : kBackends) {
    const int32_t device = row->device_of != nullptr ? row->device_of(address) : -1;
    if (device >= 0) return {row, device};
  }
  return {nullptr, -1};
}

void describe_backends(char *text, std::size_t size) {
  std::size_t used = 0;
  for (const BackendRow *row : kBackends) {
    if (used + 1 < size) std::snprintf(text + used, size - used, ", %s", row->build);
    used += std::strlen(text + used);
  }
}

}  // namespace gsc
