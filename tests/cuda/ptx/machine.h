// SPDX-License-Identifier: Apache-2.0
//
// The machine that translated kernels run on: threads as fibers that are switched at random instructions, warps and
// blocks with their barriers, and a memory that checks every access. What it finds (a misaligned or wild access, a race
// in shared memory, a divergent or deadlocked barrier, a shuffle with lanes that have exited) ends the program with the
// kernel and the source line.
//
// The environment says how it runs:
//   PTX_SEED=n    another interleaving
//   PTX_WEAK=1    weak memory: stores leave a block's buffer late and out of order, loads may find old lines in a cache,
//                 or take place earlier than they stand, up to the last fence
//   PTX_DROP=s    leaves out the barriers and fences of source line s ("core/cuda/check.cu:210"): a mutant
//   PTX_LIST=1    prints the source lines of all barriers and fences, and exits
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/cuda/shim/fiber.h"

namespace gsc::cuda::ptx {

struct Block;
struct Warp;

/// One thread of the grid, as the translated code sees it.
struct Thread {
  uint32_t index;
  uint32_t block_threads;
  uint32_t block_index;
  uint32_t grid_blocks;
  int lane;
  Block *block;
  Warp *warp;
  // The scheduler's.
  emulation::Left left;
  int budget;             ///< instructions until the next switch
  std::size_t fenced_at;  ///< place in the history of memory that loads cannot go behind
  bool ready;
  bool done;

  /// Generic address of the block's shared memory.
  [[nodiscard]] uint64_t shared_address() const;
};

struct Parameter {
  int offset;
  int size;
};

struct Kernel {
  static constexpr int kMaxParameters = 8;
  const char *name;  ///< mangled, as in the PTX
  void (*run)(Thread &thread, const char *parameters);
  int shared_bytes;
  int parameter_bytes;
  int parameter_count;
  Parameter parameters[kMaxParameters];
  int first_site, last_site;  ///< sites [first_site, last_site) are this kernel's
};

/// An instruction that the machine sees.
struct Site {
  const char *what;    ///< ld, st, atom, bar, bar.warp, shfl or membar
  const char *source;  ///< file:line, "" if unknown
};

// Made by translate.py.
extern const Kernel kKernels[];
extern const int kKernelCount;
extern const Site kSites[];

/// Ends the program: `what` happened at `site`, to `bytes` bytes at `address`.
[[noreturn]] void fault(const Thread &t, int site, const char *what, uint64_t address, std::size_t bytes);

// Memory. Addresses of shared memory count from the start of the block's; generic and global ones are host addresses.
void load_global(Thread &t, uintptr_t address, void *to, std::size_t bytes, int site);
void load_global_nc(Thread &t, uintptr_t address, void *to, std::size_t bytes, int site);
void store_global(Thread &t, uintptr_t address, const void *from, std::size_t bytes, int site);
void load_shared(Thread &t, uintptr_t offset, void *to, std::size_t bytes, int site);
void store_shared(Thread &t, uintptr_t offset, const void *from, std::size_t bytes, int site);
void load_generic(Thread &t, uintptr_t address, void *to, std::size_t bytes, int site);
void store_generic(Thread &t, uintptr_t address, const void *from, std::size_t bytes, int site);
/// Where an atomic operation on global memory takes place: the memory itself.
void *atomic_place_global(Thread &t, uintptr_t address, std::size_t bytes, int site);
void *atomic_place_shared(Thread &t, uintptr_t offset, std::size_t bytes, int site);
/// membar.gl
void fence(Thread &t, int site);

template <typename T, typename F>
T atomic(void *place, const F &change) {
  T old;
  std::memcpy(&old, place, sizeof old);
  const T changed = change(old);
  std::memcpy(place, &changed, sizeof changed);
  return old;
}
#define GSC_PTX_ATOMIC(name, expression)                                      \
  template <typename T>                                                       \
  T atomic_##name##_global(Thread &t, uintptr_t address, T value, int site) { \
    return atomic<T>(atomic_place_global(t, address, sizeof(T), site),        \
                     [value](T old) { return static_cast<T>(expression); });  \
  }                                                                           \
  template <typename T>                                                       \
  T atomic_##name##_shared(Thread &t, uintptr_t offset, T value, int site) {  \
    return atomic<T>(atomic_place_shared(t, offset, sizeof(T), site),         \
                     [value](T old) { return static_cast<T>(expression); });  \
  }
GSC_PTX_ATOMIC(add, old + value)
GSC_PTX_ATOMIC(max, old > value ? old : value)
GSC_PTX_ATOMIC(inc, old >= value ? 0 : old + 1)
#undef GSC_PTX_ATOMIC

// Other threads.
void block_barrier(Thread &t, int site);
void warp_barrier(Thread &t, uint32_t mask, int site);
/// `value` of another lane; *ok says whether that lane is in range, else it is the own value.
uint32_t shuffle_bfly(Thread &t, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool &ok, int site);
uint32_t shuffle_down(Thread &t, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool &ok, int site);
uint32_t shuffle_idx(Thread &t, uint32_t value, uint32_t b, uint32_t c, uint32_t mask, bool &ok, int site);

}  // namespace gsc::cuda::ptx
