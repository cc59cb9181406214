// SPDX-License-Identifier: Apache-2.0
//
// Memory: nothing is allocated in a step after the first one; every allocation that fails, by NULL, an exception or a
// wrong alignment of the caller's allocator or in operator new, ends in an error with nothing leaked, and the call can be
// repeated; and the plan of a list is small. Linked to the static library so that the operator new and malloc of
// memory_hooks.cpp are the library's too.
#include <set>

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
  Image checkpoint = Image(2000000);
  std::vector<gsc_tensor_diagnosis> diagnosis = std::vector<gsc_tensor_diagnosis>(4);
  void reset() {
    for (Buffer &buffer : params) buffer.fill(1.0);
    for (Buffer &buffer : grads) buffer.fill(0.5);
  }
};

#define CALL(...) call([&] { return __VA_ARGS__; })
// If it fails, the parameters must not have been touched.
#define STEP(...) call([&] { return __VA_ARGS__; }, true)

/// A session of a program's: every call of the ABI that may allocate, or that a training loop makes. A call that reports
/// `expected` is made again after the injection has been switched off (`fail_at` set to 0), and must then succeed.
/// operator new is counted only while the library runs, so that the test's own allocations are left alone.
class Session {
 public:
  Session(Data &data, const gsc_context_options &options, std::atomic<int64_t> &fail_at,
          gsc_status expected = GSC_ERROR_OUT_OF_MEMORY)
      : data_(data), options_(options), fail_at_(fail_at), expected_(expected) {
    for (size_t i = 0; i < 4; ++i) addresses_[i] = data_.g[i].data;
    before_ = data_.params[3].image();
  }
  ~Session() {
    gsc_scaler_destroy(scaler_);
    gsc_optimizer_destroy(optimizer_);
    for (gsc_tensor_list *list : {params_, grads_, copies_}) gsc_tensor_list_destroy(list);
    gsc_context_destroy(context_);
  }
  int failures() const { return failures_; }

  void create() {
    const char *const names[] = {"first.weight", "a name that is longer than any small-string buffer would hold",
                                 nullptr, "last"};
    CALL(gsc_context_create(&options_, &context_));
    CALL(gsc_tensor_list_create(context_, data_.p.data(), 4, nullptr, &params_));
    CALL(gsc_tensor_list_create(context_, data_.g.data(), 4, names, &grads_));
    CALL(gsc_tensor_list_create(context_, data_.c.data(), 4, nullptr, &copies_));
    gsc_optimizer_options lamb;
    CALL(gsc_optimizer_options_init(&lamb, sizeof lamb, GSC_LAMB));
    CALL(gsc_optimizer_create(context_, &lamb, params_, grads_, copies_, nullptr, 0, &optimizer_));
    CALL(gsc_optimizer_add_group(optimizer_, 0, 1, &lamb, nullptr));
    CALL(gsc_scaler_create(context_, nullptr, &scaler_));
  }

