// SPDX-License-Identifier: Apache-2.0
//
// Memory: nothing is allocated in a step after the first one; every allocation that fails, in the caller's allocator
// or in operator new, ends in OUT_OF_MEMORY with nothing leaked and the call can be repeated; and the plan of a list
// is small. Linked to the static library so that the operator new and malloc of memory_hooks.cpp are the library's too.
#include <functional>

#include "memory_hooks.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

/// Buffers of a small training loop, made once so that the library's allocations are the only ones counted.
struct Data {
  std::vector<Buffer> params = make_buffers(GSC_FP32, {5000, 0, 3, 70000});
  std::vector<Buffer> grads = make_buffers(GSC_FP16, {5000, 0, 3, 70000});
  std::vector<Buffer> copies = make_buffers(GSC_BF16, {5000, 0, 3, 70000});
  std::vector<gsc_tensor> p = tensors_of(params), g = tensors_of(grads), c = tensors_of(copies);
  std::vector<unsigned char> checkpoint = std::vector<unsigned char>(2000000);
  std::vector<gsc_tensor_diagnosis> diagnosis = std::vector<gsc_tensor_diagnosis>(4);
  void reset() {
    for (Buffer &buffer : params) buffer.fill(1.0);
    for (Buffer &buffer : grads) buffer.fill(0.5);
  }
};

/// Every call of the ABI that may allocate, in one session. A call that reports OUT_OF_MEMORY is made again after the
/// injection has been switched off (`fail_at` set to 0), and must then succeed. operator new is counted only while the
/// library runs, so that the test's own allocations are left alone.
class Session {
 public:
  Session(Data &data, const gsc_context_options &options, std::atomic<int64_t> &fail_at)
      : data_(data), options_(options), fail_at_(fail_at) {}
  ~Session() {
    gsc_scaler_destroy(scaler_);
    gsc_optimizer_destroy(optimizer_);
    for (gsc_tensor_list *list : {params_, grads_, copies_}) gsc_tensor_list_destroy(list);
    gsc_context_destroy(context_);
  }
  int failures() const { return failures_; }

  void run() {
    const char *const names[] = {"first.weight", "a name that is longer than any small-string buffer would hold",
                                 nullptr, "last"};
    call([&] { return gsc_context_create(&options_, &context_); });
    call([&] { return gsc_tensor_list_create(context_, data_.p.data(), 4, nullptr, &params_); });
    call([&] { return gsc_tensor_list_create(context_, data_.g.data(), 4, names, &grads_); });
    call([&] { return gsc_tensor_list_create(context_, data_.c.data(), 4, nullptr, &copies_); });
    gsc_optimizer_options adam;
    call([&] { return gsc_optimizer_options_init(&adam, sizeof adam, GSC_ADAMW); });
    call([&] { return gsc_optimizer_create(context_, &adam, params_, grads_, copies_, nullptr, 0, &optimizer_); });
    call([&] { return gsc_optimizer_add_group(optimizer_, 0, 1, &adam, nullptr); });
    call([&] { return gsc_scaler_create(context_, nullptr, &scaler_); });
    void *pointers[4];
    for (size_t i = 0; i < 4; ++i) pointers[i] = data_.g[i].data;
    call([&] { return gsc_tensor_list_set_pointers(grads_, pointers, 4, nullptr); });
    const uint8_t present[] = {0, 1, 1, 1};
    call([&] { return gsc_tensor_list_set_present(grads_, present, pointers, 4, nullptr); });
    call([&] { return gsc_scaler_check_range(scaler_, grads_, 1, 2, nullptr); });
    call([&] { return gsc_scaler_clip_grad_norm(scaler_, grads_, 1.0, GSC_NORM_L2, nullptr); });
    iteration([&] { return gsc_scaler_step(scaler_, optimizer_, nullptr); });
    call([&] { return gsc_scaler_update(scaler_, nullptr); });
    call([&] { return gsc_scaler_unscale(scaler_, grads_, nullptr); });
    iteration([&] { return gsc_scaler_step_and_update(scaler_, optimizer_, nullptr); });
    call([&] { return gsc_optimizer_step(optimizer_, nullptr); });
    int64_t size = 0;
    call([&] { return gsc_optimizer_get_save_size(optimizer_, &size); });
    call([&] { return gsc_optimizer_save_sync(optimizer_, data_.checkpoint.data(), size, nullptr); });
    call([&] { return gsc_optimizer_load_sync(optimizer_, data_.checkpoint.data(), size, nullptr); });
    call([&] { return gsc_tensor_list_diagnose_sync(grads_, data_.diagnosis.data(), nullptr, 4, nullptr); });
    auto report = with_size<gsc_report>();
    call([&] { return gsc_scaler_get_report_sync(scaler_, grads_, &report, nullptr); });
    float factor = 0.5f;
    double norm = 0.0;
    call([&] { return gsc_ops_scale(context_, data_.g.data(), data_.c.data(), 4, &factor, nullptr); });
    call([&] { return gsc_ops_norm(context_, data_.p.data(), 4, GSC_NORM_L2, &norm, nullptr, nullptr); });
    call([&] { return gsc_ops_axpby(context_, 1.0, data_.g.data(), 1.0, data_.c.data(), 4, nullptr); });
  }

