// SPDX-License-Identifier: Apache-2.0
//
// The backend's host code on the emulated device: launches, waits and allocations of a step, stream capture, rebinding,
// device scalars, bad input, and leaks.
#include <limits>
#include <new>

#include "tests/cuda/training.h"

namespace gsc_test {
namespace {

class Capturing {
 public:
  Capturing() { emulation::set_capturing(true); }
  Capturing(const Capturing &) = delete;
  Capturing &operator=(const Capturing &) = delete;
  ~Capturing() { emulation::set_capturing(false); }
};

TEST(EmulatedBackend, AStepIsTwoLaunchesWhateverTheNumberOfTensors) {
  const Contexts contexts;
  for (const int tensors : {1, 300}) {
    const Training training(contexts.cuda, tensors, 64);
    const int64_t launches = emulation::launch_count();
    const int64_t waits = emulation::wait_count();
    const int64_t allocations = emulation::allocation_count();
    const int64_t bytes = emulation::bytes_in_use();
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(training.scaler.get(), training.grads.get(), 1.0, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(training.step());
    EXPECT_EQ(emulation::launch_count() - launches, 2);
    EXPECT_EQ(emulation::wait_count(), waits);
    EXPECT_EQ(emulation::allocation_count(), allocations);
    EXPECT_EQ(emulation::bytes_in_use(), bytes);
  }
}

/// With the same random bits as another step: they go by the steps applied, which the device counts.
TEST(EmulatedBackend, AStepInCodesIsTwoLaunchesThatCanBeCapturedAndReplayed) {
  const Contexts contexts;
  Training stepped(contexts.cuda, 3, 1000, GSC_BF16, GSC_STATE_BITS8, GSC_MASTER_SPLIT16);
  Training replayed(contexts.cuda, 3, 1000, GSC_BF16, GSC_STATE_BITS8, GSC_MASTER_SPLIT16);
  const int64_t launches = emulation::launch_count(), waits = emulation::wait_count();
  std::vector<std::function<void()>> graph;
  {
    const Capturing capturing;
    emulation::keep_work(true);
    ASSERT_GSC_OK(replayed.step());
    graph = emulation::keep_work(false);
  }
  EXPECT_EQ(emulation::launch_count() - launches, 2);
  EXPECT_EQ(emulation::wait_count(), waits);
  const auto saved = [](const Training &training) {
    int64_t bytes = 0;
    EXPECT_GSC_OK(gsc_optimizer_get_save_size(training.optimizer.get(), &bytes));
    std::vector<unsigned char> result(static_cast<size_t>(bytes));
    EXPECT_GSC_OK(gsc_optimizer_save_sync(training.optimizer.get(), result.data(), bytes, nullptr));
    return result;
  };
  ASSERT_GSC_OK(stepped.step());
  EXPECT_EQ(saved(stepped), saved(replayed));
  if (graph.empty()) GTEST_SKIP() << "launches of PTX are not kept for a replay";
  const std::vector<unsigned char> once = saved(stepped);
  ASSERT_GSC_OK(stepped.step());
  for (const auto &work : graph) work();
  EXPECT_EQ(saved(stepped), saved(replayed));
  EXPECT_NE(saved(stepped), once);
}

TEST(EmulatedBackend, SomeStepsTakeMoreLaunches) {
  struct Case {
    int32_t kind;
    bool mixed;  ///< fp64 and fp32 in one list
    int groups;
    int64_t launches;
  };
  const Contexts contexts;
  for (const Case &c : {Case{GSC_SGD, false, 16, 2}, Case{GSC_SGD, false, 17, 3}, Case{GSC_SGD, true, 1, 3},
                        Case{GSC_LAMB, false, 1, 4}, Case{GSC_LAMB, true, 1, 6}}) {
    SCOPED_TRACE(text(c.kind, c.mixed ? " mixed" : "", ", groups: ", c.groups));
    Twins p, g;
    for (const int32_t dtype : {GSC_FP32, c.mixed ? GSC_FP64 : GSC_FP32}) {
      p.emplace_back(dtype, 100);
      g.emplace_back(GSC_FP16, 100);
    }
    const List params = make_list(contexts.cuda, device_tensors(p)),
               grads = make_list(contexts.cuda, device_tensors(g));
    const gsc_optimizer_options options = optimizer_options(c.kind);
    const Optimizer optimizer = make_optimizer(contexts.cuda, options, params, grads);
    for (int i = 1; i < c.groups; ++i) {
      ASSERT_GSC_OK(gsc_optimizer_add_group(optimizer.get(), 0, 0, &options, nullptr));
    }
    const Scaler scaler = make_scaler(contexts.cuda, 1.0f);
    const int64_t launches = emulation::launch_count();
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler.get(), optimizer.get(), nullptr));
    EXPECT_EQ(emulation::launch_count() - launches, c.launches);
  }
}

TEST(EmulatedBackend, AStatelessOperationSendsItsTensorsInOneLaunch) {
  const Contexts contexts;
  Twins twins;
  for (int i = 0; i < 100; ++i) twins.emplace_back(GSC_FP32, 5 * i);
  const std::vector<gsc_tensor> tensors = device_tensors(twins);
  TwinWord<float> inverse(0.5f);
  TwinWord<float> found(0.0f);
  const int64_t launches = emulation::launch_count();
  ASSERT_GSC_OK(
      gsc_ops_unscale_check(contexts.cuda.get(), tensors.data(), 100, found.device(), inverse.device(), nullptr));
  EXPECT_EQ(emulation::launch_count() - launches, 2);
}

TEST(EmulatedBackend, AStatelessOperationAllocatesHostMemoryOnce) {
  struct Counting {
    int64_t calls = 0;
    static void *allocate(void *user, int64_t bytes, int64_t alignment) {
      ++static_cast<Counting *>(user)->calls;
      return ::operator new(static_cast<size_t>(bytes), std::align_val_t(static_cast<size_t>(alignment)));
    }
    static void release(void *, void *memory, int64_t, int64_t alignment) {
      ::operator delete(memory, std::align_val_t(static_cast<size_t>(alignment)));
    }
  } counting;
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  options.allocate = Counting::allocate;
  options.release = Counting::release;
  options.allocator_user = &counting;
  gsc_context *created = nullptr;
  ASSERT_GSC_OK(gsc_context_create(&options, &created));
  const Context context(created);
  Twins twins;
  for (int i = 0; i < 100; ++i) twins.emplace_back(GSC_FP32, 500 * i);
  const std::vector<gsc_tensor> tensors = device_tensors(twins);
  TwinWord<float> inverse(0.5f);
  TwinWord<float> found(0.0f);
  const auto run = [&] {
    ASSERT_GSC_OK(gsc_ops_axpby(created, 2.0, tensors.data(), 1.0, tensors.data(), 100, nullptr));
    ASSERT_GSC_OK(gsc_ops_unscale_check(created, tensors.data(), 100, found.device(), inverse.device(), nullptr));
  };
  run();
  const int64_t calls = counting.calls;
  EXPECT_GT(calls, 0);
  run();
  EXPECT_EQ(counting.calls, calls);
}

TEST(EmulatedBackend, EverythingOfAStepCanBeCaptured) {
  const Contexts contexts;
  const Training training(contexts.cuda);
  const auto grads = training.grads.get();
  const auto scaler = training.scaler.get();
  Twin words(GSC_FP32, 4);
  Twin elements(GSC_FP32, 4);
  Twin sums(GSC_FP64, 4);
  Twin moments(GSC_BF16, 4);
  auto *report = static_cast<gsc_report *>(emulation::allocate_pinned(sizeof(gsc_report)));
  *report = {};
  report->struct_size = sizeof *report;
  gsc_tensor x = elements.device_tensor();
  auto *const scalars = static_cast<float *>(words.device_tensor().data);
  auto *const optimizer = training.optimizer.get();
  gsc_scaler_state state{};
  state.struct_size = sizeof state;
  ASSERT_GSC_OK(gsc_scaler_get_state_sync(scaler, &state, nullptr));
  int64_t bytes = 0;
  std::vector<char> saved;
  std::vector<void *> addresses;
  for (const Twin &twin : training.g) addresses.push_back(const_cast<Twin &>(twin).device_tensor().data);
  // The first use of absent tensors allocates.
  std::vector<uint8_t> present(training.g.size(), 0);
  ASSERT_GSC_OK(gsc_tensor_list_set_present(grads, nullptr, nullptr, static_cast<int64_t>(present.size()), nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_get_save_size(optimizer, &bytes));
  saved.resize(static_cast<size_t>(bytes));
  ASSERT_GSC_OK(gsc_optimizer_save_sync(optimizer, saved.data(), bytes, nullptr));
  const Optimizer averaging =
      make_optimizer(contexts.cuda, optimizer_options(GSC_SGD_SCHEDULE_FREE), training.params, training.grads);
  const int64_t waits = emulation::wait_count();
  {
    const Capturing capturing;
    EXPECT_GSC_OK(gsc_optimizer_set_evaluating(averaging.get(), 1, nullptr));
    EXPECT_GSC_OK(
        gsc_tensor_list_set_present(grads, present.data(), nullptr, static_cast<int64_t>(present.size()), nullptr));
    EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
    EXPECT_GSC_OK(gsc_tensor_list_set_present(grads, nullptr, nullptr, static_cast<int64_t>(present.size()), nullptr));
    std::vector<int64_t> counts(present.size(), 3);
    EXPECT_GSC_OK(
        gsc_optimizer_set_tensor_steps(optimizer, counts.data(), static_cast<int64_t>(counts.size()), nullptr));
    EXPECT_GSC_OK(gsc_scaler_check_range(scaler, grads, 0, 1, nullptr));
    EXPECT_GSC_OK(gsc_scaler_check(scaler, grads, nullptr));
    EXPECT_GSC_OK(gsc_scaler_clip_grad_value(scaler, grads, 1.0, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    EXPECT_GSC_OK(gsc_scaler_set_state(scaler, &state, nullptr));
    const gsc_scaler_options policy = scaler_options(1024.0f, 7);
    EXPECT_GSC_OK(gsc_scaler_set_options(scaler, &policy, nullptr));
    EXPECT_GSC_OK(gsc_scaler_scale(scaler, &x, &x, 1, nullptr));
    EXPECT_GSC_OK(gsc_tensor_list_set_pointers(training.grads.get(), addresses.data(),
                                               static_cast<int64_t>(addresses.size()), nullptr));
    const gsc_optimizer_options adamw = optimizer_options(GSC_ADAMW);
    EXPECT_GSC_OK(gsc_optimizer_set_options(optimizer, 0, &adamw, nullptr));
    EXPECT_GSC_OK(gsc_optimizer_set_device_lr(optimizer, 0, scalars, nullptr));
    EXPECT_GSC_OK(gsc_optimizer_set_steps(optimizer, 3, 0, nullptr));
    EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
    EXPECT_GSC_OK(gsc_optimizer_step_scaled(optimizer, scalars, scalars + 1, nullptr));
    EXPECT_GSC_OK(gsc_ops_unscale_check(contexts.cuda.get(), &x, 1, scalars, scalars + 1, nullptr));
    EXPECT_GSC_OK(gsc_ops_scale(contexts.cuda.get(), &x, &x, 1, scalars, nullptr));
    EXPECT_GSC_OK(gsc_ops_axpby(contexts.cuda.get(), 1.0, &x, 1.0, &x, 1, nullptr));
    const gsc_tensor bf16 = moments.device_tensor();
    EXPECT_GSC_OK(gsc_ops_convert_state(contexts.cuda.get(), &x, nullptr, &bf16, 1, nullptr));
    EXPECT_GSC_OK(gsc_ops_update_scale(contexts.cuda.get(), scalars, reinterpret_cast<int32_t *>(scalars + 2),
                                       scalars + 1, 2.0, 0.5, 10, nullptr));
    EXPECT_GSC_OK(gsc_scaler_unscale(scaler, grads, nullptr));
    EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, grads, 1.0, GSC_NORM_L2, nullptr));
    EXPECT_GSC_OK(gsc_scaler_step(scaler, training.optimizer.get(), nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    EXPECT_GSC_OK(training.step());
    EXPECT_GSC_OK(gsc_optimizer_set_lr(training.optimizer.get(), 0, 0.5, nullptr));
    EXPECT_GSC_OK(gsc_optimizer_zero_grads(training.optimizer.get(), nullptr));
    EXPECT_GSC_OK(gsc_scaler_set_scale(scaler, 64.0f, nullptr));
    EXPECT_GSC_OK(gsc_scaler_read_report_async(scaler, grads, report, nullptr));
    EXPECT_GSC_OK(gsc_ops_cast(contexts.cuda.get(), &x, &x, 1, nullptr));
    EXPECT_GSC_OK(gsc_ops_norm(contexts.cuda.get(), &x, 1, GSC_NORM_L2,
                               static_cast<double *>(sums.device_tensor().data), nullptr, nullptr));
    EXPECT_EQ(emulation::wait_count(), waits) << "a function waits without _sync in its name";
    // What waits is refused, with a sentence.
    float scale = 0.0f;
    EXPECT_GSC_ERROR(gsc_scaler_get_scale_sync(scaler, &scale, nullptr), GSC_ERROR_BAD_STATE, "captured");
    gsc_report sync{};
    sync.struct_size = sizeof sync;
    EXPECT_GSC_ERROR(gsc_scaler_get_report_sync(scaler, grads, &sync, nullptr), GSC_ERROR_BAD_STATE, "captured");
    std::vector<gsc_tensor_diagnosis> diagnosis(training.g.size());
    EXPECT_GSC_ERROR(gsc_tensor_list_diagnose_sync(grads, diagnosis.data(), nullptr,
                                                   static_cast<int64_t>(diagnosis.size()), nullptr),
                     GSC_ERROR_BAD_STATE, "captured");
    gsc_history_entry entry;
    int64_t count = 0;
    int32_t apply = 0;
    const gsc_status bad = GSC_ERROR_BAD_STATE;
    EXPECT_GSC_ERROR(gsc_scaler_get_history_sync(scaler, &entry, 1, &count, nullptr), bad, "captured");
    EXPECT_GSC_ERROR(gsc_scaler_get_state_sync(scaler, &state, nullptr), bad, "captured");
    EXPECT_GSC_ERROR(gsc_optimizer_get_steps_sync(optimizer, &count, nullptr, nullptr), bad, "captured");
    EXPECT_GSC_ERROR(
        gsc_optimizer_get_tensor_steps_sync(optimizer, counts.data(), static_cast<int64_t>(counts.size()), nullptr),
        bad, "captured");
    EXPECT_GSC_ERROR(gsc_optimizer_save_sync(optimizer, saved.data(), bytes, nullptr), bad, "captured");
    EXPECT_GSC_ERROR(gsc_optimizer_load_sync(optimizer, saved.data(), bytes, nullptr), bad, "captured");
    EXPECT_GSC_ERROR(gsc_scaler_should_step_sync(scaler, grads, &apply, nullptr), bad, "captured");
  }
  EXPECT_EQ(report->updates, 2);
  EXPECT_EQ(report->scale, 64.0f);
}

/// The CPU refuses such a step; here an error could not be reported in time.
TEST(EmulatedBackend, ALearningRateThatIsNoneSkipsTheStep) {
  const Contexts contexts;
  const Training training(contexts.cuda);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -1.0F, std::numeric_limits<float>::infinity()}) {
    const TwinWord<float> lr(bad);
    const int64_t applied = applied_steps(training.optimizer), skipped = skipped_steps(training.optimizer);
    ASSERT_GSC_OK(gsc_optimizer_set_device_lr(training.optimizer.get(), 0, lr.device(), nullptr));
    EXPECT_GSC_OK(training.step());
    EXPECT_EQ(applied_steps(training.optimizer), applied);
    EXPECT_EQ(skipped_steps(training.optimizer), skipped + 1);
    EXPECT_EQ(report_of(training.scaler).skipped, 0) << "no overflow";
  }
}

TEST(EmulatedBackend, ListsCanBePointedElsewhere) {
  const Contexts contexts;
  const int tensors = 1000;  // more than one batch of addresses
  Twins first;
  Twins second;
  Random random(9);
  std::vector<void *> host_data;
  std::vector<void *> device_data;
  for (int i = 0; i < tensors; ++i) {
    first.emplace_back(GSC_FP32, 5);
    second.emplace_back(GSC_FP32, 5);
    second.back().fill(Values::kOrdinary, random);
    host_data.push_back(second.back().host_tensor().data);
    device_data.push_back(second.back().device_tensor().data);
  }
  const List host = make_list(contexts.cpu, host_tensors(first));
  const List device = make_list(contexts.cuda, device_tensors(first));
  ASSERT_GSC_OK(gsc_tensor_list_set_pointers(host.get(), host_data.data(), tensors, nullptr));
  ASSERT_GSC_OK(gsc_tensor_list_set_pointers(device.get(), device_data.data(), tensors, nullptr));
  const Scaler host_scaler = make_scaler(contexts.cpu, 2.0f);
  const Scaler device_scaler = make_scaler(contexts.cuda, 2.0f);
  ASSERT_GSC_OK(gsc_scaler_unscale(host_scaler.get(), host.get(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_unscale(device_scaler.get(), device.get(), nullptr));
  expect_same_report(report_of(device_scaler, device.get()), report_of(host_scaler, host.get()));
  for (const Twin &twin : first) ASSERT_TRUE(twin.same());
  for (const Twin &twin : second) ASSERT_TRUE(twin.same());
}

TEST(EmulatedBackend, Fp64GradientsOfFp32ParametersOverflowWhereFp32Does) {
  const Contexts contexts;
  for (const double value : {3.4e38, 3.5e38}) {
    Twin p(GSC_FP32, 3);
    Twin g(GSC_FP64, 3);
    g.host().set(1, value);
    g.upload();
    const List params = make_list(contexts.cuda, {p.device_tensor()});
    const List grads = make_list(contexts.cuda, {g.device_tensor()});
    const Optimizer optimizer = make_optimizer(contexts.cuda, optimizer_options(GSC_SGD), params, grads);
    const Scaler scaler = make_scaler(contexts.cuda, 1.0f);
    ASSERT_GSC_OK(gsc_scaler_step(scaler.get(), optimizer.get(), nullptr));
    EXPECT_EQ(skipped_steps(optimizer), value > 3.41e38 ? 1 : 0) << value;
    EXPECT_EQ(report_of(scaler, grads.get()).inf_count, value > 3.41e38 ? 1 : 0) << value;
  }
}

TEST(EmulatedBackend, ABrokenOffCheckLeavesNothingBehind) {
  const Contexts contexts;
  Training training(contexts.cuda);
  Random random(1);
  training.g[0].fill(Values::kWithInf, random);
  ASSERT_GSC_OK(gsc_scaler_check_range(training.scaler.get(), training.grads.get(), 0, 1, nullptr));
  ASSERT_GSC_OK(gsc_scaler_discard(training.scaler.get(), nullptr));
  training.g[0].fill(Values::kOrdinary, random);
  ASSERT_GSC_OK(gsc_scaler_check(training.scaler.get(), training.grads.get(), nullptr));
  EXPECT_EQ(report_of(training.scaler, training.grads.get()).nonfinite_count, 0);
}

TEST(EmulatedBackend, LearningRateAndStepScalarsAreReadOnTheDevice) {
  const Contexts contexts;
  Twin p(GSC_FP32, 10);
  Twin g(GSC_FP32, 10);
  p.host().fill(1.0);
  g.host().fill(4.0);
  p.upload();
  g.upload();
  const List params = make_list(contexts.cuda, {p.device_tensor()});
  const List grads = make_list(contexts.cuda, {g.device_tensor()});
  const Optimizer optimizer = make_optimizer(contexts.cuda, optimizer_options(GSC_SGD), params, grads);
  TwinWord<float> lr(0.5f);
  TwinWord<float> inverse(0.25f);
  TwinWord<float> found(0.0f);
  ASSERT_GSC_OK(gsc_optimizer_set_device_lr(optimizer.get(), 0, lr.device(), nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(optimizer.get(), inverse.device(), found.device(), nullptr));
  p.host().fill(0.5);
  EXPECT_TRUE(p.same());
  lr.set(0.25f);
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(optimizer.get(), inverse.device(), nullptr, nullptr));
  p.host().fill(0.25);
  EXPECT_TRUE(p.same());
  found.set(3.0f);
  ASSERT_GSC_OK(gsc_optimizer_step_scaled(optimizer.get(), inverse.device(), found.device(), nullptr));
  EXPECT_TRUE(p.same());
  EXPECT_EQ(skipped_steps(optimizer), 1);
}

TEST(EmulatedBackend, StepsOfMixedArithmeticAreCountedOnce) {
  const Contexts contexts;
  Twins p;
  Twins g;
  Random random(2);
  for (const int32_t dtype : {GSC_FP32, GSC_FP64, GSC_FP16}) {
    p.emplace_back(dtype, 100);
    g.emplace_back(dtype, 100);
    p.back().fill(Values::kOrdinary, random);
    g.back().fill(Values::kOrdinary, random);
  }
  for (const int32_t kind : {GSC_ADAMW, GSC_LAMB}) {
    for (const Context *context : {&contexts.cpu, &contexts.cuda}) {
      const bool on_host = context == &contexts.cpu;
      const List params = make_list(*context, on_host ? host_tensors(p) : device_tensors(p));
      const List grads = make_list(*context, on_host ? host_tensors(g) : device_tensors(g));
      const Optimizer optimizer = make_optimizer(*context, optimizer_options(kind), params, grads);
      ASSERT_GSC_OK(gsc_optimizer_step(optimizer.get(), nullptr));
      ASSERT_GSC_OK(gsc_optimizer_step(optimizer.get(), nullptr));
      EXPECT_EQ(applied_steps(optimizer), 2);
    }
    for (const Twin &twin : p) EXPECT_TRUE(twin.same());
  }
}

TEST(EmulatedBackend, EmptyLists) {
  const Contexts contexts;
  const Training training(contexts.cuda, 0);
  ASSERT_GSC_OK(training.step());
  EXPECT_EQ(report_of(training.scaler, training.grads.get()).grad_norm, 0.0);
  EXPECT_EQ(applied_steps(training.optimizer), 1);
  double *out = static_cast<double *>(emulation::allocate_device(8));
  ASSERT_GSC_OK(gsc_ops_norm(contexts.cuda.get(), nullptr, 0, GSC_NORM_L2, out, nullptr, nullptr));
  EXPECT_EQ(read_device(out), 0.0);
  cudaFree(out);
}

TEST(EmulatedBackend, ManyListsInOneUpdate) {
  const Contexts contexts;
  const int lists = 1100;  // more than two batches of addresses
  const Scaler scaler = make_scaler(contexts.cuda, 8.0f);
  Twin ok(GSC_FP32, 1);
  Twin bad(GSC_FP32, 1);
  bad.host().set(0, kInf);
  bad.upload();
  std::vector<List> all;
  for (int i = 0; i < lists; ++i) {
    all.push_back(make_list(contexts.cuda, {i == 700 ? bad.device_tensor() : ok.device_tensor()}));
    ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), all.back().get(), nullptr));
  }
  ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
  EXPECT_EQ(scale_of(scaler), 4.0f);
  EXPECT_EQ(report_of(scaler).inf_count, 1);
  EXPECT_EQ(report_of(scaler).updates, 1);
}

TEST(EmulatedBackend, BadMemory) {
  const Contexts contexts;
  Twin twin(GSC_FP32, 8);
  gsc_tensor_list *list = nullptr;
  gsc_tensor tensors[2] = {twin.device_tensor(), twin.host_tensor()};
  EXPECT_GSC_ERROR(gsc_tensor_list_create(contexts.cuda.get(), tensors, 2, nullptr, &list), GSC_ERROR_INVALID_ARGUMENT,
                   "tensors[1]", "host memory");
  void *other = emulation::allocate_device(32, 1);
  tensors[1].data = other;
  EXPECT_GSC_ERROR(gsc_tensor_list_create(contexts.cuda.get(), tensors, 2, nullptr, &list), GSC_ERROR_INVALID_ARGUMENT,
                   "tensors[1]", "device 1");
  void *freed = emulation::allocate_device(32);
  cudaFree(freed);
  tensors[1].data = freed;
  EXPECT_GSC_ERROR(gsc_tensor_list_create(contexts.cuda.get(), tensors, 2, nullptr, &list), GSC_ERROR_INVALID_ARGUMENT,
                   "tensors[1]", "freed");
  EXPECT_GSC_ERROR(gsc_tensor_list_create(contexts.cpu.get(), tensors, 1, nullptr, &list), GSC_ERROR_INVALID_ARGUMENT,
                   "tensors[0]", "CUDA device 0");
  cudaFree(other);
  gsc_report report{};
  report.struct_size = sizeof report;
  const Training training(contexts.cuda);
  ASSERT_GSC_OK(training.step());
  EXPECT_GSC_ERROR(gsc_scaler_read_report_async(training.scaler.get(), nullptr, &report, nullptr),
                   GSC_ERROR_INVALID_ARGUMENT, "out_report", "pinned");
}

TEST(EmulatedBackend, AStreamThatIsNone) {
  const Contexts contexts;
  const Training training(contexts.cuda);
  int not_a_stream = 0;
  EXPECT_GSC_ERROR(training.step(&not_a_stream), GSC_ERROR_INVALID_ARGUMENT, "stream");
}

TEST(EmulatedBackend, DevicesAndNoSuchDevice) {
  int32_t count = 0;
  ASSERT_GSC_OK(gsc_device_get_count(GSC_DEVICE_CUDA, &count));
  EXPECT_EQ(count, 2);
  gsc_device_info info{};
  info.struct_size = sizeof info;
  ASSERT_GSC_OK(gsc_device_get_info(GSC_DEVICE_CUDA, 0, &info));
  EXPECT_EQ(info.device_type, GSC_DEVICE_CUDA);
  EXPECT_EQ(info.units, 2);
  EXPECT_EQ(info.level, 90);
  EXPECT_GSC_ERROR(gsc_device_get_info(GSC_DEVICE_CUDA, 2, &info), GSC_ERROR_UNAVAILABLE, "device_index is 2");
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  options.device_index = 3;
  gsc_context *context = nullptr;
  EXPECT_GSC_ERROR(gsc_context_create(&options, &context), GSC_ERROR_UNAVAILABLE, "device_index is 3");
}

TEST(EmulatedBackend, NothingIsLeftBehind) {
  const int64_t before = emulation::bytes_in_use();
  {
    const Contexts contexts;
    const Training training(contexts.cuda, 20);
    ASSERT_GSC_OK(training.step());
    const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    ASSERT_GSC_OK(gsc_optimizer_add_group(training.optimizer.get(), 0, 1, &options, nullptr));
    std::vector<gsc_tensor_diagnosis> out(20);
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(training.grads.get(), out.data(), nullptr, 20, nullptr));
    EXPECT_GT(emulation::bytes_in_use(), before);
  }
  EXPECT_EQ(emulation::bytes_in_use(), before);
}

