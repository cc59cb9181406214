// SPDX-License-Identifier: Apache-2.0
//
// Two CUDA devices, of two multiprocessors unless the environment asks for more, that exist in host memory only, so
// that the backend's own host code runs in the tests. Their memory lies in one region that can be touched only while a kernel or a copy runs: host code that reads
// or writes device memory faults. New and freed memory is filled with 0xff. Streams run at once, and can be used in
// their own context only: the primary one of a device, or one that a test has made.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "core/cuda/runtime.h"
#include "cuda.h"
#include "emulation.h"

struct CUctx_st {
  int device;
  int references;  ///< of a primary context: retained minus released
};

namespace gsc::cuda {
namespace emulation {
namespace {

constexpr std::size_t kRegionBytes = std::size_t{256} << 20;
constexpr int kDevices = 2;

struct Allocation {
  std::size_t bytes;
  int device;  ///< -1: pinned host memory
};

struct State {
  char *region = nullptr;
  int access = 0;
  std::map<char *, Allocation> allocations;
  std::map<cudaStream_t, CUcontext> streams;  ///< to their context
  std::set<cudaEvent_t> events;
  CUctx_st primary[kDevices] = {{0, 0}, {1, 0}};
  CUcontext current = nullptr;
  bool capturing = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  int64_t allocation_count = 0;
  int64_t wait_count = 0;
  int64_t bytes_in_use = 0;

  State() {
    void *memory = mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    region = static_cast<char *>(memory);
  }
};

State &state() {
  static State instance;
  return instance;
}

/// Where the runtime works if no context is current: in the primary one of device 0.
CUcontext context() { return state().current != nullptr ? state().current : &state().primary[0]; }

void protect(int access) { mprotect(state().region, kRegionBytes, access); }

void *take(std::size_t bytes, int device) {
  State &s = state();
  const std::size_t rounded = (bytes + 255) / 256 * 256;
  char *place = s.region;
  for (const auto &[start, allocation] : s.allocations) {
    if (start < s.region || start >= s.region + kRegionBytes) continue;
    if (static_cast<std::size_t>(start - place) >= rounded) break;
    place = start + (allocation.bytes + 255) / 256 * 256;
  }
  if (rounded > static_cast<std::size_t>(s.region + kRegionBytes - place)) return nullptr;
  s.allocations[place] = {bytes == 0 ? 1 : bytes, device};
  s.bytes_in_use += static_cast<int64_t>(bytes);
  const MemoryAccess access;
  std::memset(place, 0xff, bytes);
  return place;
}

cudaError_t give_back(void *memory) {
  State &s = state();
  if (memory == nullptr) return cudaSuccess;
  const auto it = s.allocations.find(static_cast<char *>(memory));
  if (it == s.allocations.end()) return cudaErrorInvalidValue;
  const MemoryAccess access;
  std::memset(memory, 0xff, it->second.bytes);
  s.bytes_in_use -= static_cast<int64_t>(it->second.bytes);
  s.allocations.erase(it);
  return cudaSuccess;
}

bool forbidden_in_capture() { return state().capturing && state().mode != cudaStreamCaptureModeRelaxed; }

}  // namespace

MemoryAccess::MemoryAccess() {
  if (state().access++ == 0) protect(PROT_READ | PROT_WRITE);
}
MemoryAccess::~MemoryAccess() {
  if (--state().access == 0) protect(PROT_NONE);
}

bool is_stream(cudaStream_t stream) {
  if (stream == nullptr) return true;
  const auto found = state().streams.find(stream);
  return found != state().streams.end() && found->second == context();
}
void set_capturing(bool capturing) { state().capturing = capturing; }
int64_t allocation_count() { return state().allocation_count; }
int64_t wait_count() { return state().wait_count; }
int64_t bytes_in_use() { return state().bytes_in_use; }
bool is_device_memory(const void *address, std::size_t bytes) {
  const State &s = state();
  const char *begin = static_cast<const char *>(address);
  auto it = s.allocations.upper_bound(const_cast<char *>(begin));
  if (it == s.allocations.begin()) return false;
  --it;
  const auto offset = static_cast<std::size_t>(begin - it->first);
  return it->second.device >= 0 && offset <= it->second.bytes && it->second.bytes - offset >= bytes;
}
int multiprocessor_count() {
  static const char *text = std::getenv("EMULATED_MULTIPROCESSORS");
  return text != nullptr ? std::atoi(text) : 2;
}
CUcontext primary_context(int device) { return &state().primary[device]; }
CUcontext make_context(int device) { return new CUctx_st{device, 0}; }
void destroy_context(CUcontext context) { delete context; }
int reference_count(CUcontext context) { return context->references; }
CUcontext current_context() { return state().current; }
void set_current_context(CUcontext context) { state().current = context; }
void *allocate_device(std::size_t bytes, int device) { return take(bytes, device); }
void *allocate_pinned(std::size_t bytes) {
  void *memory = std::malloc(bytes);
  state().allocations[static_cast<char *>(memory)] = {bytes, -1};
  return memory;
}

}  // namespace emulation

}  // namespace gsc::cuda

