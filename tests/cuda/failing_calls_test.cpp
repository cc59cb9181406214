// SPDX-License-Identifier: Apache-2.0
//
// Every runtime and driver call that an operation makes fails in turn, on the emulated devices. The operation then
// reports an error that names the call, restores the thread's context and capture mode, leaves no error behind in the
// runtime, and has done nothing or everything: a retry gives the same result as without the failure. Nothing leaks.
#include "tests/cuda/failing_world.h"

namespace gsc_test {
namespace {

class Pools {
 public:
  explicit Pools(bool there) { emulation::set_memory_pools(there); }
  Pools(const Pools &) = delete;
  Pools &operator=(const Pools &) = delete;
  ~Pools() { emulation::set_memory_pools(true); }
};

class FailingCalls : public ::testing::TestWithParam<Operation> {};

TEST_P(FailingCalls, EachInTurn) {
  const Operation &operation = GetParam();
  const Pools pools(operation.pools);
  const auto prepared = [&] {
    auto world = std::make_unique<World>();
    if (operation.prepare) operation.prepare(*world);
    return world;
  };
  std::vector<char> untouched, want;
  int64_t calls = 0;
  {
    const auto world = prepared();
    untouched = world->content();
    emulation::fail_call(-1);
    ASSERT_GSC_OK(operation.run(*world));
    calls = emulation::call_count();
    want = world->content();
  }
  const CUctx_st *const current = emulation::current_context();
  for (int64_t i = 0; i < calls && !HasFailure(); ++i) {
    const Inventory before;
    bool frees_all = true;
    auto world = prepared();
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
      frees_all = failed.rfind("cuCtx", 0) != 0;  // without the context nothing can be freed
    } else {
      const bool at_the_door = failed == "cudaGetDeviceCount";
      EXPECT_TRUE(is_error(status, at_the_door ? GSC_ERROR_UNAVAILABLE : GSC_ERROR_DEVICE, {failed.c_str()}));
      if (operation.creates) {
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

INSTANTIATE_TEST_SUITE_P(All, FailingCalls,
                         ::testing::ValuesIn(failing_operations().begin(), failing_operations().end()),
                         [](const auto &info) { return std::string(info.param.name); });

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

/// Three tensors of gradients that are 1.0 once unscaled, on an emulated device, and SGD of rate 1.
struct Simple {
  Simple() {
    gsc_optimizer_options options = optimizer_options(GSC_SGD);
    options.lr = 1.0;
    for (int i = 0; i < 3; ++i) {
      p.emplace_back(GSC_FP32, 50);
      g.emplace_back(GSC_FP32, 50);
    }
    grads = make_list(context, device_tensors(g));
    params = make_list(context, device_tensors(p));
    optimizer = make_optimizer(context, options, params, grads);
    scaler = make_scaler(context, 4.0f);
  }
  void fill(int tensor, double value) {
    Twin &twin = g[static_cast<size_t>(tensor)];
    std::vector<float> values(50, static_cast<float>(value));
    copy_to_device(twin.device_tensor().data, values.data(), 200);
  }
  void restart() {
    EXPECT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
    for (int i = 0; i < 3; ++i) {
      fill(i, 4.0);
      std::vector<float> zeros(50);
      copy_to_device(p[static_cast<size_t>(i)].device_tensor().data, zeros.data(), 200);
    }
  }
  float param(int tensor) {
    float value = 0.0f;
    copy_to_host(&value, p[static_cast<size_t>(tensor)].device_tensor().data, sizeof value);
    return value;
  }
  Context context = make_counted_context();
  Twins p, g;
  List params, grads;
  Optimizer optimizer;
  Scaler scaler;
};

TEST(FailingCalls, AStepTriedAgainStillLooksAtEveryTensor) {
  Simple s;
  fail_in_turn(
      [&] {
        s.restart();
        s.fill(2, kInf);
        EXPECT_GSC_OK(gsc_scaler_check_range(s.scaler.get(), s.grads.get(), 1, 1, nullptr));
      },
      [&] { return gsc_scaler_step(s.scaler.get(), s.optimizer.get(), nullptr); },
      [&] {
        EXPECT_GSC_OK(gsc_scaler_step(s.scaler.get(), s.optimizer.get(), nullptr));
        EXPECT_EQ(report_of(s.scaler, s.grads.get()).first_tensor, 2);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(s.param(i), 0.0f) << "an inf was stepped on";
      });
}

TEST(FailingCalls, AFailedUnscaleLeavesTheGradientsScaled) {
  Simple s;
  fail_in_turn([&] { s.restart(); }, [&] { return gsc_scaler_unscale(s.scaler.get(), s.grads.get(), nullptr); },
               [&] {
                 EXPECT_GSC_OK(gsc_scaler_clip_grad_value(s.scaler.get(), s.grads.get(), 2.0, nullptr));
                 EXPECT_GSC_OK(gsc_scaler_step(s.scaler.get(), s.optimizer.get(), nullptr));
                 EXPECT_EQ(s.param(0), -1.0f);
               });
}

TEST(FailingCalls, WhatAFailedCheckCountedIsForgotten) {
  Simple s;
  fail_in_turn(
      [&] {
        s.restart();
        s.fill(0, kInf);
        EXPECT_GSC_OK(gsc_scaler_check_range(s.scaler.get(), s.grads.get(), 0, 1, nullptr));
      },
      [&] { return gsc_scaler_check_range(s.scaler.get(), s.grads.get(), 1, 2, nullptr); },
      [&] {
        s.restart();
        EXPECT_GSC_OK(gsc_scaler_check(s.scaler.get(), s.grads.get(), nullptr));
        EXPECT_EQ(report_of(s.scaler, s.grads.get()).nonfinite_count, 0);
      });
}

/// Either all of a list's tensors are elsewhere or none, and the host agrees with the device.
TEST(FailingCalls, AListThatIsNotPointedElsewhereStaysWhereItIs) {
  const Context context = make_counted_context();
  constexpr int kTensors = 1000;  // three launches
  const auto bytes = static_cast<int64_t>(kTensors * sizeof(float));
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
    EXPECT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
    const double result = report_of(scaler, list.get()).grad_norm;
    EXPECT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
    return result;
  };
  fail_in_turn([] {}, [&] { return gsc_tensor_list_set_pointers(list.get(), new_addresses.data(), kTensors, nullptr); },
               [&] {
                 ++failures;
                 EXPECT_EQ(norm(), std::sqrt(4.0 * kTensors));
                 gsc_tensor last{};
                 EXPECT_GSC_OK(gsc_tensor_list_get_tensor(list.get(), kTensors - 1, &last));
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
  for (int i = 0; i < 1000; ++i) {
    lists.push_back(make_list(context, {twin.device_tensor()}));
  }
  int failures = 0;
  fail_in_turn(
      [&] {
        for (const List &list : lists) EXPECT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
      },
      [&] { return gsc_scaler_update(scaler.get(), nullptr); },
      [&] {
        ++failures;
        const gsc_report report = report_of(scaler);
        EXPECT_EQ(report.updates, 0);
        EXPECT_EQ(report.grad_norm, 0.0);
        EXPECT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
      });
  EXPECT_GE(failures, 3);
  EXPECT_EQ(report_of(scaler).grad_norm, std::sqrt(1000.0));
}

/// The gradients have been written, and the ranks have been joined: nothing may go on from there.
TEST(FailingCalls, AnUnscaleThatFailsAfterTheReducerLosesTheList) {
  Simple s;
  const gsc_reducer reducer = {sizeof reducer, 0, all_reduce_alone, nullptr};
  ASSERT_GSC_OK(gsc_scaler_set_reducer(s.scaler.get(), &reducer));
  gsc_scaler *const scaler = s.scaler.get();
  int lost = 0;
  fail_in_turn([&] { s.restart(); }, [&] { return gsc_scaler_unscale(scaler, s.grads.get(), nullptr); },
               [&] {
                 if (std::string(gsc_error_get_message()).find("discard it") == std::string::npos) return;
                 ++lost;
                 EXPECT_GSC_ERROR(gsc_scaler_unscale(scaler, s.grads.get(), nullptr), GSC_ERROR_BAD_STATE, "grads",
                                  "discard");
                 EXPECT_GSC_ERROR(gsc_scaler_step(scaler, s.optimizer.get(), nullptr), GSC_ERROR_BAD_STATE, "discard");
                 EXPECT_GSC_ERROR(gsc_scaler_update(scaler, nullptr), GSC_ERROR_BAD_STATE, "discard");
               });
  EXPECT_GT(lost, 0);
}

TEST(FailingCalls, AHalfLoadedOptimizerWaitsForAnotherLoad) {
  World w;
  EXPECT_GSC_OK(w.training.step());
  const std::vector<char> want = w.saved;
  emulation::fail_call(12);
  EXPECT_GSC_ERROR(gsc_optimizer_load_sync(w.optimizer(), want.data(), w.saved_bytes, nullptr), GSC_ERROR_DEVICE,
                   "writing to the device failed");
  emulation::fail_call(-1);
  EXPECT_GSC_ERROR(w.training.step(), GSC_ERROR_BAD_STATE, "part of a checkpoint");
  EXPECT_GSC_ERROR(gsc_scaler_step(w.scaler(), w.optimizer(), nullptr), GSC_ERROR_BAD_STATE, "part of a checkpoint");
  // Nothing was checked: the next step must check the gradients of its iteration.
  EXPECT_GSC_ERROR(gsc_scaler_update(w.scaler(), nullptr), GSC_ERROR_BAD_STATE, "no list was checked");
  EXPECT_GSC_ERROR(gsc_optimizer_save_sync(w.optimizer(), w.saved.data(), w.saved_bytes, nullptr), GSC_ERROR_BAD_STATE,
                   "load it again");
  EXPECT_GSC_OK(gsc_optimizer_load_sync(w.optimizer(), want.data(), w.saved_bytes, nullptr));
  EXPECT_GSC_OK(gsc_optimizer_save_sync(w.optimizer(), w.saved.data(), w.saved_bytes, nullptr));
  EXPECT_EQ(w.saved, want);
  EXPECT_GSC_OK(w.training.step());
}

/// Destruction cannot report errors; it frees what it can and restores the thread.
TEST(FailingCalls, OfDestruction) {
  int64_t calls = 0;
  const auto destroy = [](std::unique_ptr<World> &w, int64_t failing) {
    emulation::fail_call(failing);
    for (Training *t : {&w->training, &w->away}) {
      t->optimizer.reset();
      t->scaler.reset();
      t->params.reset();
      t->grads.reset();
    }
    w->context.reset();
    w->other.reset();
  };
  for (int64_t i = -1; i < calls && !HasFailure(); ++i) {
    const Inventory before;
    auto world = std::make_unique<World>();
    EXPECT_GSC_OK(iteration_away(*world));
    EXPECT_GSC_OK(gsc_scaler_update(world->scaler(), nullptr));
    const CUctx_st *const current = emulation::current_context();
    destroy(world, i);
    if (i < 0) calls = emulation::call_count();
    const std::string failed = i < 0 ? "" : emulation::failed_call();
    emulation::fail_call(-1);
    world.reset();
    SCOPED_TRACE(text("call ", i, " of ", calls, ", ", failed));
    EXPECT_EQ(emulation::current_context(), current);
    EXPECT_FALSE(emulation::is_capture_relaxed());
    EXPECT_EQ(emulation::take_last_error(), cudaSuccess);
    EXPECT_EQ(host_blocks, before.host);
    EXPECT_EQ(emulation::reference_count(emulation::primary_context(0)), before.references);
    if (failed.rfind("cuCtx", 0) != 0) {  // without the context nothing can be freed
      EXPECT_EQ(Inventory(), before);
    }
  }
}

}  // namespace
}  // namespace gsc_test
