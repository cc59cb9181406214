// SPDX-License-Identifier: Apache-2.0
//
// What orders two devices under one scaler: events alone. On emulated streams whose work is done as late as possible,
// a missing wait gives other results than the CPU's.
#include "tests/cuda/twin.h"

namespace gsc_test {
namespace {

namespace emulation = gsc::cuda::emulation;

/// Work that is enqueued while one lives is done as late as possible.
struct LazyStream : DeviceStream {
  explicit LazyStream(int device) : DeviceStream(device) { emulation::set_lazy_streams(true); }
  LazyStream(const LazyStream &) = delete;
  LazyStream &operator=(const LazyStream &) = delete;
  ~LazyStream() { emulation::set_lazy_streams(false); }
};

/// A parameter and its gradient on one device, and on the host.
struct Part {
  explicit Part(int device) : cuda(make_cuda_context(device)), p(twin(device)), g(twin(device)) {
    const auto make = [](const Context &context, const gsc_tensor &param, const gsc_tensor &grad, List &params,
                         List &grads) {
      params = make_list(context, {param});
      grads = make_list(context, {grad});
      return make_optimizer(context, optimizer_options(GSC_SGD), params, grads);
    };
    on_cpu = make(cpu, p.host_tensor(), g.host_tensor(), host_params, host_grads);
    on_gpu = make(cuda, p.device_tensor(), g.device_tensor(), params, grads);
  }
  static Twin twin(int device) {
    const OnDevice current(device);
    Twin result(GSC_FP32, 3000);
    Random random(static_cast<uint64_t>(device) + 1);
    result.fill(Values::kOrdinary, random);
    return result;
  }
  Context cpu = make_context(1), cuda;
  Twin p, g;
  List host_params, host_grads, params, grads;
  Optimizer on_cpu, on_gpu;
};

/// The parameter: which stream is waited for first.
class TwoDevices : public ::testing::TestWithParam<int> {
 protected:
  static void unscale(const Scaler &scaler, const List &grads, gsc_stream stream) {
    ASSERT_GSC_OK(gsc_scaler_unscale(scaler, grads, stream));
  }
  static void step(const Scaler &scaler, const List &grads, const Optimizer &optimizer, gsc_stream stream) {
    unscale(scaler, grads, stream);
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, grads, 0.5, GSC_NORM_L2, stream));
    ASSERT_GSC_OK(gsc_scaler_step(scaler, optimizer, stream));
  }
  static void wait(const LazyStream &home, const LazyStream &away) {
    (GetParam() == 0 ? home : away).wait();
    (GetParam() == 0 ? away : home).wait();
  }
  void expect_same() const {
    for (const Part &part : parts_) {
      EXPECT_TRUE(part.p.same());
      EXPECT_TRUE(part.g.same());
    }
  }
  Part parts_[2] = {Part(0), Part(1)};
  // Each update doubles the scale.
  const Scaler host_ = make_scaler(parts_[0].cpu, scaler_options(2.0f, 1));
  const Scaler device_ = make_scaler(parts_[0].cuda, scaler_options(2.0f, 1));
};

TEST_P(TwoDevices, AreOrderedByEventsAlone) {
  constexpr int kIterations = 4;
  for (int i = 0; i < kIterations; ++i) {
    for (const Part &part : parts_) step(host_, part.host_grads, part.on_cpu, nullptr);
    ASSERT_GSC_OK(gsc_scaler_update(host_.get(), nullptr));
  }
  {
    const LazyStream home(0), away(1);
    for (int i = 0; i < kIterations; ++i) {
      step(device_, parts_[0].grads, parts_[0].on_gpu, home.get());
      step(device_, parts_[1].grads, parts_[1].on_gpu, away.get());
      ASSERT_GSC_OK(gsc_scaler_update(device_.get(), home.get()));
    }
    wait(home, away);
  }
  expect_same_report(report_of(device_, parts_[1].grads), report_of(host_, parts_[1].host_grads));
  expect_same();
}

TEST_P(TwoDevices, AReportWaitsForItsList) {
  unscale(host_, parts_[1].host_grads, nullptr);
  auto report = with_size<gsc_report>();
  {
    const LazyStream home(0), away(1);
    unscale(device_, parts_[1].grads, away.get());
    ASSERT_GSC_OK(gsc_scaler_get_report_sync(device_.get(), parts_[1].grads, &report, home.get()));
  }
  expect_same_report(report, report_of(host_, parts_[1].host_grads));
}

/// The next check of a list waits until the one before has been read: by a report without a wait ...
TEST_P(TwoDevices, ACheckWaitsForAReportOfTheOneBefore) {
  unscale(host_, parts_[1].host_grads, nullptr);
  const gsc_report before = report_of(host_, parts_[1].host_grads);
  ASSERT_GSC_OK(gsc_scaler_discard(host_.get(), nullptr));
  unscale(host_, parts_[1].host_grads, nullptr);
  auto *report = static_cast<gsc_report *>(emulation::allocate_pinned(sizeof(gsc_report)));
  *report = {};
  report->struct_size = sizeof *report;
  {
    const LazyStream home(0), away(1);
    unscale(device_, parts_[1].grads, away.get());
    ASSERT_GSC_OK(gsc_scaler_read_report_async(device_.get(), parts_[1].grads, report, home.get()));
    ASSERT_GSC_OK(gsc_scaler_discard(device_.get(), nullptr));
    unscale(device_, parts_[1].grads, away.get());
    wait(home, away);
  }
  expect_same_report(*report, before);
  expect_same();
}

/// ... and by the update of the scaler that had the list.
TEST_P(TwoDevices, ACheckWaitsForTheUpdateOfAnotherScaler) {
  const Scaler host_next = make_scaler(parts_[1].cpu, 4.0f);
  const Scaler device_next = make_scaler(parts_[1].cuda, 4.0f);
  unscale(host_, parts_[1].host_grads, nullptr);
  ASSERT_GSC_OK(gsc_scaler_update(host_.get(), nullptr));
  unscale(host_next, parts_[1].host_grads, nullptr);
  {
    const LazyStream home(0), away(1);
    unscale(device_, parts_[1].grads, away.get());
    ASSERT_GSC_OK(gsc_scaler_update(device_.get(), home.get()));
    unscale(device_next, parts_[1].grads, away.get());
    wait(home, away);
  }
  expect_same_report(report_of(device_), report_of(host_));
  expect_same();
}

/// What a discarded list has enqueued still reads the scale of its time.
TEST_P(TwoDevices, ANewScaleWaitsForADiscardedList) {
  unscale(host_, parts_[1].host_grads, nullptr);
  {
    const LazyStream home(0), away(1);
    unscale(device_, parts_[1].grads, away.get());
    ASSERT_GSC_OK(gsc_scaler_discard(device_.get(), nullptr));
    ASSERT_GSC_OK(gsc_scaler_set_scale(device_.get(), 64.0f, home.get()));
    wait(home, away);
  }
  EXPECT_EQ(scale_of(device_), 64.0f);
  expect_same();
}

INSTANTIATE_TEST_SUITE_P(WaitingFirstFor, TwoDevices, ::testing::Values(0, 1),
                         [](const auto &info) { return info.param == 0 ? "home" : "away"; });

}  // namespace
}  // namespace gsc_test
