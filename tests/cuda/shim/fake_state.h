// SPDX-License-Identifier: Apache-2.0
//
// State shared by the stand-ins for runtime (fake_runtime.cpp) and driver (fake_driver.cpp): devices, contexts, memory,
// captures, and the call that is to fail.
#ifndef GRADSCALER_TESTS_CUDA_SHIM_FAKE_STATE_H
#define GRADSCALER_TESTS_CUDA_SHIM_FAKE_STATE_H
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "cuda.h"
#include "emulation.h"

struct CUctx_st {
  int device;
  int references;  ///< of a primary context: retained minus released
};

namespace gsc::cuda::emulation {

inline constexpr size_t kRegionBytes = size_t{256} << 20;
inline constexpr int kDevices = 2;
inline constexpr int kMajor = 9;  ///< of the compute capability

struct Allocation {
  size_t bytes;
  int device;          ///< -1: pinned host memory
  CUcontext context;   ///< NULL: from a pool, which belongs to none
  bool freed = false;  ///< in the order of a stream that has not got there yet
};

/// Work that has been enqueued and not done; with lazy streams only.
struct Queue {
  std::deque<std::function<void()>> work;
  int64_t done = 0;
  int device = 0;
};
struct Stream {
  CUcontext context;
  unsigned long long id;  ///< never reused
  bool blocks;            ///< with the default stream
};
/// What an event waits for: the first `count` things ever enqueued there.
struct Mark {
  uint64_t queue = 0;
  int64_t count = 0;
  unsigned long long capture = 0;  ///< the graph capture that the event is part of; 0: none
};
struct Event {
  CUcontext context;
  Mark mark;
};

struct State {
  State();
  char *region = nullptr;
  char *copy = nullptr;  ///< the same memory, always within reach
  size_t used = 0;       ///< bytes of it up to the end of the last allocation that there ever was
  int access = 0;
  std::map<char *, Allocation> allocations;
  std::map<cudaStream_t, Stream> streams;
  unsigned long long last_stream_id = 2;
  int64_t event_waits = 0, event_records = 0;
  std::map<cudaEvent_t, Event> events;
  bool lazy = false;
  bool keeping = false;
  std::vector<std::function<void()>> kept;  ///< work, since keep_work
  std::map<uint64_t, Queue> queues;         ///< by a stream's id, or a context's address for its default stream
  std::map<cudaMemPool_t, int> pools;       ///< and their devices
  CUctx_st primary[kDevices] = {{0, 0}, {1, 0}};
  bool has_pools = true;
  bool host_page_tables = std::getenv("EMULATED_HOST_PAGE_TABLES") != nullptr;
  int64_t mapping_distance = 0;         ///< from the address of pinned memory to its address on a device
  unsigned long long last_capture = 0;  ///< of the ids of captures
  unsigned long long capturing = 0;     ///< every stream
  std::map<cudaStream_t, unsigned long long> captured;  ///< these streams
  bool capture_disturbed = false;
  int64_t allocation_count = 0, wait_count = 0, other_nodes = 0, bytes_in_use = 0, implicit_contexts = 0, calls = 0;
  int64_t failing_call = -1;
  const char *failed_call = nullptr;
  std::string always_failing;
  cudaError_t failure = cudaErrorUnknown;
  std::vector<Walk> walks;
  int team = 0, split = 0;
};
State &state();

/// What CUDA keeps per thread.
struct ThreadState {
  CUcontext current = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  cudaError_t last_error = cudaSuccess;
};
ThreadState &this_thread();

/// The context in which a runtime call works. If none is current on this thread, device 0's primary one becomes current
/// and stays so, as in CUDA.
CUcontext working_context();
/// The allocation that contains an address; NULL: none.
const std::pair<char *const, Allocation> *find_allocation(const void *address);
/// The address through which the runtime itself accesses the memory at `address`.
void *reach(const void *address);
/// The error of a call that CUDA refuses, which stays the calling thread's last error until it is taken.
cudaError_t refusal(cudaError_t error);
/// Work on the default stream while a stream that blocks with it is captured, which invalidates the capture.
bool is_implicit(cudaStream_t stream);
/// A call that a capture on any thread forbids to threads that have not relaxed it, and that invalidates the capture.
bool disturbs_capture();

}  // namespace gsc::cuda::emulation
#endif
