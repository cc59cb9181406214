// SPDX-License-Identifier: Apache-2.0
//
// The backend's host code on the emulated device: launches, waits and allocations of a step, stream capture,
// device scalars, bad input, and leaks.
#include <cmath>

#include "tests/cuda/training.h"

namespace gsc_test {
namespace {

class EmulatedBackend : public testing::Test {
 protected:
  const Contexts contexts;
};

/// Whatever the number of tensors. A step neither waits nor allocates.
TEST_F(EmulatedBackend, AStepIsTwoLaunchesAndSomeStepsTakeMore) {
  struct Case {
    int32_t kind;
    int tensors;
    bool mixed;  ///< fp64 and fp32 in one list
    int groups;
    int64_t launches;
  };
  for (const Case &c : {Case{GSC_ADAMW, 1, false, 1, 2}, Case{GSC_ADAMW, 300, false, 1, 2},
                        Case{GSC_SGD, 2, false, 16, 2}, Case{GSC_SGD, 2, false, 17, 3}, Case{GSC_SGD, 2, true, 1, 3},
                        Case{GSC_LAMB, 2, false, 1, 4}, Case{GSC_LAMB, 2, true, 1, 6}}) {
    SCOPED_TRACE(text(c.kind, c.mixed ? " mixed" : "", ", tensors: ", c.tensors, ", groups: ", c.groups));
    Twins p, g;
    for (int i = 0; i < c.tensors; ++i) {
      p.emplace_back(c.mixed && i == 1 ? GSC_FP64 : GSC_FP32, 64);
      g.emplace_back(GSC_FP16, 64);
    }
    const List params = make_list(contexts.device, device_tensors(p)),
               grads = make_list(contexts.device, device_tensors(g));
    const gsc_optimizer_options options = optimizer_options(c.kind);
    const Optimizer optimizer = make_optimizer(contexts.device, options, params, grads);
    for (int i = 1; i < c.groups; ++i) ASSERT_GSC_OK(gsc_optimizer_add_group(optimizer, 0, 0, &options, nullptr));
    const Scaler scaler = make_scaler(contexts.device, 1.0f);
    const int64_t launches = emulation::launch_count(), waits = emulation::wait_count();
    const int64_t allocations = emulation::allocation_count(), bytes = emulation::bytes_in_use();
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, grads, 1.0, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
    EXPECT_EQ(emulation::launch_count() - launches, c.launches);
    EXPECT_EQ(emulation::wait_count(), waits);
    EXPECT_EQ(emulation::allocation_count(), allocations);
    EXPECT_EQ(emulation::bytes_in_use(), bytes);
  }
}

/// With the bits of other steps: random bits, bias corrections and the warm-up of the average go by the steps applied,
/// which the device counts.
TEST_F(EmulatedBackend, ACapturedStepCanBeReplayed) {
  struct Case {
    int32_t param_dtype, state_format, master_format;
    double ema_decay;
  };
  for (const Case &c : {Case{GSC_BF16, GSC_STATE_BITS8, GSC_MASTER_SPLIT16, 0.0},
                        Case{GSC_FP32, GSC_STATE_FULL, GSC_MASTER_NONE, 0.999}}) {
    SCOPED_TRACE(c.ema_decay);
    gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    options.state_format = c.state_format;
    options.master_format = c.master_format;
    options.ema_decay = c.ema_decay;
    options.flags = GSC_OPTIMIZER_EMA_WARMUP;
    const Training stepped(contexts.device, 3, 1000, c.param_dtype, options);
    const Training replayed(contexts.device, 3, 1000, c.param_dtype, options);
    const int64_t launches = emulation::launch_count(), waits = emulation::wait_count();
    emulation::set_capturing(true);
    emulation::keep_work(true);
    ASSERT_GSC_OK(replayed.step());
    const auto graph = emulation::keep_work(false);
    emulation::set_capturing(false);
    EXPECT_EQ(emulation::launch_count() - launches, 2);
    EXPECT_EQ(emulation::wait_count(), waits);
    Image before;
    for (int step = 0; step < 3; ++step) {
      ASSERT_GSC_OK(stepped.step());
      for (const auto &work : graph) {
        if (step > 0) work();
      }
      const Image saved = saved_image(stepped.optimizer);
      EXPECT_EQ(saved, saved_image(replayed.optimizer));
      EXPECT_NE(saved, before);
      before = saved;
      for (size_t i = 0; i < stepped.p.size(); ++i) EXPECT_EQ(stepped.p[i].image(), replayed.p[i].image());
      if (graph.empty()) break;  // launches of PTX are not kept for a replay
    }
  }
}

TEST_F(EmulatedBackend, AStatelessOperationTakesTwoLaunchesAndAllocatesHostMemoryOnce) {
  HostMemory counting;
  const Context context = make_context(counting.options(GSC_DEVICE_CUDA));
  Twins twins;
  for (int i = 0; i < 100; ++i) twins.emplace_back(GSC_FP32, 500 * i);
  const std::vector<gsc_tensor> tensors = device_tensors(twins);
  TwinWord<float> inverse(0.5f), found(0.0f);
  const auto run = [&] {
    ASSERT_GSC_OK(gsc_ops_axpby(context, 2.0, tensors.data(), 1.0, tensors.data(), 100, nullptr));
    const int64_t launches = emulation::launch_count();
    ASSERT_GSC_OK(gsc_ops_unscale_check(context, tensors.data(), 100, found.device(), inverse.device(), nullptr));
    EXPECT_EQ(emulation::launch_count() - launches, 2);  // its tensors, and the work on them
  };
  run();
  const int64_t calls = counting.calls;
  EXPECT_GT(calls, 0);
  run();
  EXPECT_EQ(counting.calls, calls);
}

/// The CPU refuses such a step; here an error could not be reported in time.
TEST_F(EmulatedBackend, ALearningRateThatIsNoneSkipsTheStep) {
  const Training training(contexts.device);
  for (const float bad : {NAN, -1.0F, INFINITY}) {
    const TwinWord<float> lr(bad);
    const int64_t applied = applied_steps(training.optimizer), skipped = skipped_steps(training.optimizer);
    ASSERT_GSC_OK(gsc_optimizer_set_device_lr(training.optimizer, 0, lr.device(), nullptr));
    EXPECT_GSC_OK(training.step());
    EXPECT_EQ(applied_steps(training.optimizer), applied);
    EXPECT_EQ(skipped_steps(training.optimizer), skipped + 1);
    EXPECT_EQ(report_of(training.scaler).skipped, 0) << "no overflow";
  }
}

TEST_F(EmulatedBackend, Fp64GradientsOfFp32ParametersOverflowWhereFp32Does) {
  for (const double value : {3.4e38, 3.5e38}) {
    Twin p(GSC_FP32, 3), g(GSC_FP64, 3);
    g.host().set(1, value);
    g.upload();
    const Side side(contexts.device, optimizer_options(GSC_SGD), {p.device_tensor()}, {g.device_tensor()});
    const Scaler scaler = make_scaler(contexts.device, 1.0f);
    ASSERT_GSC_OK(gsc_scaler_step(scaler, side.optimizer, nullptr));
    EXPECT_EQ(skipped_steps(side.optimizer), value > 3.41e38 ? 1 : 0) << value;
    EXPECT_EQ(report_of(scaler, side.grads).inf_count, value > 3.41e38 ? 1 : 0) << value;
  }
}

TEST_F(EmulatedBackend, LearningRateAndStepScalarsAreReadOnTheDevice) {
  Twin p(GSC_FP32, 10), g(GSC_FP32, 10);
  p.host().fill(1.0);
  g.host().fill(4.0);
  p.upload();
  g.upload();
  const Side side(contexts.device, optimizer_options(GSC_SGD), {p.device_tensor()}, {g.device_tensor()});
  const Optimizer &optimizer = side.optimizer;
  TwinWord<float> lr(0.5f), inverse(0.25f), found(0.0f);
  ASSERT_GSC_OK(gsc_optimizer_set_device_lr(optimizer, 0, lr.device(), nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(optimizer, inverse.device(), found.device(), nullptr));
  p.host().fill(0.5);
  EXPECT_TRUE(p.same());
  lr.set(0.25f);
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(optimizer, inverse.device(), nullptr, nullptr));
  p.host().fill(0.25);
  EXPECT_TRUE(p.same());
  found.set(3.0f);
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(optimizer, inverse.device(), found.device(), nullptr));
  EXPECT_TRUE(p.same());
  EXPECT_EQ(skipped_steps(optimizer), 1);
}

/// No kernel has a grid of no blocks.
TEST_F(EmulatedBackend, EmptyLists) {
  for (const int32_t kind : optimizer_kinds()) {
    SCOPED_TRACE(kind);
    for (const int groups : {1, 20}) {
      const Training training(contexts.device, 0, 0, GSC_FP32, optimizer_options(kind));
      auto options = with_size<gsc_optimizer_options>();
      ASSERT_GSC_OK(gsc_optimizer_get_options(training.optimizer, 0, &options));
      for (int i = 1; i < groups; ++i) {
        ASSERT_GSC_OK(gsc_optimizer_add_group(training.optimizer, 0, 0, &options, nullptr));
      }
      ASSERT_GSC_OK(training.step());
      EXPECT_EQ(report_of(training.scaler, training.grads).grad_norm, 0.0);
      EXPECT_EQ(applied_steps(training.optimizer), 1);
      ASSERT_GSC_OK(gsc_tensor_list_set_present(training.grads, nullptr, nullptr, 0, nullptr));
      ASSERT_GSC_OK(training.step());
      ASSERT_GSC_OK(gsc_optimizer_zero_grads(training.optimizer, nullptr));
      ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(training.grads, nullptr, nullptr, 0, nullptr));
      ASSERT_GSC_OK(load_image(training.optimizer, saved_image(training.optimizer)));
      int64_t left = -1;
      ASSERT_GSC_OK(gsc_scaler_step_slice(training.scaler, training.optimizer, INT64_MAX, &left, nullptr));
      EXPECT_EQ(left, 0);
      ASSERT_GSC_OK(gsc_scaler_update(training.scaler, nullptr));
      EXPECT_EQ(applied_steps(training.optimizer), 3);
      const gsc_status status = gsc_optimizer_set_evaluating(training.optimizer, 1, nullptr);
      EXPECT_TRUE(status == GSC_OK || status == GSC_ERROR_INVALID_ARGUMENT) << gsc_error_get_message();
    }
  }
  double *out = static_cast<double *>(emulation::allocate_device(8));
  ASSERT_GSC_OK(gsc_ops_norm(contexts.device, nullptr, 0, GSC_NORM_L2, out, nullptr, nullptr));
  EXPECT_EQ(read_device(out), 0.0);
  cudaFree(out);
}