 private:
  template <typename Function>
  static gsc_status armed(const Function &function) {
    g_new.armed = true;
    const gsc_status status = function();
    g_new.armed = false;
    return status;
  }
  template <typename Function>
  void call(const Function &function) {
    const gsc_status status = armed(function);
    if (status == GSC_OK) return;
    ++failures_;
    EXPECT_EQ(status, GSC_ERROR_OUT_OF_MEMORY) << gsc_error_get_message();
    fail_at_ = 0;
    EXPECT_GSC_OK(function());
  }
  /// A call that steps: if it fails, the parameters must not have been touched.
  template <typename Function>
  void iteration(const Function &step) {
    const std::vector<unsigned char> before = data_.params[3].image();
    const gsc_status status = armed(step);
    if (status == GSC_OK) return;
    ++failures_;
    EXPECT_EQ(status, GSC_ERROR_OUT_OF_MEMORY) << gsc_error_get_message();
    EXPECT_EQ(data_.params[3].image(), before);
    fail_at_ = 0;
    EXPECT_GSC_OK(step());
  }

  Data &data_;
  gsc_context_options options_;
  std::atomic<int64_t> &fail_at_;
  gsc_context *context_ = nullptr;
  gsc_tensor_list *params_ = nullptr, *grads_ = nullptr, *copies_ = nullptr;
  gsc_optimizer *optimizer_ = nullptr;
  gsc_scaler *scaler_ = nullptr;
  int failures_ = 0;
};

TEST(AllocationFailure, AtEverySiteOfTheCallersAllocator) {
  Data data;
  data.reset();
  std::vector<unsigned char> expected;
  for (int64_t site = 0;; ++site) {
    Allocator allocator;
    allocator.fail_at = site;
    data.reset();
    int failures = 0;
    {
      Session session(data, allocator.options(2), allocator.fail_at);
      session.run();
      failures = session.failures();
    }
    ASSERT_EQ(allocator.live, 0) << "leaked after a failure at allocation " << site;
    ASSERT_EQ(allocator.bytes, 0);
    ASSERT_FALSE(allocator.misused) << "a block came back with another size, or was asked for badly";
    if (site == 0) {
      ASSERT_EQ(failures, 0);
      ASSERT_GT(allocator.calls, 10);
      expected = data.params[3].image();
      continue;
    }
    ASSERT_EQ(data.params[3].image(), expected) << "after a failure at allocation " << site;
    if (failures == 0) break;
    ASSERT_EQ(failures, 1) << site;
    ASSERT_LT(site, 10000);
  }
}

