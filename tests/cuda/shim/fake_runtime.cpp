// SPDX-License-Identifier: Apache-2.0
//
// Two CUDA devices in host memory, with two multiprocessors unless the environment asks for more, to run the backend's
// own host code in the tests. Device memory is in one region that is accessible only while a kernel runs: host code
// that touches it faults. Copies go through a second mapping. Stream operations complete at once, or as late as possible
// (set_lazy_streams), and streams and events work only in their own context: the primary one of a device, or one made by
// a test. Every call that can fail can be made to fail, see fail_call.
//
// Where CUDA leaves a choice, the emulation takes the worse one:
//   - New and freed memory is filled with 0xff and handed out again at once. A write to freed memory, or beyond an
//     allocation, ends the program once the memory is handed out or freed.
//   - cudaFree waits for the device, except for memory of a pool, of which CUDA assumes that all accesses are complete.
//   - Memory from cudaMallocFromPoolAsync holds nothing until its stream gets there.
//   - Copies of pageable memory are done after the call has returned, as late as others.
//   - Work of a destroyed stream goes on, as late as possible.
//   - It refuses grids of no or too many blocks, blocks of no or too many threads, copies and fills that leave an
//     allocation, copies against their direction, events of another context, waits for events of another capture, what a
//     capture forbids, and the default stream while a stream that blocks with it is captured. A kernel of more than 4 KiB
//     of parameters does not compile.
//
// What it allows and CUDA does not:
//   - Waiting for an event of a capture does not take a stream into the capture; it fails.
//   - Captured work is done at once, besides being kept, and sets no dependencies.
//   - The legacy default stream waits for no other stream, and none waits for it.
//   - Kernels may take any memory of the devices, also another device's and beyond an allocation, and may exceed their
//     launch bounds, registers and shared memory. Kernels that run as PTX are checked for accesses (tests/cuda/ptx).
//   - Blocks run one after the other, so that races between them do not show; see tests/cuda/ptx for those in a block.
//   - A pool does not keep memory for later, and has no limit or place of its own.
//   - Calls from several threads at once are not safe, and no call blocks another.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/cuda/plan.h"
#include "core/cuda/runtime.h"
#include "fake_state.h"

