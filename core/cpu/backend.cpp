// SPDX-License-Identifier: Apache-2.0
// The CPU backend except its passes over plans, which are in check.cpp, apply.cpp and their neighbours.
#include "core/cpu/backend.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/device/registry.h"

namespace gsc::cpu {
namespace {

// Tasks per thread: enough that a late thread costs little, few enough to keep tasks large.
constexpr int32_t kTasksPerThread = 4;

}  // namespace

CpuBackend::CpuBackend(std::pmr::memory_resource *memory, const Kernels *kernels, int32_t threads,
                       gsc_parallel_for_fn parallel_for, void *parallel_for_user)
    : memory_(memory), kernels_(kernels), parallel_(threads, parallel_for, parallel_for_user) {}

void *CpuBackend::allocate(int64_t bytes) {
  // On a 32-bit system the state of large 16-bit parameters may not fit.
  if (!std::in_range<std::ptrdiff_t>(bytes)) throw OutOfMemory(static_cast<std::size_t>(bytes));
  void *memory = memory_->allocate(bytes, kMaxAlignment);
  std::memset(memory, 0, bytes);
  return memory;
}

void CpuBackend::release(void *memory, int64_t bytes) noexcept { memory_->deallocate(memory, bytes, kMaxAlignment); }

void CpuBackend::write(void *device, const void *host, int64_t bytes, gsc_stream /*stream*/) {
  std::memcpy(device, host, bytes);
}

void CpuBackend::write_sync(void *device, const void *host, int64_t bytes, gsc_stream stream) {
  write(device, host, bytes, stream);
}

void CpuBackend::read_sync(void *host, const void *device, int64_t bytes, gsc_stream /*stream*/) {
  std::memcpy(host, device, bytes);
}

void CpuBackend::validate_memory(const gsc_tensor *tensors, int64_t count, const Argument &what) {
  for (int64_t i = 0; i < count; ++i) {
    if (tensors[i].count == 0) continue;
    const Owner owner = owner_of(tensors[i].data);
    if (owner.backend != nullptr) {
      refuse(what.tensor(i).field("data"), "is memory of %s device %d, but the context is for the CPU",
             owner.backend->name, owner.device);
    }
  }
}

void CpuBackend::record(const RecordJob &job, gsc_stream /*stream*/) {
  UpdateSummary summary = empty_summary();
  for (int64_t i = 0; i < job.list_count; ++i) add_to_summary(summary, *job.lists[i]);
  run_sized_record_job(job, summary);
}

int32_t CpuBackend::wanted_tasks() const {
  return parallel_.threads() == 1 ? 1 : parallel_.threads() * kTasksPerThread;
}

}  // namespace gsc::cpu