TEST(AllocationFailure, AtEverySiteOfOperatorNew) {
  Data data;
  for (const bool own_allocator : {false, true}) {
    for (int64_t site = 1;; ++site) {
      Allocator allocator;
      data.reset();
      gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
      options.num_threads = 2;
      int failures = 0;
      bool reached = false;
      const int64_t live = g_new.live;
      {
        Session session(data, own_allocator ? allocator.options(2) : options, g_new.fail_at);
        g_new.calls = 0;
        g_new.fail_at = site;
        session.run();
        reached = g_new.calls >= site;
        failures = session.failures();
      }
      g_new.fail_at = 0;
      ASSERT_EQ(g_new.live, live) << "leaked after a failure at allocation " << site;
      ASSERT_EQ(allocator.live, 0);
      ASSERT_LE(failures, 1);
      if (!reached) break;
      ASSERT_LT(site, 10000);
    }
  }
}

/// fp64 gradients of smaller parameters overflow where fp32 does, but only once their optimizer exists.
TEST(AllocationFailure, LeavesTheListsOfAnOptimizerAsTheyWere) {
  Buffer param(GSC_FP32, 4), grad(GSC_FP64, 4);
  grad.fill(1e100);
  Allocator allocator;
  const Context context = make_context(allocator.options(1));
  const List params = make_list(context, param), grads = make_list(context, grad);
  const Scaler scaler = make_scaler(context, 1.0f);
  int failures = 0;
  for (gsc_optimizer *optimizer = nullptr; optimizer == nullptr; ++failures) {
    allocator.fail_at = allocator.calls + failures + 1;
    const gsc_status status =
        gsc_optimizer_create(context.get(), nullptr, params.get(), grads.get(), nullptr, nullptr, 0, &optimizer);
    allocator.fail_at = 0;
    ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), grads.get(), nullptr));
    ASSERT_EQ(report_of(scaler, grads.get()).nonfinite_count, status == GSC_OK ? 4 : 0) << failures;
    ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
    gsc_optimizer_destroy(status == GSC_OK ? optimizer : nullptr);
  }
  EXPECT_GT(failures, 3);
}

/// Counts what `work` allocates by any of the three ways.
int64_t allocations_of(Allocator &allocator, const std::function<void()> &work) {
  const int64_t before = allocator.calls;
  g_new.calls = 0;
  g_new.armed = true;
  g_malloc.calls = 0;
  g_malloc.counting = true;
  work();
  g_malloc.counting = false;
  g_new.armed = false;
  return allocator.calls - before + g_new.calls + g_malloc.calls;
}

