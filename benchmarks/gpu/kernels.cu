// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/kernels.h"
#include "core/cuda/device.cuh"
#include "core/cuda/launch.cuh"

namespace bench {
namespace {

using gsc::cuda::load_once;
using gsc::cuda::store_words;
using gsc::cuda::Words;

constexpr int kThreads = 256;
constexpr int kBatch = 4;  // loads in flight

GSC_DEVICE int64_t first_group() { return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; }
GSC_DEVICE int64_t stride() { return static_cast<int64_t>(gridDim.x) * kThreads; }

template <int Loads>
__global__ void copy_kernel(char *to, const char *from, int64_t groups) {
  for (int64_t i = first_group(); i < groups; i += stride() * Loads) {
    Words<16> w[Loads];
#pragma unroll
    for (int r = 0; r < Loads; ++r) w[r] = load_once(from + (i + r * stride() < groups ? i + r * stride() : i) * 16);
#pragma unroll
    for (int r = 0; r < Loads; ++r) {
      if (i + r * stride() < groups) store_words<16>(to + (i + r * stride()) * 16, w[r]);
    }
  }
}

__global__ void read_kernel(const char *from, uint32_t *out, int64_t groups) {
  uint32_t all = 0;
  for (int64_t i = first_group(); i < groups; i += stride() * kBatch) {
    Words<16> w[kBatch];
#pragma unroll
    for (int r = 0; r < kBatch; ++r) w[r] = load_once(from + (i + r * stride() < groups ? i + r * stride() : i) * 16);
#pragma unroll
    for (int r = 0; r < kBatch; ++r) all ^= w[r].w[0] ^ w[r].w[1] ^ w[r].w[2] ^ w[r].w[3];
  }
  if (out != nullptr) *out = all;  // never true; keeps the loads
}

/// A sign, one of the eight exponents below 1, and a random mantissa. Two 16-bit elements per word.
GSC_DEVICE uint32_t noise(uint32_t bits, int32_t dtype) {
  if (dtype == GSC_FP32) return (bits & 0x807fffffU) | ((bits >> 23 & 7U) + 119U) << 23;
  const bool half = dtype == GSC_FP16;
  const uint32_t digits = half ? 0x83ff83ffU : 0x807f807fU;
  const uint32_t shift = half ? 10 : 7;
  const uint32_t least = half ? 7 : 119;
  return (bits & digits) | ((bits >> 16 & 7U) + least) << shift | ((bits & 7U) + least) << (shift + 16);
}

__global__ void noise_kernel(uint32_t *to, int32_t dtype, int64_t words, uint32_t seed) {
  for (int64_t i = first_group(); i < words; i += stride()) {
    uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b9U + seed;  // the mixing of MurmurHash3
    x = (x ^ x >> 16) * 0x85ebca6bU;
    x = (x ^ x >> 13) * 0xc2b2ae35U;
    to[i] = noise(x ^ x >> 16, dtype);
  }
}

int64_t blocks() {
  int device = 0;
  int units = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  return int64_t{units} * 8;
}

}  // namespace

cudaError_t copy(int loads, void *to, const void *from, int64_t bytes, cudaStream_t stream) {
  if (loads == 0) {
    return cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream);
  }
  return gsc::cuda::enqueue(loads == 2 ? copy_kernel<2> : (loads == 4 ? copy_kernel<4> : copy_kernel<8>), blocks(),
                            kThreads, stream, static_cast<char *>(to), static_cast<const char *>(from), bytes / 16);
}
cudaError_t read(const void *from, int64_t bytes, cudaStream_t stream) {
  return gsc::cuda::enqueue(read_kernel, blocks(), kThreads, stream, static_cast<const char *>(from),
                            static_cast<uint32_t *>(nullptr), bytes / 16);
}
cudaError_t fill_noise(void *to, int32_t dtype, int64_t bytes, uint32_t seed, cudaStream_t stream) {
  return gsc::cuda::enqueue(noise_kernel, blocks(), kThreads, stream, static_cast<uint32_t *>(to), dtype, bytes / 4,
                            seed);
}

}  // namespace bench
