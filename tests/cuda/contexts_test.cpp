// SPDX-License-Identifier: Apache-2.0
//
// The CUDA context that the library works in, on the emulated devices: threads without a context stay without one, the
// caller's context stays current, memory of another context is refused, other threads' captures continue, and devices
// without memory pools work too.
#include <thread>

#include "tests/cuda/operations.h"

namespace gsc_test {
namespace {

/// Runs f on a thread that has never used CUDA, and expects it to end without a context, and to have had none in
/// between.
template <typename F>
void on_bare_thread(const F &f) {
  const int64_t before = emulation::implicit_context_count();
  std::thread([&] {
    f();
    EXPECT_EQ(emulation::current_context(), nullptr) << "a context was left current";
  }).join();
  EXPECT_EQ(emulation::implicit_context_count(), before) << "CUDA chose the primary context of device 0 by itself";
}

TEST(BareThread, ListsOnTheCpuAreChecked) {
  const Contexts contexts;
  Twin twin(GSC_FP32, 4);
  const std::vector<gsc_tensor> good = {twin.host_tensor()}, bad = {twin.device_tensor()};
  on_bare_thread([&] {
    const List list = make_list(contexts.cpu, good);
    gsc_tensor_list *none = nullptr;
    EXPECT_INVALID(gsc_tensor_list_create(contexts.cpu, bad.data(), 1, nullptr, &none), "tensors[0]", "CUDA device 0");
  });
}

/// A larger grid than is resident would leave blocks for a second round.
TEST(Grid, CheckHasTheBlocksThatFit) {
  for (const int blocks : {3, 4, 6}) {
    emulation::set_resident_blocks(blocks);
    const Context context = make_cuda_context(0);
    Twins twins;
    for (int i = 0; i < 200; ++i) twins.emplace_back(GSC_FP32, 8);
    const List list = make_list(context, device_tensors(twins));
    const Scaler scaler = make_scaler(context, 1.0F);
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    EXPECT_EQ(emulation::last_grid(), blocks * emulation::multiprocessor_count());
  }
  emulation::set_resident_blocks(4);
}

/// As on a finalizer's thread, also while a stream is captured.
TEST(BareThread, DestroysEverything) {
  const Inventory before;
  {
    Context home = make_cuda_context(0), away = make_cuda_context(1);
    const auto near = std::make_unique<Training>(home);
    std::unique_ptr<Training> far;
    {
      const OnDevice second(1);
      far = std::make_unique<Training>(away);
    }
    // A list of another context has an event.
    ASSERT_GSC_OK(gsc_scaler_step(near->scaler, far->optimizer, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(near->scaler, nullptr));
    const DeviceStream captured(0);
    emulation::begin_capture(captured);
    on_bare_thread([&] {
      const int64_t waits = emulation::wait_count();
      near->destroy();
      far->destroy();
      EXPECT_EQ(emulation::wait_count(), waits) << "a finalizer waits";
      home.reset();
      away.reset();
    });
    EXPECT_TRUE(emulation::end_capture(captured));
  }
  EXPECT_EQ(Inventory(), before);
}

/// A CUDA context of the caller's own, current on this thread.
class OwnContext {
 public:
  explicit OwnContext(int device) : previous_(emulation::current_context()), context_(emulation::make_context(device)) {
    emulation::set_current_context(context_);
  }
  OwnContext &operator=(OwnContext &&) = delete;
  ~OwnContext() {
    emulation::set_current_context(previous_);
    emulation::destroy_context(context_);
  }
  CUctx_st *get() const { return context_; }

 private:
  CUctx_st *previous_;
  CUctx_st *context_;
};

gsc_status create_in_current(int device, gsc_context **out) {
  gsc_context_options options = cuda_options(device);
  options.flags = GSC_CONTEXT_USE_CURRENT;
  return gsc_context_create(&options, out);
}
Context make_in_current(int device) {
  gsc_context *made = nullptr;
  EXPECT_GSC_OK(create_in_current(device, &made));
  return Context(made);
}

cudaMemPool_t make_pool() {
  cudaMemPool_t pool = nullptr;
  const cudaMemPoolProps properties{};
  EXPECT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  return pool;
}

TEST(CurrentContext, IsUsedAndNotThePrimaryOne) {
  const OwnContext own(1);
  const Context context = make_in_current(1);
  EXPECT_EQ(emulation::reference_count(emulation::primary_context(1)), 0) << "retained";
  const DeviceStream stream;
  const Training training(context);
  on_bare_thread([&] {  // it is current during the library's calls only
    ASSERT_GSC_OK(training.step(stream)) << "a stream of the caller's context";
    float scale = 0.0f;
    ASSERT_GSC_OK(gsc_scaler_get_scale_sync(training.scaler, &scale, stream));
    EXPECT_EQ(scale, 1024.0f);
  });
  EXPECT_EQ(emulation::current_context(), own.get());
}

TEST(CurrentContext, StreamsOfThePrimaryOneAreForeign) {
  emulation::set_current_context(emulation::primary_context(0));
  const DeviceStream stream;
  const OwnContext own(0);
  const Context context = make_in_current(0);
  const Training training(context);
  EXPECT_INVALID(training.step(stream), "stream");
}

TEST(CurrentContext, MemoryOfAnotherContextOfTheDeviceIsRefused) {
  const Contexts contexts;
  Twin primary(GSC_FP32, 4);
  const OwnContext own(0);
  Twin foreign(GSC_FP32, 4);
  const Context context = make_in_current(0);
  gsc_tensor_list *list = nullptr;
  const gsc_tensor in_own[] = {foreign.device_tensor(), primary.device_tensor()};
  EXPECT_INVALID(gsc_tensor_list_create(context, in_own, 2, nullptr, &list), "tensors[1]", "another CUDA context");
  const gsc_tensor in_primary[] = {foreign.device_tensor()};
  EXPECT_INVALID(gsc_tensor_list_create(contexts.device, in_primary, 1, nullptr, &list), "tensors[0]",
                 "GSC_CONTEXT_USE_CURRENT");
  // Memory of a pool belongs to no context.
  cudaMemPool_t pool = make_pool();
  void *pooled = nullptr;
  ASSERT_EQ(cudaMallocFromPoolAsync(&pooled, 16, pool, nullptr), cudaSuccess);
  const gsc_tensor tensor = GSC_TENSOR_INIT(pooled, 4, GSC_FP32);
  EXPECT_GSC_OK(gsc_tensor_list_create(contexts.device, &tensor, 1, nullptr, &list));
  gsc_tensor_list_destroy(list);
  cudaFreeAsync(pooled, nullptr);
  cudaMemPoolDestroy(pool);
}

TEST(DevicePool, AllDeviceMemoryComesFromTheCallersPool) {
  const Contexts contexts;
  cudaMemPool_t pool = make_pool();
  Twin p(GSC_FP32, 1000), g(GSC_FP32, 1000);
  const std::vector<gsc_tensor> params = {p.device_tensor()}, grads = {g.device_tensor()};
  const int64_t allocations = emulation::allocation_count();
  {
    gsc_context_options options = cuda_options();
    options.device_pool = pool;
    const Context context = make_context(options);
    int64_t before = -1, host = -1, device = -1;
    ASSERT_GSC_OK(gsc_context_get_memory(context, &host, &before));
    EXPECT_GT(host, 0);
    EXPECT_EQ(before, 0);
    {
      const List p_list = make_list(context, params), g_list = make_list(context, grads);
      const Optimizer adamw = make_optimizer(context, optimizer_options(GSC_ADAMW), p_list, g_list);
      EXPECT_GSC_OK(gsc_optimizer_step(adamw, nullptr));
      EXPECT_GSC_OK(gsc_ops_axpby(context, 1.0, params.data(), 1.0, grads.data(), 1, nullptr));
      ASSERT_GSC_OK(gsc_context_get_memory(context, nullptr, &device));
      EXPECT_GT(device, 2 * 4000) << "the state and more";
    }
    ASSERT_GSC_OK(gsc_context_get_memory(context, nullptr, &device));
    EXPECT_EQ(device, 0);
    EXPECT_EQ(emulation::allocation_count(), allocations);
  }
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess) << "it is the caller's";
}

TEST(CurrentContext, ThePrimaryOneIsKeptWithoutTheFlag) {
  const OwnContext own(0);
  const int before = emulation::reference_count(emulation::primary_context(0));
  {
    const Contexts contexts;
    EXPECT_EQ(emulation::reference_count(emulation::primary_context(0)), before + 1);
    EXPECT_EQ(emulation::current_context(), own.get());
  }
  EXPECT_EQ(emulation::reference_count(emulation::primary_context(0)), before);
}

TEST(CurrentContext, IsRefusedIfThereIsNoneOrOfAnotherDevice) {
  gsc_context *made = nullptr;
  on_bare_thread(
      [&] { EXPECT_INVALID(create_in_current(0, &made), "GSC_CONTEXT_USE_CURRENT", "no CUDA context is current"); });
  const OwnContext own(1);
  EXPECT_INVALID(create_in_current(0, &made), "options.device_index is 0", "device 1");
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(emulation::current_context(), own.get());
}

TEST(CurrentContext, AScalerSpansTwoContextsOfOneDevice) {
  const Contexts contexts;
  const Training first(contexts.device);
  const OwnContext own(0);
  const Context context = make_in_current(0);
  const Training second(context);
  on_bare_thread([&] {
    ASSERT_GSC_OK(gsc_scaler_step(first.scaler, first.optimizer, nullptr));
    ASSERT_GSC_OK(gsc_scaler_step(first.scaler, second.optimizer, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(first.scaler, nullptr));
    EXPECT_EQ(report_of(first.scaler).updates, 1);
  });
}

/// A graph holds what was enqueued while it was captured. What a check of ranges counted and a discard forgot must not
/// come up in a replay.
TEST(Graphs, DoNotSeeWhatAnUnfinishedCheckCounted) {
  const Context context = make_cuda_context(0);
  Training training(context, 2, 300);
  gsc_scaler *const scaler = training.scaler;
  gsc_tensor_list *const grads = training.grads;
  emulation::keep_work(true);
  ASSERT_GSC_OK(gsc_scaler_check(scaler, grads, nullptr));
  const auto graph = emulation::keep_work(false);
  ASSERT_GSC_OK(gsc_scaler_discard(scaler, grads));
  Random random(3);
  training.g[0].fill(kWithInf, random);
  ASSERT_GSC_OK(gsc_scaler_check_range(scaler, grads, 0, 1, nullptr));
  ASSERT_GSC_OK(gsc_scaler_discard(scaler, grads));
  training.g[0].fill(kOrdinary, random);
  for (const auto &work : graph) work();
  EXPECT_EQ(report_of(training.scaler, grads).nonfinite_count, 0);
}

/// Memory that a call replaces is kept for the graphs that use it.
TEST(Graphs, KeepTheMemoryOfTheirOptimizer) {
  const std::function<void(Training &)> changes[] = {
      [](Training &t) {
        const int64_t steps[] = {1, 1, 1};
        ASSERT_GSC_OK(gsc_optimizer_set_tensor_steps(t.optimizer, steps, 3, nullptr));
      },
      [](Training &t) {
        auto same = with_size<gsc_optimizer_options>();
        ASSERT_GSC_OK(gsc_optimizer_get_options(t.optimizer, 0, &same));
        ASSERT_GSC_OK(gsc_optimizer_add_group(t.optimizer, 0, 0, &same, nullptr));
      }};
  for (const auto &change : changes) {
    const Context context = make_cuda_context(0);
    const auto weights = [&](bool is_changed) {
      Training training(context, 3, 300);
      const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
      for (int i = 1; i < 20; ++i) {  // more than a block computes by itself
        EXPECT_GSC_OK(gsc_optimizer_add_group(training.optimizer, 0, 0, &options, nullptr));
      }
      const DeviceStream stream(0);
      emulation::begin_capture(stream.get());
      emulation::keep_work(true);
      EXPECT_GSC_OK(training.step(stream.get()));
      const auto graph = emulation::keep_work(false);
      EXPECT_TRUE(emulation::end_capture(stream.get()));
      if (is_changed) change(training);
      const Scaler next = make_scaler(context, 8.0F);  // frees what was released, and takes it
      for (const auto &work : graph) work();
      EXPECT_EQ(scale_of(next), 8.0F);
      return training.p[0].image();
    };
    EXPECT_EQ(weights(true), weights(false));
  }
}

/// What finalizers released is freed by the next creation, and a large optimizer state at once.
TEST(ReleasedMemory, IsFreedInTime) {
  const Context context = make_cuda_context(0);
  const int64_t before = emulation::bytes_in_use();
  for (const int64_t count : {int64_t{1000}, int64_t{9} << 20}) {
    const DeviceBytes param(4 * count), grad(2 * count);
    const int64_t buffers = emulation::bytes_in_use();
    {
      const List params = make_list(context, {GSC_TENSOR_INIT(param.data(), count, GSC_FP32)});
      const List grads = make_list(context, {GSC_TENSOR_INIT(grad.data(), count, GSC_FP16)});
      make_optimizer(context, optimizer_options(GSC_ADAMW), params, grads);
    }
    const int64_t kept = emulation::bytes_in_use() - buffers;
    EXPECT_GT(kept, 0);
    EXPECT_LT(kept, int64_t{1} << 20);
    if (count > 1000) continue;
    make_scaler(context, 1.0F);
    const int64_t scaler = emulation::bytes_in_use() - buffers;
    EXPECT_LT(scaler, kept);
    make_scaler(context, 1.0F);
    EXPECT_EQ(emulation::bytes_in_use() - buffers, scaler);
  }
  EXPECT_LT(emulation::bytes_in_use() - before, int64_t{1} << 20);
}

/// Also before scratch memory cannot be had.
TEST(ReleasedMemory, IsFreedWhereMemoryIsOut) {
  const Context context = make_cuda_context(0);
  Twin x(GSC_FP32, 1000);
  const gsc_tensor tensor = x.device_tensor();
  const auto fill = [&] { return gsc_ops_axpby(context, 1.0, &tensor, 1.0, &tensor, 1, nullptr); };
  make_scaler(context, 1.0F);  // and destroys it
  const int64_t before = emulation::bytes_in_use();
  emulation::fail_always("no call", cudaErrorMemoryAllocation);
  const char *failed = "";
  for (int64_t call = 0; failed != nullptr && std::string(failed) != "cudaMallocFromPoolAsync"; ++call) {
    emulation::fail_call(call);
    const gsc_status status = fill();
    failed = emulation::failed_call();
    const bool is_scratch = failed != nullptr && std::string(failed) == "cudaMallocFromPoolAsync";
    EXPECT_TRUE(status == GSC_OK || !is_scratch) << gsc_error_get_message();
  }
  emulation::fail_call(-1);
  EXPECT_NE(failed, nullptr);
  EXPECT_LT(emulation::bytes_in_use(), before);
  emulation::fail_always("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  EXPECT_EQ(fill(), GSC_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(std::string(gsc_error_get_message()).find("bytes of scratch memory on CUDA device 0"), std::string::npos);
  emulation::fail_always("", cudaErrorUnknown);
}

/// Kernels reach it like their own memory, at an address that the driver knows.
TEST(HostMemory, ThatIsPinnedIsTaken) {
  const Context context = make_cuda_context(0);
  auto *const floats = static_cast<float *>(emulation::allocate_pinned(2 * sizeof(float)));
  floats[0] = 3.0F;
  floats[1] = 4.0F;
  const gsc_tensor tensor = GSC_TENSOR_INIT(floats, 2, GSC_FP32);
  const float factor = 0.5F;
  const TwinWord<float> word(factor);
  ASSERT_GSC_OK(gsc_ops_scale(context, &tensor, &tensor, 1, word.device(), nullptr));
  EXPECT_EQ(floats[0], 1.5F);
  EXPECT_EQ(floats[1], 2.0F);
  // Registered memory may have another address on the device.
  emulation::set_mapping_distance(64);
  EXPECT_INVALID(gsc_ops_scale(context, &tensor, &tensor, 1, word.device(), nullptr), "src[0].data",
                 text(floats + 16).c_str());
  const Scaler scaler = make_scaler(context, 8.0F);
  auto *const reports = static_cast<char *>(emulation::allocate_pinned(2 * 64 + sizeof(gsc_report)));
  auto *const report = reinterpret_cast<gsc_report *>(reports);
  report->struct_size = sizeof *report;
  EXPECT_GSC_OK(gsc_scaler_read_report_async(scaler, nullptr, report, nullptr));
  emulation::set_mapping_distance(0);
  EXPECT_EQ(reinterpret_cast<const gsc_report *>(reports + 64)->scale, 8.0F);
}

/// On Grace a GPU reads all host memory by the host's page tables.
TEST(HostMemory, ThatIsPageableIsTakenWhereKernelsReachIt) {
  float element = 3.0F;
  auto report = with_size<gsc_report>();
  const gsc_tensor tensor = GSC_TENSOR_INIT(&element, 1, GSC_FP32);
  const TwinWord<float> word(2.0F);
  for (const bool reached : {false, true}) {
    emulation::set_host_page_tables(reached);
    const Context context = make_cuda_context(0);
    emulation::set_host_page_tables(false);
    const Scaler scaler = make_scaler(context, 8.0F);
    const auto scale = [&] { return gsc_ops_scale(context, &tensor, &tensor, 1, word.device(), nullptr); };
    const auto read = [&] { return gsc_scaler_read_report_async(scaler, nullptr, &report, nullptr); };
    if (reached) {
      EXPECT_GSC_OK(scale());
      EXPECT_GSC_OK(read());
      EXPECT_EQ(element, 6.0F);
      EXPECT_EQ(report.scale, 8.0F);
    } else {
      EXPECT_INVALID(scale(), "src[0].data", "not pinned");
      EXPECT_INVALID(read(), "out_report", "not pinned");
    }
  }
}

/// A virtual GPU may have none.
class WithoutPools : public testing::Test {
 protected:
  WithoutPools() { emulation::set_memory_pools(false); }
  ~WithoutPools() override { emulation::set_memory_pools(true); }
};

TEST_F(WithoutPools, WhatNeedsScratchMemoryWaitsOutsideOfCaptures) {
  const Contexts contexts;
  Twin x(GSC_FP32, 8);
  const gsc_tensor tensor = x.device_tensor();
  const auto waits_of_axpby = [&] {
    const int64_t waits = emulation::wait_count();
    EXPECT_GSC_OK(gsc_ops_axpby(contexts.device, 1.0, &tensor, 1.0, &tensor, 1, nullptr));
    return emulation::wait_count() - waits;
  };
  EXPECT_GT(waits_of_axpby(), 0);
  emulation::set_capturing(true);
  EXPECT_EQ(waits_of_axpby(), 0);
  emulation::set_capturing(false);
}

}  // namespace
}  // namespace gsc_test