TEST(Allocations, NoneAfterTheFirstIteration) {
  for (const int32_t threads : {1, 3}) {
    Allocator allocator;
    Data data;
    data.reset();
    const Context context = make_context(allocator.options(threads));
    const List params = make_list(context, data.p), grads = make_list(context, data.g),
               copies = make_list(context, data.c);
    const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_LAMB), params, grads, copies);
    const Scaler scaler = make_scaler(context, 4.0f);
    gsc_scaler *const s = scaler.get();
    gsc_tensor_list *const g = grads.get();
    float word = 0.5f, found_inf = 0.0f;
    int32_t tracker = 0, apply = 0;
    double norms[5];
    auto report = with_size<gsc_report>();
    gsc_history_entry history[4];
    int64_t entries = 0;
    auto state = with_size<gsc_scaler_state>();
    uint8_t present[] = {0, 1, 2, 0};
    void *addresses[4];
    for (size_t i = 0; i < 4; ++i) addresses[i] = data.g[i].data;
    gsc_status worst = GSC_OK;
    const auto run = [&](std::initializer_list<gsc_status> results) {
      for (const gsc_status status : results) worst = std::max(worst, status);
    };
    int64_t left = 0;
    const std::function<void()> iteration = [&] {
      run({gsc_scaler_clip_grad_norm(s, g, 1.0, GSC_NORM_L2, nullptr), gsc_scaler_clip_grad_value(s, g, 0.5, nullptr),
           gsc_scaler_step(s, optimizer.get(), nullptr), gsc_scaler_update(s, nullptr)});
      run({gsc_scaler_unscale(s, g, nullptr), gsc_scaler_clip_grad_norm(s, g, 1.0, GSC_NORM_INF, nullptr),
           gsc_scaler_clip_grad_value(s, g, 0.5, nullptr), gsc_scaler_step_and_update(s, optimizer.get(), nullptr)});
      run({gsc_scaler_check_range(s, g, 2, 2, nullptr), gsc_scaler_check_range(s, g, 0, 2, nullptr),
           gsc_scaler_should_step_sync(s, g, &apply, nullptr), gsc_scaler_update(s, nullptr)});
      run({gsc_scaler_step_slice(s, optimizer.get(), 300000, &left, nullptr),
           gsc_scaler_step(s, optimizer.get(), nullptr), gsc_scaler_update(s, nullptr)});
      run({gsc_scaler_check(s, g, nullptr), gsc_scaler_discard(s, nullptr), gsc_scaler_set_scale(s, 8.0f, nullptr),
           gsc_optimizer_step(optimizer.get(), nullptr),
           gsc_optimizer_step_scaled(optimizer.get(), &word, &found_inf, nullptr),
           gsc_optimizer_zero_grads(optimizer.get(), nullptr), gsc_optimizer_set_lr(optimizer.get(), 0, 0.1, nullptr)});
      // Another tensor is absent in each iteration.
      for (uint8_t &byte : present) byte = static_cast<uint8_t>((byte + 1) % 3);
      run({gsc_tensor_list_set_present(g, present, nullptr, 4, nullptr), gsc_optimizer_step(optimizer.get(), nullptr),
           gsc_tensor_list_set_present(g, nullptr, addresses, 4, nullptr),
           gsc_tensor_list_set_pointers(g, addresses, 4, nullptr)});
      run({gsc_scaler_get_report_sync(s, g, &report, nullptr),
           gsc_scaler_read_report_async(s, nullptr, &report, nullptr),
           gsc_scaler_get_history_sync(s, history, 4, &entries, nullptr), gsc_scaler_get_state_sync(s, &state, nullptr),
           gsc_scaler_set_state(s, &state, nullptr)});
      run({gsc_scaler_scale(s, data.g.data(), data.c.data(), 4, nullptr),
           gsc_ops_unscale_check(context.get(), data.g.data(), 4, &found_inf, &word, nullptr),
           gsc_ops_update_scale(context.get(), &word, &tracker, &found_inf, 2.0, 0.5, 10, nullptr),
           gsc_ops_scale(context.get(), data.g.data(), data.c.data(), 4, &word, nullptr),
           gsc_ops_axpby(context.get(), 1.0, data.g.data(), 1.0, data.c.data(), 4, nullptr),
           gsc_ops_cast(context.get(), data.g.data(), data.c.data(), 4, nullptr),
           gsc_ops_norm(context.get(), data.p.data(), 4, GSC_NORM_L2, norms, norms + 1, nullptr)});
    };
    iteration();
    EXPECT_EQ(worst, GSC_OK) << gsc_error_get_message();
    EXPECT_EQ(allocations_of(allocator,
                             [&] {
                               for (int i = 0; i < 3; ++i) iteration();
                             }),
              0)
        << threads << " threads";
    EXPECT_EQ(worst, GSC_OK) << gsc_error_get_message();
    data.grads[3].set(69999, kInf);
    EXPECT_EQ(allocations_of(allocator, [&] { run({gsc_scaler_step_and_update(s, optimizer.get(), nullptr)}); }), 0)
        << "a skipped step";
  }
}

TEST(Allocations, NoneWithAListOfAnotherDevice) {
  Allocator allocator;
  Data data;
  data.reset();
  const Context context = make_context(allocator.options(1));
  const Context home = make_context();
  const List params = make_list(context, data.p), grads = make_list(context, data.g);
  const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_ADAMW), params, grads);
  const Scaler scaler = make_scaler(home, 4.0f);
  gsc_status worst = GSC_OK;
  const std::function<void()> iteration = [&] {
    worst = std::max(
        {worst, gsc_scaler_check(scaler.get(), grads.get(), nullptr), gsc_scaler_discard(scaler.get(), nullptr),
         gsc_scaler_step(scaler.get(), optimizer.get(), nullptr), gsc_scaler_update(scaler.get(), nullptr)});
  };
  iteration();
  EXPECT_EQ(allocations_of(allocator, iteration), 0);
  EXPECT_EQ(worst, GSC_OK) << gsc_error_get_message();
}

