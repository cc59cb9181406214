// SPDX-License-Identifier: Apache-2.0
// The CPU backend but for its passes over plans: check.cpp, apply.cpp and the others beside it have those.
#include "core/cpu/backend.h"

#include <cstring>

#include "core/base/error.h"
#if defined(GSC_HAVE_CUDA)
#include "core/cuda/devices.h"
#endif

namespace gsc::cpu {
namespace {

// Tasks per thread: enough that a late thread costs little, few enough that tasks stay large.
constexpr int32_t kTasksPerThread = 4;

}  // namespace

CpuBackend::CpuBackend(std::pmr::memory_resource *memory, const Kernels *kernels, int32_t threads,
                       gsc_parallel_for_fn parallel_for, void *parallel_for_user)
    : memory_(memory), kernels_(kernels), parallel_(threads, parallel_for, parallel_for_user) {}

void *CpuBackend::allocate(int64_t bytes) {
  void *memory = memory_->allocate(static_cast<std::size_t>(bytes), kMaxAlignment);
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
  return memory;
}

void CpuBackend::release(void *memory, int64_t bytes) noexcept {
  memory_->deallocate(memory, static_cast<std::size_t>(bytes), kMaxAlignment);
}

void CpuBackend::write(void *device, const void *host, int64_t bytes, gsc_stream /*stream*/) {
  std::memcpy(device, host, static_cast<std::size_t>(bytes));
}

void CpuBackend::read_sync(void *host, const void *device, int64_t bytes, gsc_stream /*stream*/) {
  std::memcpy(host, device, static_cast<std::size_t>(bytes));
}

#if defined(GSC_HAVE_CUDA)
void CpuBackend::validate_memory(const gsc_tensor *tensors, int64_t count, const char *what) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t device = tensors[i].count > 0 ? cuda::device_of(tensors[i].data) : -1;
    if (device >= 0) {
      fail(GSC_ERROR_INVALID_ARGUMENT, "%s[%lld].data is memory of CUDA device %d, but the context is of the CPU", what,
           static_cast<long long>(i), device);
    }
  }
}
#else
// Any address may be host memory; there is nothing to ask.
void CpuBackend::validate_memory(const gsc_tensor * /*tensors*/, int64_t /*count*/, const char * /*what*/) {}
#endif

int32_t CpuBackend::wanted_tasks() const {
  return parallel_.threads() == 1 ? 1 : parallel_.threads() * kTasksPerThread;
}

}  // namespace gsc::cpu
