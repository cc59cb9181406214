// SPDX-License-Identifier: Apache-2.0
//
// The device of the CUDA backend's tests, and its memory. Compiled against shim/ it is the emulated one, else CUDA device
// 0, and the tests are skipped if there is none.
#ifndef GRADSCALER_TESTS_CUDA_DEVICE_H
#define GRADSCALER_TESTS_CUDA_DEVICE_H
#include <utility>

#include "tests/support/objects.h"
#if defined(GSC_CUDA_EMULATION)
#include "tests/cuda/shim/emulation.h"
#else
#include <cuda_runtime_api.h>
#endif

namespace gsc_test {

/// The order in which the emulation runs blocks and threads; a GPU has its own.
inline void set_order([[maybe_unused]] unsigned order) {
#if defined(GSC_CUDA_EMULATION)
  gsc::cuda::emulation::set_order(order);
#endif
}

/// Skips a test where there is no device, emulated or not.
inline bool device_is_missing() {
  int32_t count = 0;
  EXPECT_GSC_OK(gsc_device_get_count(GSC_DEVICE_CUDA, &count));
  return count == 0;
}
#define SKIP_WITHOUT_DEVICE() \
  if (device_is_missing()) GTEST_SKIP() << "there is no CUDA device"

inline void copy_to_device(void *device, const void *host, int64_t bytes) {
  ASSERT_EQ(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}
inline void copy_to_host(void *host, const void *device, int64_t bytes) {
  ASSERT_EQ(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}

/// While it lives, memory is allocated on `device`.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    EXPECT_EQ(cudaGetDevice(&previous_), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
  }
  OnDevice &operator=(OnDevice &&) = delete;
  ~OnDevice() { cudaSetDevice(previous_); }

 private:
  int previous_ = 0;
};

/// A non-blocking stream of a device, or of the current context.
class DeviceStream {
 public:
  DeviceStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  explicit DeviceStream(int device) : device_(device) {
    const OnDevice current(device);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  DeviceStream &operator=(DeviceStream &&) = delete;
  ~DeviceStream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }
  cudaStream_t get() const { return stream_; }
  void wait() const {
    const OnDevice current(device_);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }

 private:
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
};

/// Device memory.
class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes) { EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess) << bytes << " bytes"; }
  DeviceBytes(DeviceBytes &&other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceBytes &operator=(DeviceBytes &&) = delete;
  ~DeviceBytes() { cudaFree(data_); }
  char *data() const { return static_cast<char *>(data_); }

 private:
  void *data_ = nullptr;
};

inline gsc_context_options cuda_options(int device = 0) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  options.device_index = device;
  return options;
}
inline Context make_cuda_context(int device) { return make_context(cuda_options(device)); }

using DeviceContext = const Context;
inline Context device_context() { return make_cuda_context(0); }

}  // namespace gsc_test
#endif
