// SPDX-License-Identifier: Apache-2.0
// What a device's memory can do at most, in three plain kernels, for the benchmarks to compare with: a copy, a sum that
// only reads, and a stream that reads three arrays and writes three. Built into a shared library by bench.py.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace {

constexpr int kThreads = 256;

__global__ void copy_kernel(const float4 *a, float4 *b, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    __stcs(b + i, __ldcs(a + i));
}

__global__ void sum_kernel(const float4 *a, float *out, int64_t n) {
  float sum = 0.0F;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
#pragma unroll 4
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const float4 x = __ldcs(a + i);
    sum += x.x + x.y + x.z + x.w;
  }
  if (sum == -1.0F) *out = sum;  // never; keeps the loads
}

__global__ void update_kernel(float4 *a, float4 *b, float4 *c, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    float4 x = a[i];
    float4 y = b[i];
    float4 z = c[i];
    x.x += y.x;
    y.x += z.x;
    z.x += x.x;
    __stcs(a + i, x);
    __stcs(b + i, y);
    __stcs(c + i, z);
  }
}

int blocks() {
  int device = 0;
  int units = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  return units * 8;
}

}  // namespace

// n counts groups of 16 bytes.
extern "C" int ceiling_copy(const void *a, void *b, int64_t n, void *stream) {
  copy_kernel<<<blocks(), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const float4 *>(a),
                                                                            static_cast<float4 *>(b), n);
  return cudaGetLastError();
}
extern "C" int ceiling_sum(const void *a, void *out, int64_t n, void *stream) {
  sum_kernel<<<blocks(), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const float4 *>(a),
                                                                           static_cast<float *>(out), n);
  return cudaGetLastError();
}
extern "C" int ceiling_update(void *a, void *b, void *c, int64_t n, void *stream) {
  update_kernel<<<blocks(), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<float4 *>(a), static_cast<float4 *>(b), static_cast<float4 *>(c), n);
  return cudaGetLastError();
}