TEST_F(EmulatedBackend, BadMemory) {
  Twin twin(GSC_FP32, 8);
  void *const other = emulation::allocate_device(32, 1), *const freed = emulation::allocate_device(32);
  cudaFree(freed);
  const struct {
    void *data;
    const char *word;
  } cases[] = {{twin.host_data(), "host memory"}, {other, "device 1"}, {freed, "freed"}};
  gsc_tensor_list *list = nullptr;
  gsc_tensor tensors[2] = {twin.device_tensor(), twin.host_tensor()};
  for (const auto &c : cases) {
    SCOPED_TRACE(c.word);
    tensors[1].data = c.data;
    EXPECT_INVALID(gsc_tensor_list_create(contexts.device, tensors, 2, nullptr, &list), "tensors[1]", c.word);
  }
  EXPECT_INVALID(gsc_tensor_list_create(contexts.cpu, tensors, 1, nullptr, &list), "tensors[0]", "CUDA device 0");
  cudaFree(other);
  auto report = with_size<gsc_report>();
  const Training training(contexts.device);
  ASSERT_GSC_OK(training.step());
  EXPECT_INVALID(gsc_scaler_read_report_async(training.scaler, nullptr, &report, nullptr), "out_report", "pinned");
}

/// tests/abi/struct_size_test.cpp has the rule, on the CPU. Here the device writes.
TEST_F(EmulatedBackend, AReportHasTheSizeOfItsReader) {
  constexpr size_t kRoom = 2 * sizeof(gsc_report);
  constexpr char kFill = 0x25;
  const Training training(contexts.device);
  ASSERT_GSC_OK(training.step());
  const gsc_report whole = report_of(training.scaler);
  auto *const bytes = static_cast<char *>(emulation::allocate_pinned(kRoom));
  for (uint32_t size = 16; size < kRoom; size += 8) {
    std::memset(bytes, kFill, kRoom);
    std::memcpy(bytes, &size, sizeof size);
    ASSERT_GSC_OK(
        gsc_scaler_read_report_async(training.scaler, nullptr, reinterpret_cast<gsc_report *>(bytes), nullptr));
    std::vector<char> expected(kRoom);
    std::memcpy(expected.data(), &whole, sizeof whole);
    std::memcpy(expected.data(), &size, sizeof size);
    std::fill(expected.begin() + size, expected.end(), kFill);
    EXPECT_EQ(std::vector<char>(bytes, bytes + kRoom), expected) << size;
  }
}