  void iterate() {
    const gsc_tensor *g = data_.g.data(), *c = data_.c.data();
    CALL(gsc_scaler_scale(scaler_, g, c, 4, nullptr));
    CALL(gsc_scaler_clip_grad_norm(scaler_, grads_, 1.0, GSC_NORM_L2, nullptr));
    CALL(gsc_scaler_clip_grad_value(scaler_, grads_, 0.5, nullptr));
    STEP(gsc_scaler_step(scaler_, optimizer_, nullptr));
    CALL(gsc_scaler_update(scaler_, nullptr));
    CALL(gsc_scaler_scale(scaler_, g, c, 4, nullptr));
    CALL(gsc_scaler_unscale(scaler_, grads_, nullptr));
    CALL(gsc_scaler_clip_grad_norm(scaler_, grads_, 1.0, GSC_NORM_INF, nullptr));
    CALL(gsc_scaler_clip_grad_value(scaler_, grads_, 0.5, nullptr));
    STEP(gsc_scaler_step_and_update(scaler_, optimizer_, nullptr));
    CALL(gsc_scaler_scale(scaler_, g, c, 4, nullptr));
    CALL(gsc_scaler_check_range(scaler_, grads_, 2, 2, nullptr));
    CALL(gsc_scaler_check_range(scaler_, grads_, 0, 2, nullptr));
    CALL(gsc_scaler_should_step_sync(scaler_, grads_, &apply_, nullptr));
    CALL(gsc_scaler_update(scaler_, nullptr));
    CALL(gsc_scaler_scale(scaler_, g, c, 4, nullptr));
    CALL(gsc_scaler_step_slice(scaler_, optimizer_, 300000, &left_, nullptr));
    CALL(gsc_scaler_step(scaler_, optimizer_, nullptr));
    CALL(gsc_scaler_update(scaler_, nullptr));
    CALL(gsc_scaler_scale(scaler_, g, c, 4, nullptr));
    CALL(gsc_scaler_check(scaler_, grads_, nullptr));
    CALL(gsc_scaler_discard(scaler_, nullptr));
    CALL(gsc_scaler_set_scale(scaler_, 8.0f, nullptr));
    STEP(gsc_optimizer_step(optimizer_, nullptr));
    STEP(gsc_optimizer_step_scaled(optimizer_, &word_, &found_inf_, nullptr));
    CALL(gsc_optimizer_zero_grads(optimizer_, nullptr));
    CALL(gsc_optimizer_set_lr(optimizer_, 0, 0.1, nullptr));
    // Another tensor is absent in each iteration.
    for (uint8_t &byte : present_) byte = (byte + 1) % 3;
    CALL(gsc_tensor_list_set_present(grads_, present_, nullptr, 4, nullptr));
    STEP(gsc_optimizer_step(optimizer_, nullptr));
    CALL(gsc_tensor_list_set_present(grads_, nullptr, addresses_, 4, nullptr));
    CALL(gsc_tensor_list_set_pointers(grads_, addresses_, 4, nullptr));
    CALL(gsc_scaler_get_report_sync(scaler_, grads_, &report_, nullptr));
    CALL(gsc_scaler_read_report_async(scaler_, nullptr, &report_, nullptr));
    CALL(gsc_scaler_get_history_sync(scaler_, history_, 4, &entries_, nullptr));
    CALL(gsc_scaler_get_state_sync(scaler_, &state_, nullptr));
    CALL(gsc_scaler_set_state(scaler_, &state_, nullptr));
    CALL(gsc_ops_unscale_check(context_, g, 4, &found_inf_, &word_, nullptr));
    CALL(gsc_ops_update_scale(context_, &word_, &tracker_, &found_inf_, 2.0, 0.5, 10, nullptr));
    CALL(gsc_ops_scale(context_, g, c, 4, &word_, nullptr));
    CALL(gsc_ops_axpby(context_, 1.0, g, 1.0, c, 4, nullptr));
    CALL(gsc_ops_cast(context_, g, c, 4, nullptr));
    CALL(gsc_ops_norm(context_, data_.p.data(), 4, GSC_NORM_L2, norms_, norms_ + 1, nullptr));
    const gsc_tensor full = GSC_TENSOR_INIT(values_, 64, GSC_FP32);
    gsc_tensor codes = GSC_TENSOR_INIT(codes_, 64, GSC_FP8_E4M3);
    codes.scale = codes_ + 64;
    codes.scale_dtype = GSC_FP8_E8M0;
    codes.scale_block_rows = 1;
    codes.scale_block_columns = 32;
    CALL(gsc_ops_convert_state(context_, &full, nullptr, &codes, 1, nullptr));
    CALL(gsc_ops_convert_state(context_, &codes, nullptr, &full, 1, nullptr));
  }

  void run() {
    create();
    iterate();
    int64_t size = 0;
    CALL(gsc_optimizer_get_save_size(optimizer_, &size));
    CALL(gsc_optimizer_save_sync(optimizer_, data_.checkpoint.data(), size, nullptr));
    CALL(gsc_optimizer_load_sync(optimizer_, data_.checkpoint.data(), size, nullptr));
    CALL(gsc_tensor_list_diagnose_sync(grads_, data_.diagnosis.data(), nullptr, 4, nullptr));
  }

 private:
  template <typename Function>
  void call(const Function &function, bool steps = false) {
    if (steps) std::memcpy(before_.data(), data_.params[3].data(), before_.size());
    g_new.armed = true;
    const gsc_status status = function();
    g_new.armed = false;
    if (status == GSC_OK) return;
    ++failures_;
    EXPECT_EQ(status, expected_) << gsc_error_get_message();
    if (steps) {
      EXPECT_EQ(data_.params[3].image(), before_);
    }
    fail_at_ = 0;
    EXPECT_GSC_OK(function());
  }

