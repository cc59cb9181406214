// SPDX-License-Identifier: Apache-2.0
// The primitives of the kernels: memory access with cache hints, warp reductions, and hardware conversions. With
// GSC_CUDA_EMULATION a host compiler builds the same kernels, and a shim included before this file provides threads,
// barriers and shuffles; only this file has separate code for that case.
#pragma once

#include <cstdint>
#include <cstring>

#if !defined(GSC_CUDA_EMULATION)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "core/cuda/plan.h"
#include "core/rules/dtypes.h"
#include "core/rules/lanes.h"
#include "core/rules/reduction.h"
#include "gradscaler/gradscaler.h"

#define GSC_DEVICE __device__ __forceinline__

namespace gsc::cuda {

inline constexpr unsigned kFullMask = 0xffffffffU;

GSC_DEVICE int lane_index() { return static_cast<int>(threadIdx.x) & 31; }
GSC_DEVICE int warp_index() { return static_cast<int>(threadIdx.x) >> 5; }

/// Sum of 32 lanes by halving, in lane 0.
GSC_DEVICE double join_lanes(double sum) {
  for (int width = 16; width > 0; width /= 2) sum += __shfl_down_sync(kFullMask, sum, width);
  return sum;
}

/// Columns of a group left to right, then groups by halving; in lane 0. This is reduction.h's sum of a tile.
template <int Width, typename T>
GSC_DEVICE double fold(const T *columns) {
  double sum = static_cast<double>(columns[0]);
#pragma unroll
  for (int k = 1; k < Width; ++k) sum += static_cast<double>(columns[k]);
  return join_lanes(sum);
}

template <typename T>
GSC_DEVICE T warp_max(T value) {
  for (int width = 16; width > 0; width /= 2) {
    const T other = __shfl_xor_sync(kFullMask, value, width);
    value = other > value ? other : value;
  }
  return value;
}

template <typename T>
GSC_DEVICE T warp_min(T value) {
  for (int width = 16; width > 0; width /= 2) {
    const T other = __shfl_xor_sync(kFullMask, value, width);
    value = other < value ? other : value;
  }
  return value;
}

GSC_DEVICE int warp_sum(int value) {
  for (int width = 16; width > 0; width /= 2) value += __shfl_xor_sync(kFullMask, value, width);
  return value;
}

GSC_DEVICE void add_to(int64_t *word, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long *>(word), static_cast<unsigned long long>(value));
}
GSC_DEVICE void raise_to(int64_t *word, int64_t value) {
  atomicMax(reinterpret_cast<unsigned long long *>(word), static_cast<unsigned long long>(value));
}

/// Bytes in registers, packed from the lowest word up.
template <int Bytes>
struct Words {
  uint32_t w[(Bytes + 3) / 4];
};

/// Loads memory that is read-only during the kernel and will not be read again soon.
GSC_DEVICE Words<16> load_once(const char *p) {
  Words<16> r;
#if defined(__CUDA_ARCH__)
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
      : "l"(p));
#else
  std::memcpy(&r, p, sizeof r);
#endif
  return r;
}

template <int Bytes>
GSC_DEVICE Words<Bytes> load_words(const char *p) {
  Words<Bytes> r;
#if defined(__CUDA_ARCH__)
  if constexpr (Bytes == 1) {
    r.w[0] = *reinterpret_cast<const uint8_t *>(p);
  } else if constexpr (Bytes == 2) {
    r.w[0] = *reinterpret_cast<const uint16_t *>(p);
  } else if constexpr (Bytes == 4) {
    r.w[0] = *reinterpret_cast<const uint32_t *>(p);
  } else if constexpr (Bytes == 8) {
    const uint2 v = *reinterpret_cast<const uint2 *>(p);
    r.w[0] = v.x;
    r.w[1] = v.y;
  } else {
    for (int i = 0; i < Bytes / 16; ++i) {
      const uint4 v = reinterpret_cast<const uint4 *>(p)[i];
      r.w[4 * i] = v.x;
      r.w[4 * i + 1] = v.y;
      r.w[4 * i + 2] = v.z;
      r.w[4 * i + 3] = v.w;
    }
  }
#else
  if constexpr (Bytes < 4) r.w[0] = 0;
  std::memcpy(&r, p, Bytes);
#endif
  return r;
}