namespace gsc::cuda::emulation {

State::State() {
  const int file = memfd_create("device memory", 0);
  if (file < 0 || ftruncate(file, kRegionBytes) != 0) std::abort();
  const auto map = [file](int access) {
    void *memory = mmap(nullptr, kRegionBytes, access, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<char *>(memory);
  };
  region = map(PROT_NONE);
  copy = map(PROT_READ | PROT_WRITE);
  close(file);
}
State &state() {
  static State instance;
  return instance;
}
ThreadState &this_thread() {
  static thread_local ThreadState instance;
  return instance;
}

CUcontext working_context() {
  ThreadState &t = this_thread();
  if (t.current == nullptr) {
    t.current = &state().primary[0];
    ++state().implicit_contexts;
  }
  return t.current;
}

const std::pair<char *const, Allocation> *find_allocation(const void *address) {
  auto &all = state().allocations;
  auto it = all.upper_bound(const_cast<char *>(static_cast<const char *>(address)));
  if (it == all.begin()) return nullptr;
  --it;
  return static_cast<const char *>(address) < it->first + it->second.bytes ? &*it : nullptr;
}

void *reach(const void *address) {
  const State &s = state();
  auto *byte = static_cast<char *>(const_cast<void *>(address));
  return byte >= s.region && byte < s.region + kRegionBytes ? s.copy + (byte - s.region) : byte;
}

bool is_implicit(cudaStream_t stream) {
  State &s = state();
  if (stream != nullptr) return false;
  for (const auto &[captured, id] : s.captured) {
    const auto found = s.streams.find(captured);
    if (found == s.streams.end() || !found->second.blocks || found->second.context != working_context()) continue;
    s.capture_disturbed = true;
    return true;
  }
  return false;
}

bool disturbs_capture() {
  State &s = state();
  if (this_thread().mode == cudaStreamCaptureModeRelaxed || (s.capturing == 0 && s.captured.empty())) return false;
  s.capture_disturbed = true;
  return true;
}

bool fails(const char *call) {
  State &s = state();
  if (s.calls++ != s.failing_call && s.always_failing != call) return false;
  s.failed_call = call;
  return true;
}
cudaError_t refusal(cudaError_t error) { return this_thread().last_error = error; }
cudaError_t failure() { return refusal(state().failure); }

cudaError_t check_shape(int64_t blocks, int threads) {
  constexpr int64_t kMostBlocks = INT32_MAX;
  constexpr int kMostThreads = 1024;
  const bool fits = blocks >= 1 && blocks <= kMostBlocks && threads >= 1 && threads <= kMostThreads;
  return fits ? cudaSuccess : refusal(cudaErrorInvalidConfiguration);
}
cudaError_t take_last_error() { return std::exchange(this_thread().last_error, cudaSuccess); }
void fail_call(int64_t index) {
  state().calls = 0;
  state().failing_call = index;
  state().failed_call = nullptr;
}
void fail_always(const char *call, cudaError_t error) {
  state().always_failing = call;
  state().failure = *call != '\0' ? error : cudaErrorUnknown;
}
int64_t call_count() { return state().calls; }
const char *failed_call() { return state().failed_call; }

namespace {

constexpr char kFill = '\xff';  ///< new and freed memory

/// Up to the highest address that was ever in use.
void protect(int access) { mprotect(state().region, state().used, access); }

size_t rounded_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

/// Memory that belongs to no one still holds what it was filled with.
void expect_untouched(const char *begin, const char *end, const char *what) {
  const auto *written = std::find_if(begin, end, [](char byte) { return byte != kFill; });
  if (written == end) return;
  std::fprintf(stderr, "emulation: %s was written to, at offset %td\n", what, written - state().copy);
  std::abort();
}

void *take(size_t bytes, int device, CUcontext context) {
  State &s = state();
  if (bytes == 0) return nullptr;
  const size_t rounded = rounded_up(bytes);
  char *place = s.region;
  for (const auto &[start, allocation] : s.allocations) {
    if (start < s.region || start >= s.region + kRegionBytes) continue;
    if (static_cast<size_t>(start - place) >= rounded) break;
    place = start + rounded_up(allocation.bytes);
  }
  if (rounded > static_cast<size_t>(s.region + kRegionBytes - place)) return nullptr;
  const size_t begin = place - s.region, end = begin + rounded;
  expect_untouched(s.copy + begin, s.copy + std::max(begin, std::min(end, s.used)), "freed memory");
  s.allocations[place] = {bytes, device, context};
  s.bytes_in_use += static_cast<int64_t>(bytes);
  s.used = std::max(s.used, end);
  std::memset(s.copy + begin, kFill, rounded);
  return place;
}

cudaError_t give_back(void *memory) {
  State &s = state();
  if (memory == nullptr) return cudaSuccess;
  const auto it = s.allocations.find(static_cast<char *>(memory));
  if (it == s.allocations.end() || it->second.device < 0) return cudaErrorInvalidValue;
  auto *const place = static_cast<char *>(reach(memory));
  const size_t rounded = rounded_up(it->second.bytes);
  expect_untouched(place + it->second.bytes, place + rounded, "memory beyond an allocation");
  std::memset(place, kFill, rounded);
  s.bytes_in_use -= static_cast<int64_t>(it->second.bytes);
  s.allocations.erase(it);
  return cudaSuccess;
}

}  // namespace

MemoryAccess::MemoryAccess() {
  if (state().access++ == 0) protect(PROT_READ | PROT_WRITE);
}
MemoryAccess::~MemoryAccess() {
  if (--state().access == 0) protect(PROT_NONE);
}

bool is_stream(cudaStream_t stream) {
  const CUcontext context = working_context();
  if (stream == nullptr) return true;
  const auto found = state().streams.find(stream);
  return found != state().streams.end() && found->second.context == context;
}
namespace {

uint64_t queue_of(cudaStream_t stream) {
  return stream != nullptr ? state().streams[stream].id : reinterpret_cast<uint64_t>(working_context());
}
unsigned long long capture_of(cudaStream_t stream) {
  const State &s = state();
  if (s.capturing != 0) return s.capturing;
  const auto found = s.captured.find(stream);
  return found != s.captured.end() ? found->second : 0;
}
bool is_capturing(cudaStream_t stream) { return capture_of(stream) != 0; }
/// Does what the mark waits for. Work that waits for other queues calls this in turn.
void finish(const Mark &mark) {
  Queue &queue = state().queues[mark.queue];
  while (queue.done < mark.count) {
    const std::function<void()> work = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.done;
    work();
  }
}
Mark end_of(uint64_t queue) {
  const Queue &q = state().queues[queue];
  return {queue, q.done + static_cast<int64_t>(q.work.size())};
}
void finish_all() {
  for (auto it = state().queues.begin(); it != state().queues.end(); ++it) finish(end_of(it->first));
}
void finish_device(int device) {
  for (auto it = state().queues.begin(); it != state().queues.end(); ++it) {
    if (it->second.device == device) finish(end_of(it->first));
  }
}

}  // namespace

int64_t pending_work(cudaStream_t stream) { return std::ssize(state().queues[queue_of(stream)].work); }
/// What is no part of a graph.
static void enqueue_outside(cudaStream_t stream, std::function<void()> work) {
  if (!state().lazy) return work();
  Queue &queue = state().queues[queue_of(stream)];
  queue.device = working_context()->device;
  queue.work.push_back(std::move(work));
}
void enqueue_work(cudaStream_t stream, std::function<void()> work) {
  if (state().keeping) state().kept.push_back(work);
  enqueue_outside(stream, std::move(work));
}
std::vector<std::function<void()>> keep_work(bool keep) {
  state().keeping = keep;
  return std::exchange(state().kept, {});
}
void set_lazy_streams(bool lazy) {
  finish_all();
  state().lazy = lazy;
}
void set_capturing(bool capturing) {
  state().capturing = capturing ? ++state().last_capture : 0;
  state().capture_disturbed = false;
}
void begin_capture(cudaStream_t stream) {
  state().captured[stream] = ++state().last_capture;
  state().capture_disturbed = false;
}
bool end_capture(cudaStream_t stream) {
  state().captured.erase(stream);
  return !state().capture_disturbed;
}
void set_memory_pools(bool there) { state().has_pools = there; }
void set_host_page_tables(bool used) { state().host_page_tables = used; }
void set_mapping_distance(int64_t bytes) { state().mapping_distance = bytes; }
int64_t allocation_count() { return state().allocation_count; }
int64_t wait_count() { return state().wait_count; }
int64_t other_node_count() { return state().other_nodes; }
int64_t event_wait_count() { return state().event_waits; }
int64_t event_record_count() { return state().event_records; }
int64_t bytes_in_use() { return state().bytes_in_use; }
int64_t objects_in_use() {
  const State &s = state();
  return static_cast<int64_t>(s.streams.size() + s.events.size() + s.pools.size());
}
bool is_cuda_memory(const void *address, size_t bytes) {
  const auto *found = find_allocation(address);
  if (found == nullptr) return false;
  return found->second.bytes - static_cast<size_t>(static_cast<const char *>(address) - found->first) >= bytes;
}
int multiprocessor_count() {
  static const char *text = std::getenv("EMULATED_MULTIPROCESSORS");
  return text != nullptr ? std::atoi(text) : 2;
}
static int resident = 4;
void set_resident_blocks(int blocks) { resident = blocks; }
int resident_blocks() { return resident; }
CUcontext primary_context(int device) { return &state().primary[device]; }
CUcontext make_context(int device) { return new CUctx_st{device, 0}; }
void destroy_context(CUcontext context) { delete context; }
int reference_count(CUcontext context) { return context->references; }
CUcontext current_context() { return this_thread().current; }
void set_current_context(CUcontext context) { this_thread().current = context; }
std::vector<Walk> take_walks() { return std::exchange(state().walks, {}); }
void set_team(int warps, int split) {
  state().team = warps;
  state().split = split;
}
void note_walk(PlanView &plan, int64_t chunks, int64_t warps) {
  if (state().team != 0) {
    plan.warps_per_chunk = state().team;
    plan.split = state().split;
  }
  state().walks.push_back({plan.warps_per_chunk, chunks, warps / plan.warps_per_chunk});
}
int64_t implicit_context_count() { return state().implicit_contexts; }
bool is_capture_relaxed() { return this_thread().mode == cudaStreamCaptureModeRelaxed; }
void *allocate_device(size_t bytes, int device) { return take(bytes, device, primary_context(device)); }
void *allocate_pinned(size_t bytes) {
  void *memory = std::malloc(bytes);
  state().allocations[static_cast<char *>(memory)] = {bytes, -1, primary_context(0)};
  return memory;
}

}  // namespace gsc::cuda::emulation

using namespace gsc::cuda::emulation;

#define CAN_FAIL() \
  if (fails(__func__)) return failure()
#define CAN_FAIL_ON(stream)                                      \
  CAN_FAIL();                                                    \
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle; \
  if (is_implicit(stream)) return refusal(cudaErrorStreamCaptureImplicit)

/// Whether all of these bytes belong to one allocation on a device.
static bool is_device_memory(const void *memory, size_t bytes) {
  const auto *found = find_allocation(memory);
  return found != nullptr && found->second.device >= 0 && is_cuda_memory(memory, bytes);
}

// Calls that free or put back have done so when they report a failure: CUDA returns errors of earlier work there.

cudaError_t cudaGetLastError() { return take_last_error(); }
const char *cudaGetErrorString(cudaError_t) { return "emulated error"; }
const char *cudaGetErrorName(cudaError_t) { return "cudaErrorEmulated"; }
cudaError_t cudaGetDeviceCount(int *count) {
  CAN_FAIL();
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = working_context()->device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  this_thread().current = &state().primary[device];
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  CAN_FAIL();
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  properties->totalGlobalMem = size_t{256} << 20;
  properties->major = kMajor;
  properties->multiProcessorCount = multiprocessor_count();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
  CAN_FAIL();
  const std::map<cudaDeviceAttr, int> values = {
      {cudaDevAttrMultiProcessorCount, multiprocessor_count()},
      {cudaDevAttrMemoryClockRate, 3'201'000},  // with the width, an H200's per multiprocessor
      {cudaDevAttrGlobalMemoryBusWidth, 47 * multiprocessor_count()},
      {cudaDevAttrComputeCapabilityMajor, kMajor},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrPageableMemoryAccessUsesHostPageTables, state().host_page_tables},
      {cudaDevAttrMemoryPoolsSupported, state().has_pools}};
  *value = values.at(attribute);
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  working_context();
  if (*mode == cudaStreamCaptureModeRelaxed && fails(__func__)) return failure();
  std::swap(*mode, this_thread().mode);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  const CUcontext context = working_context();
  CAN_FAIL();
  if (disturbs_capture()) return cudaErrorStreamCaptureUnsupported;
  *stream = reinterpret_cast<cudaStream_t>(std::malloc(1));
  state().streams[*stream] = {context, ++state().last_stream_id, flags != cudaStreamNonBlocking};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  working_context();
  if (disturbs_capture()) return cudaErrorStreamCaptureUnsupported;
  // Its work goes on.
  if (state().streams.erase(stream) == 0) return cudaErrorInvalidResourceHandle;
  std::free(stream);
  return fails(__func__) ? failure() : cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CAN_FAIL_ON(stream);
  if (disturbs_capture()) return cudaErrorStreamCaptureUnsupported;
  if (is_capturing(stream)) {
    state().capture_disturbed = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  finish(end_of(queue_of(stream)));
  ++state().wait_count;
  return cudaSuccess;
}
/// What the stream is given is no kernel.
static void note_node(cudaStream_t stream) { state().other_nodes += is_capturing(stream) ? 1 : 0; }
static cudaError_t capture_status(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  *status = is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
  CAN_FAIL();
  if (stream == nullptr || !is_stream(stream)) return cudaErrorInvalidResourceHandle;
  *id = state().streams[stream].id;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  return fails(__func__) ? failure() : capture_status(stream, status);
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id) {
  *id = capture_of(stream);
  return fails(__func__) ? failure() : capture_status(stream, status);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  const CUcontext context = working_context();
  CAN_FAIL();
  *event = reinterpret_cast<cudaEvent_t>(std::malloc(1));
  state().events[*event] = {context, {}};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  working_context();
  if (disturbs_capture()) return cudaErrorStreamCaptureUnsupported;
  if (state().events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
  std::free(event);
  return fails(__func__) ? failure() : cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CAN_FAIL();
  const auto found = state().events.find(event);
  if (!is_stream(stream) || found == state().events.end() || found->second.context != working_context()) {
    return cudaErrorInvalidResourceHandle;
  }
  if (is_implicit(stream)) return refusal(cudaErrorStreamCaptureImplicit);
  ++state().event_records;
  found->second.mark = end_of(queue_of(stream));
  found->second.mark.capture = capture_of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  CAN_FAIL();
  if (!is_stream(stream) || state().events.count(event) == 0) return cudaErrorInvalidResourceHandle;
  if (is_implicit(stream)) return refusal(cudaErrorStreamCaptureImplicit);
  const Mark mark = state().events[event].mark;
  if (const unsigned long long capture = capture_of(stream); mark.capture != capture) {
    if (capture == 0) return cudaErrorCapturedEvent;
    state().capture_disturbed = true;
    return mark.capture == 0 ? cudaErrorStreamCaptureIsolation : cudaErrorStreamCaptureMerge;
  }
  ++state().event_waits;
  enqueue_work(stream, [mark] { finish(mark); });
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *properties) {
  working_context();
  CAN_FAIL();
  if (!state().has_pools) return cudaErrorNotSupported;
  *pool = reinterpret_cast<cudaMemPool_t>(std::malloc(1));
  state().pools[*pool] = properties->location.id;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) {
  return fails(__func__) ? failure() : cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  working_context();
  if (state().pools.erase(pool) == 0) return cudaErrorInvalidValue;
  std::free(pool);
  return fails(__func__) ? failure() : cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void **memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  CAN_FAIL_ON(stream);
  if (state().pools.count(pool) == 0 || bytes == 0) return cudaErrorInvalidValue;
  note_node(stream);
  void *const place = *memory = take(bytes, state().pools[pool], nullptr);
  if (place == nullptr) return cudaErrorMemoryAllocation;
  // It holds nothing until the stream gets there.
  enqueue_outside(stream, [=] { std::memset(reach(place), kFill, bytes); });
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
  if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
  if (is_implicit(stream)) return refusal(cudaErrorStreamCaptureImplicit);
  const auto found = state().allocations.find(static_cast<char *>(memory));
  if (found == state().allocations.end() || found->second.freed) return cudaErrorInvalidValue;
  note_node(stream);
  found->second.freed = true;
  enqueue_work(stream, [=] { give_back(memory); });
  return fails(__func__) ? failure() : cudaSuccess;
}
cudaError_t cudaMalloc(void **memory, size_t bytes) {
  const CUcontext context = working_context();
  CAN_FAIL();
  if (disturbs_capture()) return cudaErrorStreamCaptureUnsupported;
  ++state().allocation_count;
  *memory = take(bytes, context->device, context);
  if (bytes == 0) return cudaSuccess;
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *memory) {
  working_context();
  if (disturbs_capture()) return cudaErrorStreamCaptureUnsupported;
  if (memory == nullptr) return cudaSuccess;
  const auto found = state().allocations.find(static_cast<char *>(memory));
  if (found == state().allocations.end() || found->second.freed) return cudaErrorInvalidValue;
  // Of a pool's memory the driver assumes that all accesses are complete.
  if (found->second.context != nullptr) {
    finish_device(found->second.device);
    ++state().wait_count;
  }
  const cudaError_t error = give_back(memory);
  return fails(__func__) ? failure() : error;
}
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
  CAN_FAIL_ON(stream);
  if (!is_device_memory(memory, bytes)) return cudaErrorInvalidValue;
  note_node(stream);
  enqueue_work(stream, [=] { std::memset(reach(memory), value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  CAN_FAIL_ON(stream);
  if (bytes == 0) return cudaSuccess;
  if (is_device_memory(to, bytes) != (kind != cudaMemcpyDeviceToHost)) return cudaErrorInvalidValue;
  if (is_device_memory(from, bytes) != (kind != cudaMemcpyHostToDevice)) return cudaErrorInvalidValue;
  note_node(stream);
  // With pageable memory it may wait, and it may do the copy after it has returned.
  const bool pageable = find_allocation(to) == nullptr || find_allocation(from) == nullptr;
  if (pageable && disturbs_capture()) return cudaErrorStreamCaptureUnsupported;
  enqueue_work(stream, [=] { std::memcpy(reach(to), reach(from), bytes); });
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *address) {
  working_context();
  CAN_FAIL();
  *attributes = {cudaMemoryTypeUnregistered, -2};
  if (const auto *found = find_allocation(address)) {
    *attributes = {found->second.device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice, found->second.device};
  }
  return cudaSuccess;
}