  Data &data_;
  gsc_context_options options_;
  std::atomic<int64_t> &fail_at_;
  gsc_status expected_;
  gsc_context *context_ = nullptr;
  gsc_tensor_list *params_ = nullptr, *grads_ = nullptr, *copies_ = nullptr;
  gsc_optimizer *optimizer_ = nullptr;
  gsc_scaler *scaler_ = nullptr;
  int failures_ = 0;
  Image before_;
  uint8_t present_[4] = {0, 1, 2, 0};
  void *addresses_[4];
  float word_ = 0.5f, found_inf_ = 0.0f;
  int32_t tracker_ = 0, apply_ = 0;
  int64_t left_ = 0, entries_ = 0;
  double norms_[5];
  float values_[64] = {};
  uint8_t codes_[66] = {};  ///< and their scales
  gsc_report report_ = with_size<gsc_report>();
  gsc_scaler_state state_ = with_size<gsc_scaler_state>();
  gsc_history_entry history_[4];
};

void expect_failures(Fault fault, gsc_status expected) {
  Data data;
  Image trained;
  for (int64_t site = 0;; ++site) {
    Allocator allocator;
    allocator.fault = fault;
    allocator.fail_at = site;
    data.reset();
    int failures = 0;
    {
      Session session(data, allocator.options(2), allocator.fail_at, expected);
      session.run();
      failures = session.failures();
    }
    ASSERT_EQ(allocator.live, 0) << "leaked after a failure at allocation " << site;
    ASSERT_EQ(allocator.bytes, 0);
    ASSERT_FALSE(allocator.misused) << "a block came back with another size, or was asked for badly";
    if (site == 0) {
      ASSERT_EQ(failures, 0);
      ASSERT_GT(allocator.calls, 10);
      trained = data.params[3].image();
      continue;
    }
    ASSERT_EQ(data.params[3].image(), trained) << "after a failure at allocation " << site;
    if (failures == 0) break;
    ASSERT_EQ(failures, 1) << site;
    ASSERT_LT(site, 10000);
  }
}

TEST(AllocationFailure, AtEverySiteOfTheCallersAllocator) {
  expect_failures(Fault::kNull, GSC_ERROR_OUT_OF_MEMORY);
  expect_failures(Fault::kBadAlloc, GSC_ERROR_OUT_OF_MEMORY);
  expect_failures(Fault::kException, GSC_ERROR_CALLBACK);
  expect_failures(Fault::kNumber, GSC_ERROR_CALLBACK);
  expect_failures(Fault::kMisaligned, GSC_ERROR_CALLBACK);
}

TEST(AllocationFailure, ExceptionsOfAReleaseAreDropped) {
  Data data;
  data.reset();
  Allocator allocator;
  allocator.throws_on_release = true;
  {
    Session session(data, allocator.options(2), allocator.fail_at);
    session.run();
    EXPECT_EQ(session.failures(), 0);
  }
  EXPECT_EQ(allocator.live, 0);
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
    const gsc_status status = gsc_optimizer_create(context, nullptr, params, grads, nullptr, nullptr, 0, &optimizer);
    allocator.fail_at = 0;
    ASSERT_GSC_OK(gsc_scaler_check(scaler, grads, nullptr));
    ASSERT_EQ(report_of(scaler, grads).nonfinite_count, status == GSC_OK ? 4 : 0) << failures;
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    gsc_optimizer_destroy(status == GSC_OK ? optimizer : nullptr);
  }
  EXPECT_GT(failures, 3);
}

/// Makes a call fail at each of its allocations, which changes nothing, until it succeeds. Returns the number of failures.
int fail_at_each_allocation(Allocator &allocator, const std::function<gsc_status()> &call,
                            const std::function<void()> &expect_nothing_changed) {
  for (int failures = 0;; ++failures) {
    allocator.fail_at = allocator.calls + failures + 1;
    const gsc_status status = call();
    allocator.fail_at = 0;
    if (status == GSC_OK) return failures;
    EXPECT_EQ(status, GSC_ERROR_OUT_OF_MEMORY) << gsc_error_get_message();
    expect_nothing_changed();
    if (testing::Test::HasFailure()) return failures;
  }
}

/// A step that begins to count the steps of each tensor allocates before it checks, and a load before it writes.
TEST(AllocationFailure, LeavesTheOptimizerAsItWas) {
  Allocator allocator;
  const Context context = make_context(allocator.options(1));
  Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {40, 7}});
  const Scaler scaler = make_scaler(context, 8.0f);
  trainer.fill_grads(8.0);
  ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
  const Image saved = saved_image(trainer);
  const uint8_t present[] = {0, 1};
  ASSERT_GSC_OK(gsc_tensor_list_set_present(trainer.grad_list(), present, nullptr, 2, nullptr));

  const gsc_report report = report_of(scaler, trainer.grad_list());
  const auto expect_no_check = [&] {
    EXPECT_EQ(gsc_scaler_update(scaler, nullptr), GSC_ERROR_BAD_STATE);
    const gsc_report now = report_of(scaler, trainer.grad_list());
    EXPECT_EQ(now.grad_norm, report.grad_norm);
    EXPECT_EQ(saved_image(trainer), saved);
  };
  trainer.fill_grads(16.0);
  const auto step = [&] { return gsc_scaler_step_and_update(scaler, trainer, nullptr); };
  EXPECT_GT(fail_at_each_allocation(allocator, step, expect_no_check), 0);

  const Image counted = saved_image(trainer);
  const auto load = [&] { return load_image(trainer, saved); };
  const auto expect_no_load = [&] { EXPECT_EQ(saved_image(trainer), counted); };
  EXPECT_GT(fail_at_each_allocation(allocator, load, expect_no_load), 0);
}

