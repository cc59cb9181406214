// SPDX-License-Identifier: Apache-2.0
// The moving average of the weights as state: checkpoints, lists of the caller's, and that it stays or stays out. What a
// step does with it is in optimizer_test.cpp, for every format in tests/oracle, and on every instruction set in
// bits_test.cpp.
#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {
class Ema : public OnCpu {};

TEST_F(Ema, IsSavedAndLoaded) {
  gsc_optimizer_options o = adamw(GSC_STATE_BITS16, GSC_MASTER_SPLIT16);
  o.ema_decay = 0.99;
  Small first(context, o, GSC_BF16), second(context, o, GSC_BF16);
  Random random(1), again(2), once_more(2);
  for (int step = 0; step < 3; ++step) first.step(random);
  ASSERT_GSC_OK(second.load(first.save()));
  for (size_t t = 0; t < first.params.size(); ++t) second.params[t].restore(first.params[t].image());
  first.step(again);
  second.step(once_more);
  EXPECT_EQ(first.save(), second.save());
  // Who has none does not take one, nor the other way round.
  o.ema_decay = 0.0;
  const Small without(context, o, GSC_BF16);
  EXPECT_INVALID(without.load(first.save()), "has an average of the weights", "does not keep one");
  EXPECT_INVALID(first.load(without.save()), "has no average of the weights", "needs one");
}

TEST_F(Ema, ThatEvaluatingDoesNotTouch) {
  gsc_optimizer_options o = optimizer_options(GSC_SGD_SCHEDULE_FREE);
  o.ema_decay = 0.5;
  Small small(context, o, GSC_FP32);
  Random random(1);
  for (int step = 0; step < 3; ++step) small.step(random);
  const auto ema = [&] {
    const gsc_tensor t = Slots(small.optimizer).slots.back()[0];
    const auto *values = static_cast<const float *>(t.data);
    return std::vector<float>(values, values + t.count);
  };
  const std::vector<float> before = ema();
  ASSERT_GSC_OK(gsc_optimizer_set_evaluating(small.optimizer, 1, nullptr));
  EXPECT_EQ(ema(), before);
  ASSERT_GSC_OK(gsc_optimizer_set_evaluating(small.optimizer, 0, nullptr));
  EXPECT_EQ(ema(), before);
}

/// The caller's list goes on from what is in it, if the tensors have taken steps. 16 bits would not feel 1 - decay.
TEST_F(Ema, ListsOfTheCallers) {
  std::vector<Buffer> params = make_buffers(GSC_BF16, {5}), grads = make_buffers(GSC_FP32, {5});
  params[0].fill(3.0);
  const List param_list = make_list(context, params), grad_list = make_list(context, grads);
  gsc_optimizer_options o = optimizer_options(GSC_SGD);
  o.ema_decay = 0.75;
  for (const int32_t dtype : {GSC_FP16, GSC_BF16, GSC_FP64}) {
    Buffer buffer(dtype, 5);
    const List list = make_list(context, buffer);
    EXPECT_INVALID(status_of_optimizer(context, &o, param_list, grad_list, {list}), "state[0][0] is");
  }
  Buffer average(GSC_FP32, 5);
  average.fill(1.0);
  const Optimizer made = make_optimizer(context, o, param_list, grad_list, nullptr, {make_list(context, average)});
  const char *name = nullptr;
  ASSERT_GSC_OK(gsc_optimizer_get_state(made, 0, nullptr, &name));
  EXPECT_STREQ(name, "ema");
  ASSERT_GSC_OK(gsc_optimizer_set_steps(made, 1, 0, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step(made, nullptr));
  EXPECT_EQ(average.get(4), 1.5);
}

TEST_F(Ema, WhetherThereIsOneStays) {
  for (const double decay : {0.0, 0.5}) {
    gsc_optimizer_options o = optimizer_options(GSC_SGD);
    o.ema_decay = decay;
    const Small small(context, o, GSC_FP32);
    o.ema_decay = 0.5 - decay;
    const char *message = "options.ema_decay is";
    EXPECT_INVALID(gsc_optimizer_set_options(small.optimizer, 0, &o, nullptr), message);
    if (decay > 0.0) continue;
    EXPECT_INVALID(gsc_optimizer_add_group(small.optimizer, 0, 1, &o, nullptr), message);
  }
}

}  // namespace
}  // namespace gsc_test