TEST(EmulatedBackend, ACheckpointGoesThroughTheDevice) {
  const Contexts contexts;
  const Training one(contexts.cuda, 2, 20000);
  const Training two(contexts.cuda, 2, 20000);
  ASSERT_GSC_OK(one.step());
  int64_t bytes = 0;
  ASSERT_GSC_OK(gsc_optimizer_get_save_size(one.optimizer.get(), &bytes));
  std::vector<char> saved(static_cast<size_t>(bytes));
  std::vector<char> again(static_cast<size_t>(bytes));
  ASSERT_GSC_OK(gsc_optimizer_save_sync(one.optimizer.get(), saved.data(), bytes, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_load_sync(two.optimizer.get(), saved.data(), bytes, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_save_sync(two.optimizer.get(), again.data(), bytes, nullptr));
  EXPECT_EQ(again, saved);
}

/// get_report_sync is what logs on a device that the host does not see.
TEST(EmulatedBackend, ALogCallbackDestroysTheScaler) {
  static Scaler scaler;
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  options.log = [](void *, int32_t, const char *) { scaler.reset(); };
  gsc_context *created = nullptr;
  ASSERT_GSC_OK(gsc_context_create(&options, &created));
  const Context context(created);
  Twins twins;
  twins.emplace_back(GSC_FP32, 8);
  Random random(1);
  twins[0].fill(Values::kWithInf, random);
  const List list = make_list(context, device_tensors(twins));
  gsc_scaler_options at_floor = scaler_options(1.0f);
  at_floor.min_scale = 1.0f;
  at_floor.floor_action = GSC_FLOOR_ERROR;
  scaler = make_scaler(context, at_floor);
  ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
  gsc_report report{};
  report.struct_size = sizeof report;
  EXPECT_GSC_ERROR(gsc_scaler_get_report_sync(scaler.get(), nullptr, &report, nullptr), GSC_ERROR_SCALE_FLOOR, "1");
  EXPECT_EQ(scaler.get(), nullptr);
}

}  // namespace
}  // namespace gsc_test