/// The message says how much memory was asked for, and for what if it is much.
TEST(AllocationFailure, NamesTheSize) {
  for (const bool is_own : {false, true}) {
    Allocator allocator;
    gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
    options.num_threads = 1;
    const Context context = make_context(is_own ? options : allocator.options(1));
    Buffer param(GSC_FP32, 1000), grad(GSC_FP32, 1000);
    const List params = make_list(context, param), grads = make_list(context, grad);
    std::set<std::string> messages;
    for (gsc_optimizer *optimizer = nullptr; optimizer == nullptr;) {
      const auto next = static_cast<int64_t>(messages.size()) + 1;
      (is_own ? g_new.fail_at : allocator.fail_at) = is_own ? next : allocator.calls + next;
      g_new.calls = 0;
      g_new.armed = is_own;
      gsc_optimizer_create(context, nullptr, params, grads, nullptr, nullptr, 0, &optimizer);
      g_new.armed = false;
      g_new.fail_at = allocator.fail_at = 0;
      if (optimizer == nullptr) messages.insert(text(messages.size(), gsc_error_get_message()));
      gsc_optimizer_destroy(optimizer);
    }
    std::set<std::string> slots;
    for (const std::string &message : messages) {
      EXPECT_NE(message.find("bytes of host memory failed"), std::string::npos) << message;
      for (const char *slot : {"\"exp_avg\"", "\"exp_avg_sq\""}) {
        if (message.find(text("the state ", slot, ": allocation of ")) != std::string::npos) slots.insert(slot);
      }
    }
    EXPECT_EQ(slots.size(), 2U);
  }
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
    Session session(data, allocator.options(threads), allocator.fail_at);
    session.create();
    session.iterate();
    const auto iterations = [&] {
      for (int i = 0; i < 3; ++i) session.iterate();
    };
    EXPECT_EQ(allocations_of(allocator, iterations), 0) << threads << " threads";
    data.grads[3].set(69999, kInf);
    EXPECT_EQ(allocations_of(allocator, iterations), 0) << "with skipped steps";
    EXPECT_EQ(session.failures(), 0);
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
  const auto iteration = [&] {
    worst = std::max({worst, gsc_scaler_check(scaler, grads, nullptr), gsc_scaler_discard(scaler, nullptr),
                      gsc_scaler_step(scaler, optimizer, nullptr), gsc_scaler_update(scaler, nullptr)});
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
  EXPECT_EQ(gsc_tensor_list_create(context, bad.data(), 4, nullptr, &list), GSC_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(gsc_scaler_update(scaler, nullptr), GSC_ERROR_BAD_STATE);
  EXPECT_EQ(gsc_scaler_check_range(scaler, grads, 3, 9, nullptr), GSC_ERROR_INVALID_ARGUMENT);
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
          const uintptr_t address = 0x100000000000 + i * (bytes + 64) / 64 * 64;
          plan.push_back(GSC_TENSOR_INIT(reinterpret_cast<void *>(address), count, dtype));
        }
        const int64_t before = allocator.bytes;
        const List list = make_list(context, plan);
        const int64_t overhead = allocator.bytes - before;
        // The object itself costs about 0.6 KiB however much it describes.
        EXPECT_LT(overhead, 1152.0 + 0.001 * (tensors * bytes))
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
  const Scaler scaler = make_scaler(context, scaler_options());
  for (int i = 0; i < 100; ++i) {
    ASSERT_GSC_OK(gsc_scaler_check(scaler, grads, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
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
    ASSERT_GSC_OK(gsc_context_get_memory(context, &host, &device));
    // The backend and the context are among them.
    EXPECT_EQ(host, allocator.bytes);
    EXPECT_EQ(device, 0);
  }
  EXPECT_EQ(allocator.live, 0);
  EXPECT_EQ(allocator.bytes, 0);
}

}  // namespace
}  // namespace gsc_test
