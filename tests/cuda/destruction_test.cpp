// SPDX-License-Identifier: Apache-2.0
//
// Destroying objects, and replacing their memory, while work on them is pending: device memory may be handed to its
// next owner only behind that work. CUDA waits for the device when memory of cudaMalloc is freed, and for nothing when
// it is memory of a pool, which the caller may give (gsc_context_options.device_pool).
#include <optional>

#include "tests/cuda/training.h"

namespace gsc_test {
namespace {

cudaMemPool_t make_pool(int device = 0) {
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps properties{};
  properties.location.id = device;
  EXPECT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  return pool;
}
Context make_pooled_context(cudaMemPool_t pool, int device = 0) {
  gsc_context_options options = cuda_options(device);
  options.device_pool = pool;
  return make_context(options);
}

/// What the host allocates next, written on a stream that waits for no other.
class Taken {
 public:
  explicit Taken(cudaMemPool_t pool, int device = 0) : current_(device), stream_(device) {
    for (const size_t bytes : {64, 256, 4096}) {
      for (int i = 0; i < 100; ++i) {
        void *memory = nullptr;
        EXPECT_EQ(cudaMallocFromPoolAsync(&memory, bytes, pool, stream_), cudaSuccess);
        EXPECT_EQ(cudaMemsetAsync(memory, kMine, bytes, stream_), cudaSuccess);
        all_.emplace_back(memory, bytes);
      }
    }
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  Taken &operator=(Taken &&) = delete;
  /// Once all work is done.
  ~Taken() {
    for (const auto &[memory, bytes] : all_) {
      const std::vector<char> mine(bytes, kMine);
      std::vector<char> found(bytes);
      copy_to_host(found.data(), memory, static_cast<int64_t>(bytes));
      EXPECT_EQ(found, mine) << "the library's work wrote to memory of the host";
      EXPECT_EQ(cudaFreeAsync(memory, stream_), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }

 private:
  static constexpr char kMine = 0x7f;
  const OnDevice current_;
  const DeviceStream stream_;
  std::vector<std::pair<void *, size_t>> all_;
};

/// What the library allocates next. That waits for the setup stream, and so for what is freed in its order.
class Next {
 public:
  explicit Next(const Context &context) : scaler_(make_scaler(context, 8.0F)) {}
  Next &operator=(Next &&) = delete;
  /// Once all work is done.
  ~Next() {
    EXPECT_EQ(scale_of(scaler_), 8.0F) << "earlier work wrote to memory of a new object";
    EXPECT_EQ(report_of(scaler_).updates, 0);
  }

 private:
  const Scaler scaler_;
};

struct World {
  explicit World(cudaMemPool_t pool, const gsc_optimizer_options &options)
      : context(pool != nullptr ? make_pooled_context(pool) : make_cuda_context(0)),
        training(std::in_place, context, 3, 1000, GSC_FP32, options) {
    for (int i = 1; i < 20; ++i) {  // more than a block computes by itself
      EXPECT_GSC_OK(gsc_optimizer_add_group(training->optimizer, 0, 0, &options, nullptr));
    }
  }
  Context context;
  std::optional<Training> training;
};

/// What happens while a step is pending.
struct Way {
  const char *name;
  std::function<void(World &, gsc_stream)> go;
};

const Way kWays[] = {
    {"the optimizer is destroyed", [](World &w, gsc_stream) { w.training->optimizer.reset(); }},
    {"its lists are destroyed after it",
     [](World &w, gsc_stream) {
       w.training->optimizer.reset();
       w.training->grads.reset();
       w.training->params.reset();
     }},
    {"the scaler is destroyed", [](World &w, gsc_stream) { w.training->scaler.reset(); }},
    {"all is destroyed", [](World &w, gsc_stream) { w.training->destroy(); }},
    {"all is destroyed with the context",
     [](World &w, gsc_stream) {
       w.training->destroy();
       w.context.reset();
     }},
    {"a group is added, and another made",
     [](World &w, gsc_stream) {
       auto same = with_size<gsc_optimizer_options>();
       ASSERT_GSC_OK(gsc_optimizer_get_options(w.training->optimizer, 0, &same));
       for (int i = 0; i < 2; ++i) {
         ASSERT_GSC_OK(gsc_optimizer_add_group(w.training->optimizer, 0, 0, &same, nullptr));
         make_scaler(w.context, 1.0F);  // frees what was released
       }
     }},
    {"the tensors' steps are counted from now on",
     [](World &w, gsc_stream stream) {
       ASSERT_GSC_OK(gsc_tensor_list_set_present(w.training->grads, nullptr, nullptr, 3, stream));
       ASSERT_GSC_OK(w.training->step(stream));
     }},
};

/// The parameters after a step during which `way` is gone.
std::vector<Image> parameters_after(const Way &way, const gsc_optimizer_options &options, bool pooled, bool late,
                                    bool on_default) {
  cudaMemPool_t pool = pooled ? make_pool() : nullptr, others = make_pool();
  World world(pool, options);
  const DeviceStream stream(0);
  const gsc_stream given = on_default ? nullptr : stream.get();
  EXPECT_GSC_OK(world.training->step(given));
  emulation::set_lazy_streams(late);
  EXPECT_GSC_OK(world.training->step(given));
  way.go(world, given);
  {
    std::optional<Next> next;
    if (world.context) next.emplace(world.context);
    const Taken taken(pooled ? pool : others);
    emulation::set_lazy_streams(false);  // the rest is done
  }
  std::vector<Image> images;
  for (const Twin &twin : world.training->p) {
    const std::vector<char> bytes = twin.image();
    images.emplace_back(bytes.begin(), bytes.end());
  }
  world.training.reset();
  world.context.reset();
  for (cudaMemPool_t made : {pool, others}) {
    EXPECT_TRUE(made == nullptr || cudaMemPoolDestroy(made) == cudaSuccess);
  }
  return images;
}

TEST(Destruction, APendingStepKeepsItsMemory) {
  const int64_t before = emulation::bytes_in_use();
  for (const int32_t kind : {GSC_ADAMW, GSC_LAMB, GSC_ADAMW_SCHEDULE_FREE}) {
    gsc_optimizer_options options = optimizer_options(kind);
    for (const int32_t format : {GSC_STATE_FULL, GSC_STATE_BITS8}) {
      options.state_format = format;
      for (const Way &way : kWays) {
        SCOPED_TRACE(text("kind ", kind, ", state format ", format, ": ", way.name));
        const std::vector<Image> expected = parameters_after(way, options, false, false, true);
        for (const bool pooled : {false, true}) {
          for (const bool on_default : {false, true}) {
            EXPECT_EQ(parameters_after(way, options, pooled, true, on_default), expected)
                << (pooled ? "memory of a pool, " : "") << (on_default ? "the default stream" : "a stream");
          }
        }
      }
    }
  }
  EXPECT_EQ(emulation::bytes_in_use(), before);
}

/// Whose scaler no longer knows it, after an update.
TEST(Destruction, AListGoesDuringItsCheck) {
  cudaMemPool_t pool = make_pool();
  {
    const Context context = make_pooled_context(pool);
    const DeviceStream stream(0);
    Twin twin(GSC_FP32, 500);
    Random random(6);
    twin.fill(kOrdinary, random);
    List list = make_list(context, {twin.device_tensor()});
    const Scaler scaler = make_scaler(context, 1024.0F);
    const auto iteration = [&] {
      ASSERT_GSC_OK(gsc_scaler_check(scaler, list, stream.get()));
      ASSERT_GSC_OK(gsc_scaler_update(scaler, stream.get()));
    };
    iteration();
    const double norm = report_of(scaler).grad_norm;
    emulation::set_lazy_streams(true);
    iteration();
    list.reset();
    {
      const Next next(context);
      const Taken taken(pool);
      emulation::set_lazy_streams(false);
    }
    EXPECT_EQ(report_of(scaler).grad_norm, norm);
    EXPECT_EQ(report_of(scaler).updates, 2);
  }
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

/// CUDA forbids all use of the default stream while a stream that blocks with it is captured, and a finalizer's thread
/// does not know of the capture.
TEST(Destruction, LeavesTheDefaultStreamAlone) {
  cudaMemPool_t pool = make_pool();
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, 0), cudaSuccess);
  for (const bool pooled : {false, true}) {
    World world(pooled ? pool : nullptr, optimizer_options(GSC_ADAMW));
    ASSERT_GSC_OK(world.training->step(nullptr));
    emulation::begin_capture(blocking);
    world.training->destroy();
    world.context.reset();
    EXPECT_TRUE(emulation::end_capture(blocking)) << (pooled ? "memory of a pool" : "");
  }
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

/// A list of device 1 under a scaler of device 0, all memory from pools.
class PooledDevices : public testing::Test {
 protected:
  PooledDevices() {
    Random random(5);
    for (Twin &twin : grads_) twin.fill(kOrdinary, random);
    list_ = make_list(there_, device_tensors(grads_));
    scaler_ = make_scaler(home_, 1024.0F);
  }
  ~PooledDevices() override {
    list_.reset();
    scaler_.reset();
    there_.reset();
    home_.reset();
    other_.reset();
    for (cudaMemPool_t pool : pools_) cudaMemPoolDestroy(pool);
  }
  cudaMemPool_t pools_[2] = {make_pool(0), make_pool(1)};
  Context home_ = make_pooled_context(pools_[0]), other_ = make_pooled_context(pools_[0]);
  Context there_ = make_pooled_context(pools_[1], 1);
  const OnDevice current_{1};
  const DeviceStream here_{0}, at_list_{1};
  Twins grads_ = [] {
    Twins twins;
    twins.emplace_back(GSC_FP32, 500);
    return twins;
  }();
  List list_;
  Scaler scaler_;
};

/// By a kernel of the scaler's device, which has a copy of the list's record.
TEST_F(PooledDevices, AListGoesAfterItsReportWasRead) {
  auto *const report = static_cast<gsc_report *>(emulation::allocate_pinned(sizeof(gsc_report)));
  *report = with_size<gsc_report>();
  ASSERT_GSC_OK(gsc_scaler_check(scaler_, list_, at_list_.get()));
  const double norm = report_of(scaler_, list_).grad_norm;
  ASSERT_GSC_OK(gsc_scaler_update(scaler_, here_.get()));
  emulation::set_lazy_streams(true);
  ASSERT_GSC_OK(gsc_scaler_read_report_async(scaler_, list_, report, here_.get()));
  list_.reset();
  const Next next(home_);
  const Taken taken[] = {Taken(pools_[1], 1), Taken(pools_[0])};
  emulation::set_lazy_streams(false);
  EXPECT_EQ(report->grad_norm, norm);
}

/// Its copy of the scale is replaced while a check reads it.
TEST_F(PooledDevices, AListGoesToAnotherScaler) {
  ASSERT_GSC_OK(gsc_scaler_check(scaler_, list_, at_list_.get()));
  const double norm = report_of(scaler_, list_).grad_norm;
  ASSERT_GSC_OK(gsc_scaler_discard(scaler_, nullptr));
  const Scaler second = make_scaler(other_, 512.0F);
  emulation::set_lazy_streams(true);
  ASSERT_GSC_OK(gsc_scaler_check(scaler_, list_, at_list_.get()));
  const DeviceBytes copy(sizeof(double));
  auto state = with_size<gsc_device_state>();
  ASSERT_GSC_OK(gsc_scaler_get_device_state(scaler_, list_, &state));
  ASSERT_EQ(cudaMemcpyAsync(copy.data(), state.grad_norm, sizeof(double), cudaMemcpyDeviceToDevice, at_list_),
            cudaSuccess);
  ASSERT_GSC_OK(gsc_scaler_discard(scaler_, nullptr));
  ASSERT_GSC_OK(gsc_scaler_check(second, list_, at_list_.get()));
  const Next next(there_);
  const Taken taken[] = {Taken(pools_[1], 1), Taken(pools_[0])};
  emulation::set_lazy_streams(false);
  double got = 0.0;
  copy_to_host(&got, copy.data(), sizeof got);
  EXPECT_EQ(got, norm);
}

/// Which was converting state that a load had staged.
TEST(Destruction, AFailedLoadKeepsItsStagedState) {
  cudaMemPool_t pool = make_pool();
  {
    const Context context = make_pooled_context(pool);
    gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    const Training full(context, 3, 1000, GSC_FP32, options);
    options.state_format = GSC_STATE_BITS16;
    const Training coded(context, 3, 1000, GSC_FP32, options);
    ASSERT_GSC_OK(full.step());
    const Image saved = saved_image(full.optimizer);
    gsc_tensor_list *state = nullptr;
    ASSERT_GSC_OK(gsc_optimizer_get_state(coded.optimizer, 0, &state, nullptr));
    const gsc_tensor first = tensor_at(state, 0);
    const auto bytes = [&] {
      Image image(1000 * 2);
      copy_to_host(image.data(), first.data, std::ssize(image));
      return image;
    };
    ASSERT_GSC_OK(load_image(coded.optimizer, saved));
    const Image expected = bytes();
    int failures = 0;
    for (int64_t failing = 0;; ++failing) {
      ASSERT_LT(failing, 1000);
      SCOPED_TRACE(failing);
      const DeviceStream stream(0);
      emulation::set_lazy_streams(true);
      emulation::fail_call(failing);
      const gsc_status status = gsc_optimizer_load_sync(coded.optimizer, saved.data(), std::ssize(saved), stream.get());
      const bool has_failed = emulation::failed_call() != nullptr;
      emulation::fail_call(-1);
      const Taken taken(pool);
      emulation::set_lazy_streams(false);
      EXPECT_EQ(bytes(), expected);
      if (!has_failed) {
        EXPECT_GT(failures, 20);
        break;
      }
      failures += status != GSC_OK ? 1 : 0;
    }
  }
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

}  // namespace
}  // namespace gsc_test
