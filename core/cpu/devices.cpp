// SPDX-License-Identifier: Apache-2.0
// The CPU's row in the registry of backends: one device, limited to the processors that this process may use.
#include <algorithm>
#include <cstdio>

#include "core/base/error.h"
#include "core/cpu/backend.h"
#include "core/cpu/dispatch.h"
#include "core/device/registry.h"

#if defined(__linux__)
#include <unistd.h>
#endif

namespace gsc::cpu {
namespace {

int64_t physical_memory() {
#if defined(__linux__)
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? pages * page : 0;
#else
  return 0;
#endif
}

void require_device(int32_t device_index, const Argument &what) {
  if (device_index != 0) fail(GSC_ERROR_UNAVAILABLE, what, "is %d, but there is only CPU 0", device_index);
}

gsc_device_info device_info(int32_t device_index) {
  require_device(device_index, "device_index");
  gsc_device_info info{};
  info.struct_size = sizeof info;
  info.device_type = GSC_DEVICE_CPU;
  info.units = usable_processors();
  info.level = best_target();
  info.memory_bytes = physical_memory();
  std::snprintf(info.name, sizeof info.name, "CPU (%s)", find_kernels(info.level)->name);
  return info;
}

OpenBackend open(std::pmr::memory_resource *memory, const gsc_context_options &options,
                 const gscx_vulkan_device * /*vulkan*/) {
  require_device(options.device_index, kOptions.field("device_index"));
  if ((options.flags & GSC_CONTEXT_USE_CURRENT) != 0) {
    refuse(kOptions.field("flags"), "has GSC_CONTEXT_USE_CURRENT, which is for CUDA devices");
  }
  if (options.device_pool != nullptr) {
    refuse(kOptions.field("device_pool"), "is not NULL, but the CPU has no memory pools; pass allocate and release");
  }
  const Kernels *kernels = find_kernels(options.cpu_target);
  if (kernels == nullptr) {
    fail(GSC_ERROR_UNAVAILABLE, kOptions.field("cpu_target"),
         "is %d, which this processor or this build does not support", options.cpu_target);
  }
  const int32_t threads = options.num_threads != 0 ? options.num_threads : std::min(usable_processors(), kMaxThreads);
  OpenBackend made =
      make_backend<CpuBackend>(memory, kernels, threads, options.parallel_for, options.parallel_for_user);
  made.cpu_target = options.cpu_target != GSC_CPU_BEST ? options.cpu_target : best_target();
  made.num_threads = threads;
  std::snprintf(made.description, sizeof made.description, "CPU context with %s kernels and %d threads", kernels->name,
                threads);
  return made;
}

}  // namespace

extern const BackendRow kBackendRow;
// Any address that no other backend claims may be host memory.
const BackendRow kBackendRow = {
    GSC_DEVICE_CPU, "CPU", "CPU kernels: " GSC_CPU_KERNELS, [] { return int32_t{1}; }, device_info, open, nullptr,
};

}  // namespace gsc::cpu
