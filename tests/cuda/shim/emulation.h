// SPDX-License-Identifier: Apache-2.0
//
// Runs the kernels of core/cuda on the host: the keywords of CUDA C++, a fiber for every thread of a block, barriers,
// shuffles and atomics. Included first in every emulated source. Blocks run one after the other; the order of blocks
// and threads is settable, so that a missing barrier changes results.
#ifndef GRADSCALER_TESTS_CUDA_SHIM_EMULATION_H
#define GRADSCALER_TESTS_CUDA_SHIM_EMULATION_H
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

struct CUctx_st;

namespace gsc::cuda {
struct PlanView;
}

namespace gsc::cuda::emulation {

struct Index {
  unsigned x;
};

/// The running thread's built-in variables. Switched with the fibers.
extern Index thread_index;
extern Index block_index;
extern Index block_size;
extern Index grid_size;

/// Barrier for all threads of the block, or of the warp.
void block_barrier();
void warp_barrier();
/// Publishes `bytes` bytes of this lane to its warp and reads those of lane `source`.
void exchange(const void *mine, void *theirs, size_t bytes, int source);

/// Runs `body` as every thread of a grid.
cudaError_t run(int64_t blocks, int threads, cudaStream_t stream, const std::function<void()> &body);

/// The order in which blocks and threads run: 0 upwards; 1 downwards, with later ones starved while an earlier one can
/// run; more: shuffled.
void set_order(unsigned order);
/// Kernels launched so far.
int64_t launch_count();
/// Blocks of the last launch; not where kernels run as PTX.
int64_t last_grid();

/// A launch of a kernel that distributes a list's chunks over teams of warps: check, or a step's sweeps.
struct Walk {
  int warps;  ///< per team
  int64_t chunks;
  int64_t teams;  ///< in the grid
  /// Chunks that the first team has worked on.
  int64_t rounds() const { return (chunks + teams - 1) / teams; }
};
/// Those since the previous call.
std::vector<Walk> take_walks();
/// Overrides how many warps share a chunk, and into how many parts (2^split) passes without sums cut it; 0 warps: the
/// backend's choice of both. The grid size is unchanged.
void set_team(int warps, int split = 0);

/// Records a walk, and gives it the teams that set_team requests.
void note_walk(PlanView &plan, int64_t chunks, int64_t warps);
template <typename P>
P with_team(P parameter, int64_t warps) {
  if constexpr (requires { parameter.first_chunk; }) {
    const int64_t chunks = parameter.last_chunk - parameter.first_chunk;
    if constexpr (requires { parameter.grads; }) {
      note_walk(parameter.grads, chunks << parameter.grads.split, warps);
    } else {
      note_walk(parameter.plan, chunks, warps);
    }
  }
  return parameter;
}

/// The error of a launch that no device can do: a grid or block of no threads, or of more than the limits.
cudaError_t check_shape(int64_t blocks, int threads);

/// Launches a kernel by its address, as cudaLaunchKernel does. Where kernels run as PTX: see tests/cuda/ptx.
cudaError_t launch(const void *kernel, int64_t blocks, int threads, cudaStream_t stream, const void *const *arguments);

template <typename... P, typename... A>
cudaError_t enqueue(void (*kernel)(P...), int64_t blocks, int threads, cudaStream_t stream, const A &...arguments) {
  static_assert((sizeof(P) + ... + 0) <= 4096, "more parameters than a kernel takes");
  if (const cudaError_t error = check_shape(blocks, threads); error != cudaSuccess) return error;
  const std::tuple<std::remove_const_t<P>...> values(
      with_team(std::remove_const_t<P>(arguments), blocks * threads / 32)...);
  return std::apply(
      [&](const auto &...value) {
#if defined(GSC_CUDA_PTX)
        const void *addresses[] = {&value...};
        return launch(reinterpret_cast<const void *>(kernel), blocks, threads, stream, addresses);
#else
        return run(blocks, threads, stream, [kernel, value...] { kernel(value...); });
#endif
      },
      values);
}

// The runtime's side: fake_runtime.cpp.

/// Counts a runtime or driver call; true: it is the one to fail. `call` names it.
bool fails(const char *call);
/// The error that it fails with, which stays the calling thread's last error until it is taken.
cudaError_t failure();
cudaError_t take_last_error();
/// The call with this index from now on, counted from 0, fails; -1: none.
void fail_call(int64_t index);
/// Every call with this name fails with this error, until "" is given.
void fail_always(const char *call, cudaError_t error);
/// Calls since fail_call, and the name of the one that failed; NULL: none did.
int64_t call_count();
const char *failed_call();

/// How many blocks of a kernel a multiprocessor reports as resident; 4 by default.
void set_resident_blocks(int blocks);
int resident_blocks();

template <typename... P>
cudaError_t count_blocks(int &blocks, void (*)(P...), int) {
  blocks = resident_blocks();
  return fails("cudaOccupancyMaxActiveBlocksPerMultiprocessor") ? cudaErrorUnknown : cudaSuccess;
}

template <typename... P>
cudaError_t preload(void (*)(P...)) {
  return fails("cudaFuncGetAttributes") ? failure() : cudaSuccess;
}

/// While one of these lives, device memory is accessible; otherwise an access faults.
class MemoryAccess {
 public:
  MemoryAccess();
  MemoryAccess &operator=(MemoryAccess &&) = delete;
  ~MemoryAccess();
};
bool is_stream(cudaStream_t stream);
/// Whether work on streams is done only when something waits for it, and then only that of the stream and of what it
/// waits for, instead of at once. Where kernels run as PTX they run at once.
void set_lazy_streams(bool lazy);
/// How much work of the stream has been enqueued and not done.
int64_t pending_work(cudaStream_t stream);
/// Does `work` on the stream.
void enqueue_work(cudaStream_t stream, std::function<void()> work);
/// Keeps what is enqueued from now on, besides doing it, and returns what was kept since the call before: done again, it
/// is the replay of a graph.
std::vector<std::function<void()>> keep_work(bool keep);
/// Makes every stream look as if it were being captured: anything that would wait for the device fails.
void set_capturing(bool capturing);
/// One stream is captured into a graph of its own, by any thread; the end tells whether no thread invalidated it.
void begin_capture(cudaStream_t stream);
bool end_capture(cudaStream_t stream);
/// Whether the calling thread may make calls that are unsafe during a capture.
bool is_capture_relaxed();
/// Whether the devices have memory pools; true by default.
void set_memory_pools(bool there);
/// Whether kernels reach all host memory, as on Grace; false by default.
void set_host_page_tables(bool used);
/// How far from its own address pinned memory is mapped on the devices; 0 by default.
void set_mapping_distance(int64_t bytes);
/// Device allocations (except stream-ordered ones) and waits so far. Freeing waits too, unless the memory is a pool's.
int64_t allocation_count();
int64_t wait_count();
/// Nodes of graphs that are not kernels: copies, fills, and memory.
int64_t other_node_count();
/// Waits of streams for events, and records of events on streams.
int64_t event_wait_count();
int64_t event_record_count();
/// Bytes currently allocated on the device, including stream-ordered ones.
int64_t bytes_in_use();
/// Existing streams, events and pools.
int64_t objects_in_use();
/// Whether all of these bytes belong to one allocation, on a device or of pinned memory.
bool is_cuda_memory(const void *address, size_t bytes);
/// Per device; the environment variable EMULATED_MULTIPROCESSORS, 2 by default.
int multiprocessor_count();
/// Contexts: a device's primary one and its retain count, others that tests create, and the calling thread's current
/// one.
CUctx_st *primary_context(int device);
int reference_count(CUctx_st *context);
CUctx_st *make_context(int device);
void destroy_context(CUctx_st *context);
CUctx_st *current_context();
void set_current_context(CUctx_st *context);
/// How often a runtime call found no current context and made device 0's primary one current.
int64_t implicit_context_count();
/// Memory for the tests.
void *allocate_device(size_t bytes, int device = 0);
void *allocate_pinned(size_t bytes);

}  // namespace gsc::cuda::emulation

