// SPDX-License-Identifier: Apache-2.0
//
// Owners that are destroyed first: of what an object has in another context's memory, and of lists that an optimizer
// lends out. A mistake is memory used after it was given back; the sanitizers see it for certain, and a context whose
// pages are taken away with it makes release builds crash on it too.
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#else
#include <sys/mman.h>
#endif

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

/// Host memory in separate pages. Touching them after they were freed is a fault.
struct Pages {
  static size_t size_of(int64_t bytes) { return (bytes + 4095) & ~int64_t{4095}; }
  static void *allocate(void *, int64_t bytes, int64_t) {
#if defined(_WIN32)
    return VirtualAlloc(nullptr, size_of(bytes), MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
#else
    void *memory = mmap(nullptr, size_of(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : nullptr;
#endif
  }
  static void release(void *, void *memory, int64_t bytes, int64_t) {
#if defined(_WIN32)
    DWORD before = 0;
    VirtualProtect(memory, size_of(bytes), PAGE_NOACCESS, &before);
#else
    mprotect(memory, size_of(bytes), PROT_NONE);
#endif
  }
};

Context make_paged_context() {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = 1;
  options.allocate = &Pages::allocate;
  options.release = &Pages::release;
  return make_context(options);
}

/// A list that a scaler of another context has used, and that is the last to hold this context.
struct Left {
  Context own = make_paged_context();
  Buffer grads{GSC_FP32, 100};
  List list = make_list(own, grads);
  Left() {
    const Context other = make_paged_context();
    const Scaler scaler = make_scaler(other, 4.0f);
    EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  }
};

TEST(Lifetime, AListAwayOutlivesTheScalersContext) {
  Left left;
  left.list.reset();
}

TEST(Lifetime, AListAwayGoesToAThirdContext) {
  Left left;
  const Context third = make_paged_context();
  const Scaler scaler = make_scaler(third, 2.0f);
  left.grads.fill(2.0);
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler, left.list, nullptr));
  ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  EXPECT_EQ(left.grads.get(99), 1.0);
}

TEST(Lifetime, AListAwayIsDiscardedAndTheScalerGoes) {
  Context own = make_paged_context();
  Buffer grads(GSC_FP32, 100);
  List list = make_list(own, grads);
  {
    const Context other = make_paged_context();
    Scaler scaler = make_scaler(other, 4.0f);
    ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
    ASSERT_GSC_OK(gsc_scaler_discard(scaler, list));
    own.reset();
    list.reset();  // the scaler holds it as a stray
  }
}

/// The state of one optimizer, taken up by another as its own, outlives the first.
TEST(Lifetime, StateThatAnotherOptimizerTookUp) {
  const Context context = make_paged_context();
  Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {100}});
  Optimizer second;
  {
    const auto lists = [&](auto &buffers) { return make_list(context, buffers); };
    const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    const Optimizer first = make_optimizer(context, options, lists(trainer.params()), lists(trainer.grads()));
    gsc_tensor_list *state[2] = {nullptr, nullptr};
    for (int32_t slot = 0; slot < 2; ++slot) {
      ASSERT_GSC_OK(gsc_optimizer_get_state(first, slot, &state[slot], nullptr));
    }
    second = make_optimizer(context, options, lists(trainer.params()), lists(trainer.grads()), nullptr,
                            {state[0], state[1]});
  }
  ASSERT_GSC_OK(gsc_optimizer_step(second, nullptr));
  EXPECT_EQ(applied_steps(second), 1);
}

/// As in a program that makes an optimizer for each trial. tests/core/list_uses_test.cpp has why this takes no time.
TEST(Lifetime, ManyOptimizersOfOnePairOfListsGoOldestFirst) {
  const Context context = make_context(1);
  Buffer params(GSC_FP32, 4), grads(GSC_FP32, 4);
  const List p = make_list(context, params), g = make_list(context, grads);
  std::vector<Optimizer> optimizers;
  for (int i = 0; i < 20000; ++i) optimizers.push_back(make_optimizer(context, optimizer_options(GSC_SGD), p, g));
  for (size_t i = 0; i + 1 < optimizers.size(); ++i) optimizers[i].reset();
  Buffer elsewhere(GSC_FP32, 4);
  EXPECT_GSC_OK(set_pointers(g, {elsewhere.data()}));
  EXPECT_INVALID(set_pointers(g, {params.data()}), "overlaps");
  optimizers.clear();
  EXPECT_GSC_OK(set_pointers(g, {params.data()})) << "no optimizer is left that objects";
}

}  // namespace
}  // namespace gsc_test
