// SPDX-License-Identifier: Apache-2.0
// CUDA devices as the core and the C ABI ask for them: how many, what they are, and whether an address lies on one.
// Free of CUDA's own headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>

#include "gradscaler/gradscaler.h"

namespace gsc {
class Backend;
}

namespace gsc::cuda {

/// A backend in `*bytes` bytes from `memory`, aligned to kMaxAlignment. Throws UNAVAILABLE if there is no such device.
Backend *make_backend(std::pmr::memory_resource *memory, int32_t device_index, std::size_t *bytes);

/// 0 without a driver or without a device.
int32_t device_count();
/// Throws UNAVAILABLE, with the runtime's reason, if there is no such device.
gsc_device_info device_info(int32_t device_index);
/// The device that an address lies on, -1 for host memory. Only asks once some CUDA context has been created in this
/// process: asking would start the driver.
int32_t device_of(const void *address);

}  // namespace gsc::cuda