TEST_F(EmulatedBackend, AStreamThatIsNone) {
  const Training training(contexts.device);
  int not_a_stream = 0;
  EXPECT_INVALID(training.step(&not_a_stream), "stream");
}

TEST_F(EmulatedBackend, DevicesAndNoSuchDevice) {
  int32_t count = 0;
  ASSERT_GSC_OK(gsc_device_get_count(GSC_DEVICE_CUDA, &count));
  EXPECT_EQ(count, 2);
  auto info = with_size<gsc_device_info>();
  ASSERT_GSC_OK(gsc_device_get_info(GSC_DEVICE_CUDA, 0, &info));
  EXPECT_EQ(info.device_type, GSC_DEVICE_CUDA);
  EXPECT_EQ(info.units, 2);
  EXPECT_EQ(info.level, 90);
  EXPECT_GSC_ERROR(gsc_device_get_info(GSC_DEVICE_CUDA, 2, &info), GSC_ERROR_UNAVAILABLE, "device_index is 2");
  const gsc_context_options options = cuda_options(3);
  gsc_context *context = nullptr;
  EXPECT_GSC_ERROR(gsc_context_create(&options, &context), GSC_ERROR_UNAVAILABLE, "device_index is 3");
}

/// get_report_sync is what logs on a device that the host does not see.
TEST_F(EmulatedBackend, ALogCallbackDestroysTheScaler) {
  static Scaler scaler;
  gsc_context_options options = cuda_options();
  options.log = [](void *, int32_t, const char *) { scaler.reset(); };
  const Context context = make_context(options);
  Twin twin(GSC_FP32, 8);
  Random random(1);
  twin.fill(kWithInf, random);
  const List list = make_list(context, {twin.device_tensor()});
  gsc_scaler_options at_floor = scaler_options(1.0f);
  at_floor.min_scale = 1.0f;
  at_floor.floor_action = GSC_FLOOR_ERROR;
  scaler = make_scaler(context, at_floor);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
  ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  EXPECT_GSC_ERROR(report_status(scaler), GSC_ERROR_SCALE_FLOOR, "1");
  EXPECT_EQ(scaler, nullptr);
}

}  // namespace
}  // namespace gsc_test