TEST(Allocations, RefusedCallsDoNotAllocate) {
  Allocator allocator;
  Data data;
  const Context context = make_context(allocator.options(1));
  const List grads = make_list(context, data.g);
  const Scaler scaler = make_scaler(context, 4.0f);
  const int64_t live = allocator.live;
  gsc_tensor_list *list = nullptr;
  std::vector<gsc_tensor> bad = data.g;
  bad[3].dtype = 0;
  EXPECT_EQ(gsc_tensor_list_create(context.get(), bad.data(), 4, nullptr, &list), GSC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(gsc_scaler_update(scaler.get(), nullptr), GSC_ERROR_BAD_STATE);
  EXPECT_EQ(gsc_scaler_check_range(scaler.get(), grads.get(), 3, 9, nullptr), GSC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(allocator.live, live) << "nothing is left behind by a refused call";
}

/// The plan of tensors above 64 Ki elements stays under a thousandth of the data it describes. Creating a list does not
/// touch the buffers, so addresses are enough.
TEST(Allocations, PlanIsSmall) {
  for (const int32_t dtype : kAllDtypes) {
    for (const int64_t count : {int64_t{65537}, int64_t{200001}, int64_t{1} << 20, int64_t{1} << 26}) {
      for (const int64_t tensors : {16, 300}) {
        Allocator allocator;
        const Context context = make_context(allocator.options(2));
        std::vector<gsc_tensor> plan;
        const int64_t bytes = count * dtype_size(dtype);
        for (int64_t i = 0; i < tensors; ++i) {
          const auto address = static_cast<uintptr_t>(0x100000000000 + i * (bytes + 64) / 64 * 64);
          plan.push_back(GSC_TENSOR_INIT(reinterpret_cast<void *>(address), count, dtype));
        }
        const int64_t before = allocator.bytes;
        const List list = make_list(context, plan);
        const int64_t overhead = allocator.bytes - before;
        // The object itself costs about half a KiB however much it describes.
        EXPECT_LT(static_cast<double>(overhead), 1024.0 + 0.001 * static_cast<double>(tensors * bytes))
            << tensors << " x " << count << ' ' << dtype_name(dtype) << ": " << overhead << " bytes";
      }
    }
  }
}

/// Programs make thousands of scalers, one for each model or trial. The caller's allocator sees all of a scaler, with its
/// history and what an iteration adds.
TEST(Allocations, AScalerIsSmall) {
  Allocator allocator;
  Data data;
  const Context context = make_context(allocator.options(1));
  const List grads = make_list(context, data.g);
  const int64_t before = allocator.bytes;
  gsc_scaler *made = nullptr;
  ASSERT_GSC_OK(gsc_scaler_create(context.get(), nullptr, &made));
  const Scaler scaler(made);
  for (int i = 0; i < 100; ++i) {
    ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), grads.get(), nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
  }
  EXPECT_LT(allocator.bytes - before, 2048);
}

TEST(CustomAllocator, HoldsWhatTheLibraryKeeps) {
  Allocator allocator;
  Data data;
  data.reset();
  {
    const Context context = make_context(allocator.options(1));
    const List params = make_list(context, data.p), grads = make_list(context, data.g);
    const int64_t before = allocator.bytes;
    const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_ADAMW), params, grads);
    // Two fp32 slots of 75003 elements.
    EXPECT_GE(allocator.bytes - before, 2 * 4 * 75003);
    int64_t host = 0, device = -1;
    ASSERT_GSC_OK(gsc_context_get_memory(context.get(), &host, &device));
    // The backend and the context are among them.
    EXPECT_EQ(host, allocator.bytes);
    EXPECT_EQ(device, 0);
  }
  EXPECT_EQ(allocator.live, 0);
  EXPECT_EQ(allocator.bytes, 0);
}

}  // namespace
}  // namespace gsc_test