/// Loads what will not be read again soon but may be written by this thread afterwards: hence the clobber, which keeps
/// the compiler from moving the load past the store.
template <int Bytes>
GSC_DEVICE Words<Bytes> load_streaming(const char *p) {
#if defined(__CUDA_ARCH__)
  Words<Bytes> r;
  if constexpr (Bytes == 4) {
    asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(r.w[0]) : "l"(p) : "memory");
  } else if constexpr (Bytes == 8) {
    asm volatile("ld.global.cs.v2.u32 {%0, %1}, [%2];" : "=r"(r.w[0]), "=r"(r.w[1]) : "l"(p) : "memory");
  } else if constexpr (Bytes == 16) {
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                 : "l"(p)
                 : "memory");
  } else {
    r = load_words<Bytes>(p);
  }
  return r;
#else
  return load_words<Bytes>(p);
#endif
}

/// Stores what will not be read again soon.
template <int Bytes>
GSC_DEVICE void store_words(char *p, const Words<Bytes> &x) {
#if defined(__CUDA_ARCH__)
  if constexpr (Bytes == 1) {
    *reinterpret_cast<uint8_t *>(p) = static_cast<uint8_t>(x.w[0]);
  } else if constexpr (Bytes == 2) {
    *reinterpret_cast<uint16_t *>(p) = static_cast<uint16_t>(x.w[0]);
  } else if constexpr (Bytes == 4) {
    __stcs(reinterpret_cast<unsigned int *>(p), x.w[0]);
  } else if constexpr (Bytes == 8) {
    __stcs(reinterpret_cast<uint2 *>(p), make_uint2(x.w[0], x.w[1]));
  } else {
    for (int i = 0; i < Bytes / 16; ++i) {
      __stcs(reinterpret_cast<uint4 *>(p) + i, make_uint4(x.w[4 * i], x.w[4 * i + 1], x.w[4 * i + 2], x.w[4 * i + 3]));
    }
  }
#else
  std::memcpy(p, &x, Bytes);
#endif
}

/// Conversions of one element of dtype D: those of core/rules/dtypes.h, or hardware instructions.
template <typename D>
struct Converter : D {};

template <>
struct Converter<Fp16> : Fp16 {
#if defined(__CUDA_ARCH__)
  GSC_DEVICE static float widen(uint16_t x) { return __half2float(__ushort_as_half(x)); }
  GSC_DEVICE static uint16_t narrow(float x) { return __half_as_ushort(__float2half_rn(x)); }
#endif
};

