// SPDX-License-Identifier: Apache-2.0
//
// The adapter of libtorch with tensors of CUDA devices, on the emulated devices of tests/cuda. libtorch's own part of
// CUDA is not there: a guard in its place knows devices and current streams, so what is shown is what the adapter asks
// of libtorch and hands to the library. Operations of libtorch on CUDA tensors are not, such as GradScaler::scale, state
// that is made, and steps of libtorch's own optimizers.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <cmath>
#include <gradscaler/adapters/torch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/torch/refused.h"
#include "tests/cuda/shim/emulation.h"

namespace {

namespace gt = gradscaler::torch;
namespace emulation = gsc::cuda::emulation;
using torch::optim::SGDOptions;

at::Device cuda(int index) { return {at::kCUDA, at::DeviceIndex(index)}; }

/// libtorch's view of the emulated devices. The number of a stream is its handle.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  at::DeviceType type() const override { return at::kCUDA; }
  at::Device getDevice() const override {
    int device = 0;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return cuda(device);
  }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    uncheckedSetDevice(device);
    return before;
  }
  void setDevice(at::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(at::Device device) const noexcept override { cudaSetDevice(device.index()); }
  at::DeviceIndex deviceCount() const noexcept override { return 2; }
  c10::Stream getStream(at::Device device) const override {
    const cudaStream_t stream = current[device.index()];
    return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void *getStreamNativeHandle(const c10::Stream stream) const override { return reinterpret_cast<void *>(stream.id()); }

  static inline cudaStream_t current[2] = {nullptr, nullptr};
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

/// Makes a new stream the current one of a device.
class CurrentStream {
 public:
  explicit CurrentStream(int index) : index_(index) {
    const c10::DeviceGuard guard(cuda(index));
    EXPECT_EQ(cudaStreamCreateWithFlags(&Guard::current[index_], cudaStreamNonBlocking), cudaSuccess);
  }
  CurrentStream &operator=(CurrentStream &&) = delete;
  ~CurrentStream() { cudaStreamDestroy(std::exchange(Guard::current[index_], nullptr)); }
  cudaStream_t get() const { return Guard::current[index_]; }

 private:
  int index_;
};

at::Tensor on(int index, const std::vector<float> &values) {
  const c10::DeviceGuard guard(cuda(index));
  void *memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, values.size() * sizeof(float)), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(memory, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice, nullptr),
            cudaSuccess);
  return at::for_blob(memory, {static_cast<int64_t>(values.size())})
      .deleter([](void *p) { cudaFree(p); })
      .target_device(cuda(index))
      .options(at::TensorOptions().dtype(at::kFloat).device(cuda(index)))
      .make_tensor();
}

std::vector<float> values(const at::Tensor &tensor) {
  std::vector<float> found(tensor.numel());
  EXPECT_EQ(cudaMemcpyAsync(found.data(), tensor.const_data_ptr(), found.size() * sizeof(float), cudaMemcpyDeviceToHost,
                            nullptr),
            cudaSuccess);
  return found;
}

at::Tensor parameter(int index, const std::vector<float> &weights, const std::vector<float> &grads) {
  at::Tensor made = on(index, weights).requires_grad_();
  made.mutable_grad() = on(index, grads);
  return made;
}

TEST(TorchCuda, CurrentStreamAndDevice) {
  const CurrentStream other(0), stream(1);
  gt::GradScaler scaler(cuda(1), {.init_scale = 4.0f, .growth_interval = 1});
  const at::Tensor weight = parameter(1, {1.0f, 2.0f}, {4.0f, 8.0f});
  gt::SGD sgd({weight}, SGDOptions(0.5));
  scaler.step(sgd);
  scaler.update();
  EXPECT_EQ(values(weight), (std::vector<float>{0.5f, 1.0f}));
  EXPECT_EQ(scaler.get_scale(), 8.0f);

  // An iteration waits for nothing, or it could not be captured; what must wait finds the stream in capture.
  emulation::begin_capture(stream.get());
  scaler.clip_grad_norm_(sgd, 1e6);
  scaler.step(sgd);
  scaler.update();
  EXPECT_REFUSED(scaler.get_scale(), "stream is being captured");
  EXPECT_TRUE(emulation::end_capture(stream.get()));
  EXPECT_EQ(values(weight), (std::vector<float>{0.25f, 0.5f}));

  // The stream of another device is nothing to it.
  emulation::begin_capture(other.get());
  EXPECT_EQ(scaler.get_scale(), 16.0f);
  emulation::end_capture(other.get());

  // All of that was on device 1; device 0 is still the current one.
  EXPECT_EQ(c10::impl::VirtualGuardImpl(at::kCUDA).getDevice(), cuda(0));
  EXPECT_EQ(gt::detail::resolve(at::kCUDA), cuda(0));
}

TEST(TorchCuda, OneOptimizerOfLibtorchOnTwoDevices) {
  const CurrentStream first(0), second(1);
  gt::GradScaler scaler(cuda(0), {.init_scale = 4.0f});
  const at::Tensor a = parameter(0, {1.0f}, {4.0f});
  const at::Tensor b = parameter(1, {1.0f, 1.0f}, {8.0f, INFINITY});
  torch::optim::SGD sgd(std::vector<at::Tensor>{a, b}, SGDOptions(0.5));
  scaler.unscale_(sgd);
  EXPECT_EQ(values(a.grad()), std::vector<float>{1.0f});
  EXPECT_EQ(values(b.grad())[0], 2.0f);
  EXPECT_REFUSED(scaler.clip_grad_norm_(sgd, 1.0), "on several devices");
  scaler.step(sgd);  // skipped, or libtorch's kernels would be missing
  scaler.update();
  EXPECT_EQ(values(a), std::vector<float>{1.0f});
  EXPECT_EQ(scaler.get_scale(), 2.0f);
}

TEST(TorchCuda, MixesAreRefused) {
  const CurrentStream first(0), second(1);
  gt::GradScaler on_cuda(cuda(0)), on_cpu(at::kCPU);
  const at::Tensor a = parameter(0, {1.0f}, {4.0f}), b = parameter(1, {1.0f}, {4.0f});
  at::Tensor host = at::ones({1}).requires_grad_();
  host.mutable_grad() = at::full({1}, 4.0f);

  gt::SGD both({a, b}, SGDOptions(0.5));
  EXPECT_REFUSED(on_cuda.step(both), "make one optimizer for each device");
  gt::SGD fused({a}, SGDOptions(0.5));
  EXPECT_REFUSED(on_cpu.step(fused), "gradient of parameter 0 in group 0 is on cuda:0, but the scaler is on cpu");
  torch::optim::SGD mixed(std::vector<at::Tensor>{host, a}, SGDOptions(0.5));
  EXPECT_REFUSED(on_cpu.step(mixed), "gradient of parameter 1 in group 0 is on cuda:0, but the scaler is on cpu");
  EXPECT_REFUSED(on_cuda.unscale_(mixed), "gradient of parameter 0 in group 0 is on cpu, but the scaler is on cuda:0");
  EXPECT_EQ(host.grad().item<float>(), 4.0f);
  EXPECT_EQ(values(a.grad()), std::vector<float>{4.0f});
  EXPECT_EQ(values(a), std::vector<float>{1.0f});
}

}  // namespace
