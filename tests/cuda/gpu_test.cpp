// SPDX-License-Identifier: Apache-2.0
//
// Tests that only a real CUDA device can run: graph capture and replay, concurrent streams, a tensor of more than 2^31
// elements, and coexistence with this program's own CUDA runtime. Skipped without a device.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "tests/cuda/twin.h"

namespace gsc_test {
namespace {

#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess)

class Graph {
 public:
  /// Captures what f enqueues on the stream.
  template <typename F>
  Graph(cudaStream_t stream, const F &f) : stream_(stream) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    f();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph_), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  }
  Graph &operator=(Graph &&) = delete;
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void replay() const {
    EXPECT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  size_t nodes() const {
    size_t count = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph_, nullptr, &count), cudaSuccess);
    return count;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DEVICE();
    contexts_ = std::make_unique<Contexts>();
  }
  std::unique_ptr<Contexts> contexts_;
};

TEST_F(Gpu, ACapturedIterationFollowsItsInput) {
  // The case of PyTorch's own test of captured scaling: the scale, its tracker and the gradients step by step.
  const DeviceStream stream(0);
  Twin input(GSC_FP32, 1), grad(GSC_FP16, 1), param(GSC_FP32, 1);
  const List params = make_list(contexts_->device, {param.device_tensor()});
  const List grads = make_list(contexts_->device, {grad.device_tensor()});
  const Optimizer optimizer = make_optimizer(contexts_->device, optimizer_options(GSC_SGD), params, grads);
  const Scaler scaler = make_scaler(contexts_->device, scaler_options(4.0f, 2));
  TwinWord<float> lr(1.0f);
  ASSERT_GSC_OK(gsc_optimizer_set_device_lr(optimizer, 0, lr.device(), stream));
  const gsc_tensor from = input.device_tensor(), to = grad.device_tensor();
  stream.wait();
  const Graph graph(stream, [&] {
    EXPECT_GSC_OK(gsc_scaler_scale(scaler, &from, &to, 1, stream));
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, stream));
  });
  const double inputs[] = {5, 20000, 5, 40000};
  const float scales[] = {4, 2, 2, 1};
  const int32_t trackers[] = {1, 0, 1, 0};
  const double scaled[] = {20, kInf, 10, kInf};
  double expected = 0.0;
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    input.host().set(0, inputs[i]);
    input.upload();
    lr.set(i + 1);
    graph.replay();
    grad.host().set(0, scaled[i]);
    EXPECT_TRUE(grad.same());
    const gsc_report report = report_of(scaler);
    EXPECT_EQ(report.scale, scales[i]);
    EXPECT_EQ(report.growth_tracker, trackers[i]);
    if (std::isfinite(scaled[i])) expected -= (i + 1) * inputs[i];
    param.host().set(0, expected);
    EXPECT_TRUE(param.same());
  }
}

TEST_F(Gpu, ACapturedStepIsTwoNodesAndReplaysTheSameBits) {
  const DeviceStream stream(0);
  Twins params, grads;
  Random random(4);
  for (const int64_t count : {100, 40000, 17, 300000}) {
    add_filled(params, random, GSC_FP32, count);
    add_filled(grads, random, GSC_FP16, count, 1);
  }
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  const Side host(contexts_->cpu, options, host_tensors(params), host_tensors(grads));
  const Side device(contexts_->device, options, device_tensors(params), device_tensors(grads));
  ASSERT_CUDA(cudaDeviceSynchronize());
  const Graph graph(stream, [&] { EXPECT_GSC_OK(device.step(stream)); });
  EXPECT_EQ(graph.nodes(), 2u);
  for (int step = 0; step < 20; ++step) {
    for (Twin &grad : grads) grad.fill(step == 7 ? kWithInf : kOrdinary, random);
    ASSERT_CUDA(cudaDeviceSynchronize());
    ASSERT_GSC_OK(host.step());
    graph.replay();
    ASSERT_TRUE(same(params)) << "step " << step;
  }
  expect_same_report(report_of(device.scaler), report_of(host.scaler));
}

TEST_F(Gpu, StatelessOperationsCanBeCaptured) {
  const DeviceStream stream(0);
  Twin x(GSC_FP32, 70000, 1);
  Random random(8);
  x.fill(kOrdinary, random);
  const DeviceBytes out(8);
  const gsc_tensor tensor = x.device_tensor(), host = x.host_tensor();
  const Graph graph(stream, [&] {
    EXPECT_GSC_OK(gsc_ops_axpby(contexts_->device, 0.5, &tensor, 0.25, &tensor, 1, stream));
    EXPECT_GSC_OK(gsc_ops_norm(contexts_->device, &tensor, 1, GSC_NORM_L2, reinterpret_cast<double *>(out.data()),
                               nullptr, stream));
  });
  for (int i = 0; i < 3; ++i) {
    double norm = 0.0;
    graph.replay();
    ASSERT_GSC_OK(gsc_ops_axpby(contexts_->cpu, 0.5, &host, 0.25, &host, 1, nullptr));
    ASSERT_GSC_OK(gsc_ops_norm(contexts_->cpu, &host, 1, GSC_NORM_L2, &norm, nullptr, nullptr));
    EXPECT_TRUE(x.same());
    EXPECT_TRUE(same_value(read_device(reinterpret_cast<double *>(out.data())), norm));
  }
}

