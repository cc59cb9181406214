// SPDX-License-Identifier: Apache-2.0
//
// Properties of every operation of operations.cpp, on the emulated devices. Every runtime and driver call that it makes
// fails in turn: it then reports an error that names the call, restores the thread's context and capture mode, leaves
// no error behind in the runtime, and has done nothing or everything: a retry gives the same result as without the
// failure. Nothing leaks. It can be captured unless its name has _sync, and does not disturb another thread's capture.
#include "tests/cuda/operations.h"

#include <thread>

namespace gsc_test {
namespace {

class Pools {
 public:
  explicit Pools(bool there) { emulation::set_memory_pools(there); }
  Pools &operator=(Pools &&) = delete;
  ~Pools() { emulation::set_memory_pools(true); }
};

std::unique_ptr<World> prepared(const Operation &operation) {
  auto world = std::make_unique<World>();
  if (operation.prepare) {
    EXPECT_GSC_OK(operation.prepare(*world));
  }
  return world;
}

std::string name_of(const testing::TestParamInfo<Operation> &info) { return info.param.name; }

class FailingCalls : public testing::TestWithParam<Operation> {};

TEST_P(FailingCalls, EachInTurn) {
  const Operation &operation = GetParam();
  const Pools pools(operation.pools);
  const bool creates = std::string(operation.name).find("_create") != std::string::npos;
  std::vector<char> untouched, want;
  int64_t calls = 0;
  const Inventory at_first;
  {
    const auto world = prepared(operation);
    untouched = world->content();
    emulation::fail_call(-1);
    ASSERT_GSC_OK(operation.run(*world));
    calls = emulation::call_count();
    want = world->content();
  }
  EXPECT_EQ(Inventory(), at_first) << "without a failure";
  const CUctx_st *const current = emulation::current_context();
  for (int64_t i = 0; i < calls && !HasFailure(); ++i) {
    const Inventory before;
    bool frees_all = true;
    auto world = prepared(operation);
    const Inventory started;
    emulation::fail_call(i);
    const gsc_status status = operation.run(*world);
    const std::string failed = emulation::failed_call() != nullptr ? emulation::failed_call() : "";
    emulation::fail_call(-1);
    SCOPED_TRACE(text("call ", i, " of ", calls, ", ", failed));
    ASSERT_FALSE(failed.empty());
    EXPECT_EQ(emulation::current_context(), current);
    EXPECT_FALSE(emulation::is_capture_relaxed());
    EXPECT_EQ(emulation::take_last_error(), cudaSuccess) << "an error was left behind";
    if (status == GSC_OK) {  // a failure that is made up for, or one of tidying up
      EXPECT_TRUE(world->content() == want);
      frees_all = !failed.starts_with("cuCtx");  // without the context nothing can be freed
    } else {
      const bool at_the_door = failed == "cudaGetDeviceCount";
      EXPECT_TRUE(is_error(status, at_the_door ? GSC_ERROR_UNAVAILABLE : GSC_ERROR_DEVICE, {failed.c_str()}));
      if (creates) {
        Inventory now;
        now.bytes = started.bytes;  // freed by the next creation, or with the context
        EXPECT_EQ(now, started);
      }
      const bool is_half_done = operation.partly != nullptr && is_error(status, GSC_ERROR_DEVICE, {operation.partly});
      if (!is_half_done) {
        EXPECT_TRUE(world->content() == untouched) << "something was changed";
        EXPECT_GSC_OK(operation.run(*world)) << "tried again";
        EXPECT_TRUE(world->content() == want) << "what was done is not what is done without the failure";
      } else if (*operation.partly != '\0') {
        EXPECT_NE(operation.run(*world), GSC_OK) << "a part was done twice";
      }
    }
    world.reset();
    if (frees_all) {
      EXPECT_EQ(Inventory(), before);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FailingCalls, testing::ValuesIn(operations().begin(), operations().end()), name_of);

class Captures : public testing::TestWithParam<Operation> {};

/// A function waits if _sync is in its name, and what waits is refused. A conditional node's body takes kernels, not
/// memory.
TEST_P(Captures, TakeAllThatDoesNotWait) {
  const Operation &operation = GetParam();
  if (operation.allocates || !operation.pools) return;  // a capture may not allocate
  const auto world = prepared(operation);
  const int64_t waits = emulation::wait_count(), nodes = emulation::other_node_count();
  emulation::set_capturing(true);
  const gsc_status status = operation.run(*world);
  emulation::set_capturing(false);
  if (std::string(operation.name).find("_sync") != std::string::npos) {
    EXPECT_TRUE(is_error(status, GSC_ERROR_BAD_STATE, {"captured"}));
  } else {
    EXPECT_TRUE(is_ok(status));
    EXPECT_EQ(emulation::wait_count(), waits);
    EXPECT_EQ(emulation::other_node_count(), nodes);
  }
}

/// On a thread that has never used CUDA, and that is left so.
TEST_P(Captures, OfOtherThreadsAreNotDisturbed) {
  const Operation &operation = GetParam();
  if (std::string(operation.name) == "context_create_in_current") return;  // the thread has no context
  const Pools pools(operation.pools);
  const auto world = prepared(operation);
  const DeviceStream captured;
  const int64_t implicit_contexts = emulation::implicit_context_count();
  emulation::begin_capture(captured);
  std::thread([&] {
    EXPECT_GSC_OK(operation.run(*world));
    EXPECT_FALSE(emulation::is_capture_relaxed()) << "the thread's mode was not put back";
    EXPECT_EQ(emulation::current_context(), nullptr) << "a context was left current";
  }).join();
  EXPECT_TRUE(emulation::end_capture(captured));
  EXPECT_EQ(emulation::implicit_context_count(), implicit_contexts) << "CUDA chose a context by itself";
}

INSTANTIATE_TEST_SUITE_P(All, Captures, testing::ValuesIn(operations().begin(), operations().end()), name_of);

/// Fails call after call of `run`, from call `first` on, until it makes no more. `each` sees every failure; `again` is
/// run before each.
void fail_in_turn(const std::function<void()> &again, const std::function<gsc_status()> &run,
                  const std::function<void()> &each, int64_t first = 0) {
  for (int64_t i = first;; ++i) {
    ASSERT_LT(i, first + 100);
    again();
    emulation::fail_call(i);
    const gsc_status status = run();
    const bool has_failed = emulation::failed_call() != nullptr;
    emulation::fail_call(-1);
    if (!has_failed) {
      EXPECT_GT(i, first);
      EXPECT_GSC_OK(status);
      return;
    }
    SCOPED_TRACE(i);
    if (status != GSC_OK) each();
  }
}

/// Either all of a list's tensors are elsewhere or none, and the host agrees with the device.
TEST(FailingCalls, AListThatIsNotPointedElsewhereStaysWhereItIs) {
  const Context context = make_counted_context();
  constexpr int kTensors = 1000;  // three launches
  const int64_t bytes = kTensors * sizeof(float);
  const DeviceBytes before(bytes), after(bytes);
  const auto fill = [&](const DeviceBytes &memory, float value) {
    const std::vector<float> values(kTensors, value);
    copy_to_device(memory.data(), values.data(), bytes);
  };
  const auto addresses = [&](const DeviceBytes &memory) {
    std::vector<void *> result;
    for (int i = 0; i < kTensors; ++i) result.push_back(memory.data() + i * sizeof(float));
    return result;
  };
  const std::vector<void *> old_addresses = addresses(before), new_addresses = addresses(after);
  std::vector<gsc_tensor> tensors;
  for (void *address : old_addresses) tensors.push_back(GSC_TENSOR_INIT(address, 1, GSC_FP32));
  const List list = make_list(context, tensors);
  const Scaler scaler = make_scaler(context, 1.0f);
  fill(before, 2.0f);
  fill(after, 3.0f);
  int failures = 0;
  const auto norm = [&] {
    EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    const double result = report_of(scaler, list).grad_norm;
    EXPECT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
    return result;
  };
  fail_in_turn([] {}, [&] { return gsc_tensor_list_set_pointers(list, new_addresses.data(), kTensors, nullptr); },
               [&] {
                 ++failures;
                 EXPECT_EQ(norm(), std::sqrt(4.0 * kTensors));
                 gsc_tensor last{};
                 EXPECT_GSC_OK(gsc_tensor_list_get_tensor(list, kTensors - 1, &last));
                 EXPECT_EQ(last.data, old_addresses.back());
               },
               kTensors);  // after the look at each address
  EXPECT_GE(failures, 3);
  EXPECT_EQ(norm(), std::sqrt(9.0 * kTensors));
}

/// Its first launches add up what the last one concludes.
TEST(FailingCalls, AnUpdateOfManyListsChangesNoReport) {
  const Context context = make_counted_context();
  Twin twin(GSC_FP32, 1);
  twin.host().set(0, 1.0);
  twin.upload();
  const Scaler scaler = make_scaler(context, 1.0f);
  std::vector<List> lists;
  for (int i = 0; i < 1000; ++i) lists.push_back(make_list(context, {twin.device_tensor()}));
  int failures = 0;
  fail_in_turn(
      [&] {
        for (const List &list : lists) EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
      },
      [&] { return gsc_scaler_update(scaler, nullptr); },
      [&] {
        ++failures;
        const gsc_report report = report_of(scaler);
        EXPECT_EQ(report.updates, 0);
        EXPECT_EQ(report.grad_norm, 0.0);
        EXPECT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
      });
  EXPECT_GE(failures, 3);
  EXPECT_EQ(report_of(scaler).grad_norm, std::sqrt(1000.0));
}

/// The gradients have been written, and the ranks have been joined: nothing may go on from there.
TEST(FailingCalls, AnUnscaleThatFailsAfterTheReducerLosesTheList) {
  World w;
  const gsc_reducer reducer = {sizeof reducer, 0, all_reduce_alone, nullptr};
  ASSERT_GSC_OK(gsc_scaler_set_reducer(w.scaler, &reducer));
  int lost = 0;
  fail_in_turn([&] { EXPECT_GSC_OK(gsc_scaler_discard(w.scaler, nullptr)); },
               [&] { return gsc_scaler_unscale(w.scaler, w.grads, nullptr); },
               [&] {
                 if (std::string(gsc_error_get_message()).find("discard it") == std::string::npos) return;
                 ++lost;
                 EXPECT_BAD_STATE(gsc_scaler_unscale(w.scaler, w.grads, nullptr), "grads", "discard");
                 EXPECT_BAD_STATE(gsc_scaler_step(w.scaler, w.optimizer, nullptr), "discard");
                 EXPECT_BAD_STATE(gsc_scaler_update(w.scaler, nullptr), "discard");
               });
  EXPECT_GT(lost, 0);
}

TEST(FailingCalls, AHalfLoadedOptimizerWaitsForAnotherLoad) {
  World w;
  EXPECT_GSC_OK(w.training.step());
  const auto save = [&] { return gsc_optimizer_save_sync(w.optimizer, w.saved.data(), std::ssize(w.saved), nullptr); };
  const Image want = w.saved;
  emulation::fail_call(12);
  EXPECT_GSC_ERROR(load_image(w.optimizer, want), GSC_ERROR_DEVICE, "writing to the device failed");
  emulation::fail_call(-1);
  EXPECT_BAD_STATE(w.training.step(), "part of a checkpoint");
  EXPECT_BAD_STATE(gsc_scaler_step(w.scaler, w.optimizer, nullptr), "part of a checkpoint");
  // Nothing was checked: the next step must check the gradients of its iteration.
  EXPECT_BAD_STATE(gsc_scaler_update(w.scaler, nullptr), "no list was checked");
  EXPECT_BAD_STATE(save(), "load it again");
  EXPECT_GSC_OK(load_image(w.optimizer, want));
  EXPECT_GSC_OK(save());
  EXPECT_EQ(w.saved, want);
  EXPECT_GSC_OK(w.training.step());
}

/// Destruction cannot report errors; it frees what it can and restores the thread.
TEST(FailingCalls, OfDestruction) {
  int64_t calls = 0;
  for (int64_t i = -1; i < calls && !HasFailure(); ++i) {
    const Inventory before;
    auto world = std::make_unique<World>();
    EXPECT_GSC_OK(iteration_away(*world));
    EXPECT_GSC_OK(gsc_scaler_update(world->scaler, nullptr));
    const CUctx_st *const current = emulation::current_context();
    emulation::fail_call(i);
    world->training.destroy();
    world->away.destroy();
    world->context.reset();
    world->other.reset();
    if (i < 0) calls = emulation::call_count();
    const std::string failed = i < 0 ? "" : emulation::failed_call();
    emulation::fail_call(-1);
    world.reset();
    SCOPED_TRACE(text("call ", i, " of ", calls, ", ", failed));
    EXPECT_EQ(emulation::current_context(), current);
    EXPECT_FALSE(emulation::is_capture_relaxed());
    EXPECT_EQ(emulation::take_last_error(), cudaSuccess);
    EXPECT_EQ(host_memory.live, before.host);
    EXPECT_EQ(emulation::reference_count(emulation::primary_context(0)), before.references);
    if (!failed.starts_with("cuCtx")) {  // without the context nothing can be freed
      EXPECT_EQ(Inventory(), before);
    }
  }
}

}  // namespace
}  // namespace gsc_test
