// SPDX-License-Identifier: Apache-2.0
// The count of elements that a step leaves as they were: against a comparison of the parameters' and remainders' bytes
// before and after each step, for every kind and format, on every instruction set. Counting changes no bits.
#include <cmath>
#include <string>

#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {

const std::vector<int64_t> kCounts = {1, 33, 0, 1000, 17000};

struct Case {
  int32_t kind, param_dtype, copy_dtype = 0, state_format = GSC_STATE_FULL, master_format = GSC_MASTER_NONE;
};

gsc_optimizer_options options_of(const Case &c, uint32_t flags) {
  gsc_optimizer_options o = optimizer_options(c.kind);
  o.state_format = c.state_format;
  o.master_format = c.master_format;
  o.flags = flags;
  o.lr = 1e-3;
  if (c.kind == GSC_SGD || c.kind == GSC_RMSPROP) o.momentum = 0.9;
  return o;
}

class Trained {
 public:
  Trained(const Context &context, const Case &c, uint32_t flags)
      : params(make_buffers(c.param_dtype, kCounts, 3)),
        grads(make_buffers(c.param_dtype == GSC_FP64 ? GSC_FP64 : GSC_FP16, kCounts)),
        copies(make_buffers(c.copy_dtype != 0 ? c.copy_dtype : GSC_FP16, kCounts)) {
    Random random(5);
    for (Buffer &p : params) p.fill_random(random, -1.0, 1.0);
    param_list = make_list(context, params);
    grad_list = make_list(context, grads);
    if (c.copy_dtype != 0) copy_list = make_list(context, copies);
    optimizer = make_optimizer(context, options_of(c, flags), param_list, grad_list, copy_list);
    scaler = make_scaler(context, 1024.0f);
  }

  /// Gradients from 2^-24 to 1 and zeros, so that some updates are too small.
  void step(uint64_t seed, bool overflows) {
    Random random(seed);
    for (Buffer &g : grads) {
      for (int64_t i = 0; i < g.count(); ++i) {
        g.set(i, random.below(8) == 0 ? 0.0 : std::ldexp(1024.0, -static_cast<int>(random.below(24))));
      }
    }
    if (overflows) grads.back().set(7, INFINITY);
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
  }

  /// The bytes of each element, with its remainder.
  [[nodiscard]] std::vector<std::string> elements(bool is_split) const {
    std::vector<std::string> result;
    const Slots slots(optimizer);
    for (size_t t = 0; t < params.size(); ++t) {
      const auto size = static_cast<size_t>(gsc::dtype_bytes(params[t].dtype()));
      const std::vector<unsigned char> image = params[t].image();
      for (size_t i = 0; i < static_cast<size_t>(params[t].count()); ++i) {
        std::string bytes(reinterpret_cast<const char *>(image.data()) + i * size, size);
        if (is_split) {
          const gsc_tensor &rest = slots.slots.back()[t];
          const auto rest_size = static_cast<size_t>(gsc::dtype_bytes(rest.dtype));
          bytes.append(static_cast<const char *>(rest.data) + i * rest_size, rest_size);
        }
        result.push_back(bytes);
      }
    }
    return result;
  }

  [[nodiscard]] int64_t unchanged() const {
    int64_t count = -1;
    EXPECT_GSC_OK(gsc_optimizer_get_unchanged_sync(optimizer, &count, nullptr));
    return count;
  }

  std::vector<Buffer> params, grads, copies;
  List param_list, grad_list, copy_list;
  Optimizer optimizer;
  Scaler scaler;
};

void run(const Case &c, int32_t target, int32_t threads) {
  SCOPED_TRACE(text("kind ", c.kind, " param ", c.param_dtype, " state ", c.state_format, " master ", c.master_format,
                    " target ", target));
  const Context context = make_context(threads, target);
  const bool is_split = c.master_format == GSC_MASTER_SPLIT16 || c.master_format == GSC_MASTER_SPLIT8;
  Trained counted(context, c, GSC_OPTIMIZER_COUNT_UNCHANGED), plain(context, c, 0);
  int64_t expected = 0;
  for (uint64_t step = 0; step < 4; ++step) {
    const std::vector<std::string> before = counted.elements(is_split);
    counted.step(step, step == 2);
    plain.step(step, step == 2);
    const std::vector<std::string> after = counted.elements(is_split);
    ASSERT_EQ(after, plain.elements(is_split)) << "counting changed a step";
    for (size_t i = 0; i < before.size() && step != 2; ++i) expected += before[i] == after[i] ? 1 : 0;
    ASSERT_EQ(counted.unchanged(), expected) << step;
  }
  ASSERT_EQ(plain.unchanged(), 0);
}

TEST(Unchanged, IsWhatAComparisonFinds) {
  for (const int32_t target : usable_cpu_targets()) {
    for (const int32_t kind : optimizer_kinds()) {
      run({kind, GSC_FP32}, target, 3);
      run({kind, GSC_BF16}, target, 1);
      run({kind, GSC_FP16, GSC_FP32, GSC_STATE_BITS8, GSC_MASTER_SPLIT8}, target, 3);
    }
    run({GSC_ADAMW, GSC_FP64, GSC_FP16}, target, 2);
    run({GSC_ADAMW, GSC_FP32, GSC_FP16}, target, 2);
    run({GSC_ADAMW, GSC_BF16, 0, GSC_STATE_BITS16, GSC_MASTER_SPLIT16}, target, 2);
    run({GSC_ADAMW, GSC_FP16, 0, GSC_STATE_BITS8, GSC_MASTER_STOCHASTIC}, target, 2);
    if (HasFailure()) return;
  }
}

/// bf16 weights of 1 do not feel updates of a thousandth; the remainder of a split master does.
TEST(Unchanged, ShowsWhereLearningStops) {
  const Context context = make_context(1);
  for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16}) {
    Trained trained(context, {GSC_ADAMW, GSC_BF16, 0, GSC_STATE_FULL, master}, GSC_OPTIMIZER_COUNT_UNCHANGED);
    int64_t elements = 0;
    for (Buffer &p : trained.params) {
      elements += p.count();
      for (int64_t i = 0; i < p.count(); ++i) p.set(i, 1.0);
    }
    for (Buffer &g : trained.grads) {
      for (int64_t i = 0; i < g.count(); ++i) g.set(i, 1024.0);
    }
    ASSERT_GSC_OK(gsc_scaler_step_and_update(trained.scaler, trained.optimizer, nullptr));
    EXPECT_EQ(trained.unchanged(), master == GSC_MASTER_NONE ? elements : 0);
  }
}

TEST(Unchanged, IsZeroAfterStepCountsAreRestored) {
  const Context context = make_context(1);
  Trained trained(context, {GSC_SGD, GSC_BF16}, GSC_OPTIMIZER_COUNT_UNCHANGED);
  trained.step(1, false);
  ASSERT_GT(trained.unchanged(), 0);
  ASSERT_GSC_OK(gsc_optimizer_set_steps(trained.optimizer, 1, 0, nullptr));
  EXPECT_EQ(trained.unchanged(), 0);
}

}  // namespace
}  // namespace gsc_test
