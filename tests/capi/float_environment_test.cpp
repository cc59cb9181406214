// SPDX-License-Identifier: Apache-2.0
//
// The caller's floating-point environment has no influence on results, and calls leave it as it was: rounding mode,
// flushed subnormals, unmasked traps; on the calling thread, on workers, on threads of a job system.
#include <cfenv>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

/// The control word of this thread's vector unit, without the exception flags.
uint64_t environment() {
#if defined(__SSE__)
  return _mm_getcsr() & ~0x3fU;
#elif defined(__aarch64__)
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control)::"memory");
  return control;
#else
  return std::fegetround();
#endif
}

void set_environment(uint64_t word) {
#if defined(__SSE__)
  _mm_setcsr(word);
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(word) : "memory");
#else
  std::fesetround(word);
#endif
}

/// Environments to call from, the first being that of a new thread.
std::vector<uint64_t> environments() {
#if defined(__SSE__)
  return {0x1f80,          0x9fc0 /* FTZ and DAZ */, 0x3f80 /* down */,
          0x5f80 /* up */, 0x7f80 /* to zero */,     0x0000 /* every trap */,
          0xe040 /* all at once */};
#elif defined(__aarch64__)
  return {0,     1u << 24 /* FZ */, 1u << 22 /* up */, 2u << 22 /* down */, 3u << 22 /* to zero */, 1u << 25 /* DN */,
          0x9f00 /* traps, where there are any */};
#else
  return {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
#endif
}

/// Runs f in an environment, and returns whether f left it as it was. It is read back first: an Arm processor without
/// traps reads as having none enabled. Nothing of GoogleTest runs inside.
template <typename F>
bool run_in(uint64_t word, const F &f) {
  const uint64_t before = environment();
  set_environment(word);
  const uint64_t taken = environment();
  f();
  const uint64_t after = environment();
  set_environment(before);
  return after == taken;
}

/// A job system whose threads are in an environment of their own.
struct Jobs {
  uint64_t word;
  static void run(void *user, int32_t count, gsc_task_fn body, void *argument) {
    const uint64_t word = static_cast<Jobs *>(user)->word;
    on_threads(2, [=](int32_t first) {
      set_environment(word);
      for (int32_t i = first; i < count; i += 2) body(argument, i);
    });
  }
};

/// A job system that leaves its environment to the calling thread, and a reducer that does.
struct CarelessJobs {
  uint64_t word;
  static void run(void *user, int32_t count, gsc_task_fn body, void *argument) {
    for (int32_t i = 0; i < count; ++i) body(argument, i);
    set_environment(static_cast<CarelessJobs *>(user)->word);
  }
  static int32_t reduce(void *user, double *, int64_t, gsc_stream) {
    set_environment(static_cast<CarelessJobs *>(user)->word);
    return 0;
  }
};

/// A step over subnormals, values that round, and an overflow of the check's own products; then an update whose scale
/// rounds. All the bytes that came of it.
struct Results {
  Snapshot snapshot;
  gsc_scaler_state state;
  double norm;
  bool operator==(const Results &o) const {
    return snapshot.same_with_grads(o.snapshot) && same_bytes(state, o.state) && norm == o.norm;
  }
};

Results results_in(uint64_t word, const Context &context, bool *same_environment) {
  gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  options.flags = GSC_OPTIMIZER_WRITE_GRADS;
  Trainer trainer(context, {.options = options, .counts = {200000, 77}, .copy_dtype = GSC_BF16});
  Random random(5);
  for (Buffer &buffer : trainer.grads()) {
    for (int64_t i = 0; i < buffer.count(); ++i) {
      buffer.set(i, i % 3 == 0 ? random.uniform(-1e-39, 1e-39) : random.uniform(-1.0, 1.0));
    }
  }
  gsc_scaler_options policy = scaler_options(3.0f, 1);
  policy.growth_factor = 1.1;
  const Scaler scaler = make_scaler(context, policy);
  Results results{};
  gsc_status status[4];
  const std::vector<gsc_tensor> grads = tensors_of(trainer.grads());
  *same_environment = run_in(word, [&] {
    status[0] = gsc_ops_norm(context, grads.data(), 2, GSC_NORM_L2, &results.norm, nullptr, nullptr);
    status[1] = gsc_scaler_step(scaler, trainer, nullptr);
    status[2] = gsc_scaler_update(scaler, nullptr);
    status[3] = gsc_scaler_update(scaler, nullptr);  // refused
  });
  for (const int i : {0, 1, 2}) EXPECT_EQ(status[i], GSC_OK) << i;
  EXPECT_EQ(status[3], GSC_ERROR_BAD_STATE);
  results.snapshot = trainer.snapshot();
  results.state = state_of(scaler);
  return results;
}

class FloatEnvironment : public testing::Test {
 protected:
  void expect_usual_results(uint64_t word, const Context &context, const std::string &what) {
    bool same = false;
    EXPECT_TRUE(results_in(word, context, &same) == expected) << what;
    EXPECT_TRUE(same) << what;
  }
  const std::vector<uint64_t> words = environments();
  bool unused = false;
  const Results expected = results_in(words[0], make_context(1), &unused);
};

TEST_F(FloatEnvironment, ResultsDoNotDependOnItAndCallsRestoreIt) {
  for (const int32_t target : usable_cpu_targets()) {
    for (const int32_t threads : {1, 3}) {
      const Context context = make_context(threads, target);
      results_in(words[0], context, &unused);  // the pool starts in the usual environment
      for (const uint64_t word : words) {
        const std::string what = text(target, ' ', threads, ' ', word);
        expect_usual_results(word, context, what);
        expect_usual_results(word, make_context(threads, target), what);  // the pool starts in the caller's
      }
    }
  }
}

TEST_F(FloatEnvironment, OfAJobSystem) {
  for (const uint64_t word : words) {
    Jobs jobs{word};
    expect_usual_results(words[0], make_context(&Jobs::run, &jobs), text(word));
  }
}

TEST_F(FloatEnvironment, ThatCallbacksLeaveBehind) {
  const auto clipped = [](const Context &context, CarelessJobs *jobs) {
    Trainer trainer(context, {.options = optimizer_options(GSC_SGD), .counts = {3}});
    trainer.grads()[0].fill(0.3);
    const Scaler scaler = make_scaler(context, 3.0f);
    const gsc_reducer reducer = {sizeof(gsc_reducer), 0, &CarelessJobs::reduce, jobs};
    EXPECT_GSC_OK(gsc_scaler_set_reducer(scaler, jobs != nullptr ? &reducer : nullptr));
    EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, trainer.grad_list(), 0.07, GSC_NORM_L2, nullptr));
    gsc_status status = GSC_ERROR_INTERNAL;
    EXPECT_TRUE(run_in(environments()[0], [&] { status = gsc_scaler_step(scaler, trainer, nullptr); }));
    EXPECT_EQ(status, GSC_OK);
    return trainer.snapshot();
  };
  for (const uint64_t word : words) {
    CarelessJobs jobs{word};
    const Context context = make_context(&CarelessJobs::run, &jobs);
    expect_usual_results(words[0], context, text(word));
    EXPECT_TRUE(clipped(context, &jobs) == clipped(context, nullptr)) << word;
  }
}