using namespace gsc::cuda::emulation;

namespace {

CUresult get_current(CUcontext *out) {
  *out = state().current;
  return CUDA_SUCCESS;
}
CUresult set_current(CUcontext context) {
  state().current = context;
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice *out, int ordinal) {
  *out = ordinal;
  return ordinal >= 0 && ordinal < kDevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult retain(CUcontext *out, CUdevice device) {
  *out = &state().primary[device];
  ++(*out)->references;
  return CUDA_SUCCESS;
}
CUresult release(CUdevice device) {
  --state().primary[device].references;
  return CUDA_SUCCESS;
}
CUresult get_device(CUdevice *out) {
  if (state().current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *out = state().current->device;
  return CUDA_SUCCESS;
}
CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t bytes,
                   CUstream stream) {
  for (const auto &[address, context] : {std::pair(to, to_context), {from, from_context}}) {
    cudaPointerAttributes attributes;
    cudaPointerGetAttributes(&attributes, reinterpret_cast<const void *>(address));
    if (attributes.type != cudaMemoryTypeDevice || attributes.device != context->device)
      return CUDA_ERROR_INVALID_VALUE;
  }
  const cudaError_t error = cudaMemcpyAsync(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes,
                                            cudaMemcpyHostToDevice, stream);
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **address, unsigned, unsigned,
                                             cudaDriverEntryPointQueryResult *found) {
  static const struct {
    const char *name;
    void *function;
  } functions[] = {{"cuCtxGetCurrent", reinterpret_cast<void *>(get_current)},
                   {"cuCtxSetCurrent", reinterpret_cast<void *>(set_current)},
                   {"cuDeviceGet", reinterpret_cast<void *>(device_get)},
                   {"cuDevicePrimaryCtxRetain", reinterpret_cast<void *>(retain)},
                   {"cuDevicePrimaryCtxRelease", reinterpret_cast<void *>(release)},
                   {"cuCtxGetDevice", reinterpret_cast<void *>(get_device)},
                   {"cuMemcpyPeerAsync", reinterpret_cast<void *>(copy_peer)}};
  *found = cudaDriverEntryPointSymbolNotFound;
  for (const auto &f : functions) {
    if (std::strcmp(f.name, name) != 0) continue;
    *address = f.function;
    *found = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "emulated error"; }
const char *cudaGetErrorName(cudaError_t) { return "cudaErrorEmulated"; }
cudaError_t cudaGetDeviceCount(int *count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = context()->device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  state().current = &state().primary[device];
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  properties->totalGlobalMem = std::size_t{256} << 20;
  properties->major = 9;
  properties->multiProcessorCount = multiprocessor_count();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
  *value = multiprocessor_count();
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  std::swap(*mode, state().mode);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(std::malloc(1));
  state().streams[*stream] = context();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  state().streams.erase(stream);
  std::free(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  if (forbidden_in_capture()) return cudaErrorStreamCaptureUnsupported;
  ++state().wait_count;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  *status = state().capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id) {
  *id = 1;
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(std::malloc(1));
  state().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  state().events.erase(event);
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return is_stream(stream) && state().events.count(event) != 0 ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *) {
  *pool = reinterpret_cast<cudaMemPool_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaSuccess; }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  std::free(pool);
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void **memory, std::size_t bytes, cudaMemPool_t, cudaStream_t stream) {
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  *memory = take(bytes, context()->device);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
  return is_stream(stream) ? give_back(memory) : cudaErrorInvalidResourceHandle;
}
cudaError_t cudaMalloc(void **memory, std::size_t bytes) {
  if (forbidden_in_capture()) return cudaErrorStreamCaptureUnsupported;
  ++state().allocation_count;
  *memory = take(bytes, context()->device);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *memory) {
  if (forbidden_in_capture()) return cudaErrorStreamCaptureUnsupported;
  return give_back(memory);
}
cudaError_t cudaMemsetAsync(void *memory, int value, std::size_t bytes, cudaStream_t stream) {
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  const MemoryAccess access;
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  const MemoryAccess access;
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *address) {
  const State &s = state();
  *attributes = {cudaMemoryTypeUnregistered, -2};
  auto it = s.allocations.upper_bound(const_cast<char *>(static_cast<const char *>(address)));
  if (it == s.allocations.begin()) return cudaSuccess;
  --it;
  if (static_cast<const char *>(address) >= it->first + it->second.bytes) return cudaSuccess;
  *attributes = {it->second.device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice, it->second.device};
  return cudaSuccess;
}
