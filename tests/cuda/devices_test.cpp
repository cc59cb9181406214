// SPDX-License-Identifier: Apache-2.0
//
// Lists of two CUDA contexts under one scaler, each on its own stream, against CPU contexts: the same bits. The
// contexts are on two devices if there are two, else on the same one. The CPU and CUDA are not mixed.
#include "tests/cuda/twin.h"

namespace gsc_test {
namespace {

class CudaDevices : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DEVICE();
    int32_t count = 0;
    ASSERT_GSC_OK(gsc_device_get_count(GSC_DEVICE_CUDA, &count));
    second_ = count > 1 ? 1 : 0;
  }
  /// A twin with memory on `device`.
  static Twin make_twin(int32_t dtype, int64_t count, int device) {
    const OnDevice current(device);
    return {dtype, count};
  }
  int second_ = 0;
};

TEST_F(CudaDevices, SameBitsAsOnTheCpu) {
  const int devices[] = {0, second_};
  const Context cpus[] = {make_context(), make_context()};
  const Context gpus[] = {make_cuda_context(0), make_cuda_context(second_)};
  const DeviceStream streams[] = {DeviceStream(0), DeviceStream(second_)};
  std::vector<Twins> params(2), grads(2);
  Random random(11);
  std::vector<Side> on_cpu, on_gpu;
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  for (size_t side = 0; side < 2; ++side) {
    for (const int64_t count : {5000, 17}) {
      params[side].push_back(make_twin(GSC_FP32, count, devices[side]));
      grads[side].push_back(make_twin(GSC_FP16, count, devices[side]));
      params[side].back().fill(kOrdinary, random);
    }
    on_cpu.emplace_back(cpus[side], options, host_tensors(params[side]), host_tensors(grads[side]));
    on_gpu.emplace_back(gpus[side], options, device_tensors(params[side]), device_tensors(grads[side]));
  }
  const Scaler &host = on_cpu[0].scaler, &device = on_gpu[0].scaler;
  for (int step = 0; step < 6; ++step) {
    SCOPED_TRACE(step);
    for (size_t side = 0; side < 2; ++side) {
      for (Twin &grad : grads[side]) grad.fill(kOrdinary, random);
      if (step % 3 == static_cast<int>(side)) grads[side][1].fill(kWithInf, random);
      const gsc_stream stream = streams[side];
      ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(host, on_cpu[side].grads, 0.5, GSC_NORM_L2, nullptr));
      ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(device, on_gpu[side].grads, 0.5, GSC_NORM_L2, stream));
      ASSERT_GSC_OK(gsc_scaler_step(host, on_cpu[side].optimizer, nullptr));
      ASSERT_GSC_OK(gsc_scaler_step(device, on_gpu[side].optimizer, stream));
    }
    ASSERT_GSC_OK(gsc_scaler_update(host, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(device, streams[0]));
    float scale = 0.0f;
    ASSERT_GSC_OK(gsc_scaler_get_scale_sync(device, &scale, streams[0]));
    EXPECT_EQ(scale, scale_of(host));
    streams[1].wait();
    for (size_t side = 0; side < 2; ++side) {
      auto report = with_size<gsc_report>();
      ASSERT_GSC_OK(gsc_scaler_get_report_sync(device, on_gpu[side].grads, &report, streams[0]));
      expect_same_report(report, report_of(host, on_cpu[side].grads));
      EXPECT_TRUE(same(params[side]));
    }
  }
  EXPECT_EQ(report_of(device).skipped, 4);
}

TEST_F(CudaDevices, NotTogetherWithTheCpu) {
  const Contexts contexts;
  Twin twin(GSC_FP32, 4);
  const List on_cpu = make_list(contexts.cpu, {twin.host_tensor()});
  const List on_gpu = make_list(contexts.device, {twin.device_tensor()});
  const Scaler host = make_scaler(contexts.cpu, 1.0f), device = make_scaler(contexts.device, 1.0f);
  EXPECT_INVALID(gsc_scaler_check(host, on_gpu, nullptr), "grads", "CUDA");
  EXPECT_INVALID(gsc_scaler_check(device, on_cpu, nullptr), "grads", "CPU");
  EXPECT_INVALID(gsc_scaler_discard(device, on_cpu), "grads");
}

#if defined(GSC_CUDA_EMULATION)
TEST_F(CudaDevices, NeitherWaitsNorAllocatesAndCanBeCaptured) {
  namespace emulation = gsc::cuda::emulation;
  const Context home = make_cuda_context(0), away = make_cuda_context(1);
  Twin p = make_twin(GSC_FP32, 100, 1), g = make_twin(GSC_FP16, 100, 1);
  const Side part(away, optimizer_options(GSC_ADAMW), {p.device_tensor()}, {g.device_tensor()});
  const Scaler scaler = make_scaler(home, 4.0f);
  const auto iteration = [&] {
    EXPECT_GSC_OK(gsc_scaler_step(scaler, part.optimizer, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  };
  iteration();
  const int64_t waits = emulation::wait_count();
  const int64_t allocations = emulation::allocation_count();
  emulation::set_capturing(true);
  iteration();
  emulation::set_capturing(false);
  EXPECT_EQ(emulation::wait_count(), waits);
  EXPECT_EQ(emulation::allocation_count(), allocations);
  iteration();  // waits for no event of the graph
  EXPECT_EQ(applied_steps(part.optimizer), 3);
}
#endif

}  // namespace
}  // namespace gsc_test