/// An overflow with traps unmasked would end the process, in the check, the clip and the update.
TEST_F(FloatEnvironment, AnOverflowDoesNotTrap) {
  const Context context = make_context(3);
  Trainer trainer(context, {.options = optimizer_options(GSC_SGD), .counts = {200000}, .grad_dtypes = {GSC_FP16}});
  const Scaler scaler = make_scaler(context, 65536.0f);
  for (const double value : {kInf, kNan, 1e-7}) {
    trainer.grads()[0].set(199999, value);
    gsc_status status = GSC_ERROR_INTERNAL;
#if defined(__SSE__)
    run_in(0, [&] { status = gsc_scaler_step_and_update(scaler, trainer, nullptr); });
#else
    status = gsc_scaler_step_and_update(scaler, trainer, nullptr);
#endif
    EXPECT_EQ(status, GSC_OK);
  }
  EXPECT_EQ(skipped_steps(trainer), 2);
}

TEST_F(FloatEnvironment, OfCallbacksOfDestruction) {
  static uint64_t seen;
  HostMemory memory;
  gsc_context_options options = memory.options();
  static gsc_release_fn release;
  release = options.release;
  options.release = [](void *user, void *block, int64_t bytes, int64_t alignment) {
    seen = environment();
    release(user, block, bytes, alignment);
  };
  for (const uint64_t word : words) {
    gsc_context *context = nullptr;
    ASSERT_GSC_OK(gsc_context_create(&options, &context));
    EXPECT_TRUE(run_in(word, [&] { gsc_context_destroy(context); })) << word;
    EXPECT_EQ(seen, words[0]);
  }
}

}  // namespace
}  // namespace gsc_test