#define threadIdx (::gsc::cuda::emulation::thread_index)
#define blockIdx (::gsc::cuda::emulation::block_index)
#define blockDim (::gsc::cuda::emulation::block_size)
#define gridDim (::gsc::cuda::emulation::grid_size)

inline void __syncthreads() { gsc::cuda::emulation::block_barrier(); }
inline void __syncwarp() { gsc::cuda::emulation::warp_barrier(); }
inline void __threadfence() {}

template <typename T>
T __shfl_sync(unsigned, T value, int source) {
  T result;
  gsc::cuda::emulation::exchange(&value, &result, sizeof value, source);
  return result;
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int delta) {
  T result;
  const int lane = static_cast<int>(threadIdx.x % 32);
  gsc::cuda::emulation::exchange(&value, &result, sizeof value, lane + delta < 32 ? lane + delta : lane);
  return result;
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  T result;
  gsc::cuda::emulation::exchange(&value, &result, sizeof value, static_cast<int>(threadIdx.x % 32) ^ mask);
  return result;
}

template <typename T>
T atomicAdd(T *word, T value) {
  const T old = *word;
  *word = old + value;
  return old;
}
template <typename T>
T atomicMax(T *word, T value) {
  const T old = *word;
  if (value > old) *word = value;
  return old;
}
inline unsigned atomicInc(unsigned *word, unsigned limit) {
  const unsigned old = *word;
  *word = old >= limit ? 0 : old + 1;
  return old;
}
#endif