template <>
struct Converter<Bf16> : Bf16 {
  GSC_DEVICE static float widen(uint16_t x) { return from_bits(static_cast<uint32_t>(x) << 16); }
#if defined(__CUDA_ARCH__)
  GSC_DEVICE static uint16_t narrow(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
#endif
};

/// Element `k` of a pack as it is stored. S: float, double or an unsigned integer of up to 16 bits.
template <typename S, int Bytes>
GSC_DEVICE S stored_of(const Words<Bytes> &g, int k) {
  if constexpr (sizeof(S) == 8) {
    return from_bits(static_cast<uint64_t>(g.w[2 * k]) | static_cast<uint64_t>(g.w[2 * k + 1]) << 32);
  } else if constexpr (sizeof(S) == 4) {
    return from_bits(g.w[k]);
  } else {
    constexpr int kSize = sizeof(S);
    constexpr int kEach = 4 / kSize;
    return static_cast<S>(g.w[k / kEach] >> (8 * kSize * (k % kEach)));
  }
}

/// Inserts element `k` into a pack of zeros.
template <typename S, int Bytes>
GSC_DEVICE void put_stored(Words<Bytes> &g, int k, S stored) {
  if constexpr (sizeof(S) == 8) {
    const uint64_t bits = to_bits(stored);
    g.w[2 * k] = static_cast<uint32_t>(bits);
    g.w[2 * k + 1] = static_cast<uint32_t>(bits >> 32);
  } else if constexpr (sizeof(S) == 4) {
    g.w[k] = to_bits(stored);
  } else {
    constexpr int kSize = sizeof(S);
    constexpr int kEach = 4 / kSize;
    g.w[k / kEach] |= static_cast<uint32_t>(stored) << (8 * kSize * (k % kEach));
  }
}

/// Element `k` of dtype D in a pack.
template <typename D, int Bytes>
GSC_DEVICE typename D::Value element_of(const Words<Bytes> &g, int k) {
  return Converter<D>::widen(stored_of<typename D::Stored>(g, k));
}

/// Inserts a value, rounded once, as element `k` of a pack of zeros.
template <typename D, int Bytes, typename T>
GSC_DEVICE void put_element(Words<Bytes> &g, int k, T x) {
  put_stored<typename D::Stored>(g, k, narrow_to<Converter<D>>(x));
}

/// A chunk, or a part of one, before its tensor's row has been read.
struct Part {
  int64_t tensor;
  int64_t chunk;
  int begin;     ///< first element in the chunk
  int elements;  ///< or fewer, if the tensor ends before
};

GSC_DEVICE Part part_of_chunk(const PlanView &plan, int64_t chunk, int begin, int elements) {
  return {plan.tensor_of != nullptr ? plan.tensor_of[chunk] : chunk, chunk, begin, elements};
}
GSC_DEVICE Part whole_chunk(const PlanView &plan, int64_t chunk) {
  return part_of_chunk(plan, chunk, 0, 1 << plan.chunk_shift);
}
GSC_DEVICE Part part_of(const PlanView &plan, int64_t part) {
  const int elements = 1 << (plan.chunk_shift - plan.split);
  const int begin = static_cast<int>(part & ((int64_t{1} << plan.split) - 1)) * elements;
  return part_of_chunk(plan, part >> plan.split, begin, elements);
}

/// The elements of a part.
struct Place {
  int64_t offset;  ///< first element
  int n;           ///< elements; 0: the tensor is absent, or ends before
};

GSC_DEVICE Place place_of(const PlanView &plan, const Part &part, const DeviceTensor &row) {
  Place r;
  r.offset = ((part.chunk - row.first_chunk) << plan.chunk_shift) + part.begin;
  const int64_t left = row.data == nullptr ? 0 : greatest(row.count - r.offset, int64_t{0});
  r.n = static_cast<int>(least(left, static_cast<int64_t>(part.elements)));
  return r;
}

GSC_DEVICE char *address(const DeviceTensor &t, int64_t element) {
  return static_cast<char *>(t.data) + element * dtype_bytes(t.dtype);
}

GSC_DEVICE bool is_aligned(const void *p, int bytes) {
  return (reinterpret_cast<uintptr_t>(p) & static_cast<uintptr_t>(bytes - 1)) == 0;
}

/// The warps of a block that share a chunk.
struct Team {
  int warps;  ///< per team
  int count;  ///< teams in the block
  int index;  ///< this thread's team
  int warp;   ///< this thread's warp in its team
  int lane;
  GSC_DEVICE int threads() const { return warps * 32; }
  GSC_DEVICE int thread() const { return warp * 32 + lane; }
  GSC_DEVICE bool leads() const { return warp == 0 && lane == 0; }
};

GSC_DEVICE Team make_team(int warps) {
  Team t;
  t.warps = warps;
  t.count = kWarps / warps;
  t.index = warp_index() / warps;
  t.warp = warp_index() % warps;
  t.lane = lane_index();
  return t;
}

/// Whether this block is the last of the grid to get here. Earlier writes of the other blocks are visible to it. The
/// ticket is 0 again afterwards, so that a captured launch can be replayed. The fence is cumulative: it releases what the
/// barrier has gathered of the block.
GSC_DEVICE bool is_last_block(uint32_t *ticket) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

/// Joins the sums of a block's lanes as reduction.h prescribes: thread t has added items t, t + kFinishLanes, ... Every
/// thread gets the result. Once per kernel: a second call would need a barrier before it.
GSC_DEVICE double block_join(double sum) {
  static_assert(kThreads == kFinishLanes, "one thread for each lane");
  __shared__ double lanes[kFinishLanes];
  lanes[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned width = kFinishLanes / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) lanes[threadIdx.x] += lanes[threadIdx.x + width];
    __syncthreads();
  }
  return lanes[0];
}

/// The same for f(0) ... f(count - 1) by one warp; result in lane 0.
template <typename F>
GSC_DEVICE double warp_join(int64_t count, const F &f) {
  constexpr int kEach = kFinishLanes / 32;
  double lanes[kEach] = {};
  for (int64_t i = lane_index(); i < count; i += kFinishLanes) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (i + 32 * k < count) lanes[k] += f(i + 32 * k);
    }
  }
#pragma unroll
  for (int width = kEach / 2; width > 0; width /= 2) {
#pragma unroll
    for (int k = 0; k < kEach / 2; ++k) {
      if (k < width) lanes[k] += lanes[k + width];
    }
  }
  return join_lanes(lanes[0]);
}

}  // namespace gsc::cuda