TEST_F(Gpu, TwoStreamsAndThreadsDoNotDisturbEachOther) {
  constexpr size_t kSides = 2;
  std::vector<Twins> params(kSides), grads(kSides);
  Random random(6);
  for (size_t side = 0; side < kSides; ++side) {
    for (const int64_t count : {300000, 5000}) {
      add_filled(params[side], random, GSC_FP32, count);
      add_filled(grads[side], random, GSC_BF16, count);
    }
  }
  ASSERT_CUDA(cudaDeviceSynchronize());
  const auto train = [&](size_t i, const Context &context, bool on_host, gsc_stream stream) {
    Twins &p = params[i], &g = grads[i];
    const Side side(context, optimizer_options(GSC_LION), on_host ? host_tensors(p) : device_tensors(p),
                    on_host ? host_tensors(g) : device_tensors(g));
    for (int k = 0; k < 50; ++k) EXPECT_GSC_OK(side.step(stream));
    EXPECT_EQ(applied_steps(side.optimizer, stream), 50);
  };
  on_threads(kSides, [&](int side) {
    const DeviceStream stream(0);
    train(side, contexts_->device, false, stream);
    stream.wait();
  });
  for (size_t side = 0; side < kSides; ++side) {
    train(side, contexts_->cpu, true, nullptr);
    EXPECT_TRUE(same(params[side]));
  }
}

TEST_F(Gpu, MoreThanTwoToThe31Elements) {
  const int64_t count = (int64_t{1} << 31) + 4099;
  size_t free = 0, total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  if (free < size_t{2} * count + (size_t{1} << 30)) GTEST_SKIP() << "not enough device memory";
  const DeviceBytes memory(count * 2);
  const gsc_tensor tensor = GSC_TENSOR_INIT(memory.data(), count, GSC_FP16);
  ASSERT_CUDA(cudaMemset(memory.data(), 0, count * 2));
  const uint16_t two = 0x4000, inf = 0x7c00;
  copy_to_device(memory.data() + (count - 1) * 2, &two, 2);
  const List list = make_list(contexts_->device, {tensor});
  const Scaler scaler = make_scaler(contexts_->device, 1.0f);
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler, list, nullptr));
  EXPECT_EQ(report_of(scaler, list).grad_norm, 2.0);
  ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  copy_to_device(memory.data() + (count - 2) * 2, &inf, 2);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
  EXPECT_EQ(report_of(scaler, list).first_element, count - 2);
  EXPECT_EQ(report_of(scaler, list).nonfinite_count, 1);
}

TEST_F(Gpu, TheCurrentDeviceAndPendingErrorsStayAsTheyAre) {
  int device = -1;
  ASSERT_CUDA(cudaGetDevice(&device));
  EXPECT_NE(cudaSetDevice(1000), cudaSuccess);
  const Scaler scaler = make_scaler(contexts_->device, 2.0f);
  EXPECT_EQ(scale_of(scaler), 2.0f);
  // The error is this program's; the library has a separate runtime and must not clear it.
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  int after = -1;
  ASSERT_CUDA(cudaGetDevice(&after));
  EXPECT_EQ(after, device);
}

TEST_F(Gpu, PinnedMemoryIsTaken) {
  const DeviceStream stream(0);
  struct Pinned {
    gsc_report report;
    float floats[1000];
  } *pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(reinterpret_cast<void **>(&pinned), sizeof *pinned));
  pinned->report = with_size<gsc_report>();
  std::fill_n(pinned->floats, 1000, 3.0F);
  const Scaler scaler = make_scaler(contexts_->device, 32.0f);
  const TwinWord<float> factor(0.5F);
  const gsc_tensor tensor = GSC_TENSOR_INIT(pinned->floats, 1000, GSC_FP32);
  ASSERT_GSC_OK(gsc_scaler_read_report_async(scaler, nullptr, &pinned->report, stream));
  ASSERT_GSC_OK(gsc_ops_scale(contexts_->device, &tensor, &tensor, 1, factor.device(), stream));
  stream.wait();
  EXPECT_EQ(pinned->report.scale, 32.0f);
  EXPECT_EQ(std::count(pinned->floats, pinned->floats + 1000, 1.5F), 1000);
  cudaFreeHost(pinned);
}

}  // namespace
}  // namespace gsc_test
