// SPDX-License-Identifier: Apache-2.0
//
// A step in slices that is cancelled after any of its slices, for every kind and format. If the slices have changed a
// bit of the parameters or the state, the optimizer refuses to step and save; if not, it works on as if they had not been
// taken. The kind of defect: an optimizer that is lost although nothing of it has moved, and one that goes on although
// something has.
#include "tests/capi/slices_harness.h"

namespace gsc_test {
namespace {

/// Chunks of several sizes, few of them: each is a slice.
const std::vector<int64_t> kCounts = {17000, 3, 0, 64, 1000};

/// All ways to drop a step that is not done.
void cancel(const Context &context, Training &training, int way) {
  gsc_scaler_state state = with_size<gsc_scaler_state>();
  switch (way % 5) {
    case 0:
      EXPECT_GSC_OK(gsc_scaler_discard(training.scaler, training.trainer.grad_list()));
      break;
    case 1:
      EXPECT_GSC_OK(gsc_scaler_discard(training.scaler, nullptr));
      break;
    case 2:
      EXPECT_GSC_OK(gsc_scaler_set_scale(training.scaler, 64.0F, nullptr));
      EXPECT_GSC_OK(gsc_scaler_discard(training.scaler, nullptr));  // set_scale leaves a disabled scaler alone
      break;
    case 3:
      if (gsc_scaler_get_state_sync(training.scaler, &state, nullptr) == GSC_OK) {
        EXPECT_GSC_OK(gsc_scaler_set_state(training.scaler, &state, nullptr));
        break;
      }
      [[fallthrough]];
    default: {
      auto options = with_size<gsc_scaler_options>();
      EXPECT_GSC_OK(gsc_scaler_get_options(training.scaler, &options));
      training.scaler = make_scaler(context, options);
    }
  }
}

/// A training after one step, with the gradients of the next.
struct Begun : Training {
  Begun(const Context &context, const SliceCase &c, bool overflows) : Training(context, c, kCounts) {
    Random random(3);
    trainer.fill_grads(random, 1.0, 8.0);
    const uint8_t present[] = {1, 0, 1, 0, 1};
    for (const uint8_t *which : {static_cast<const uint8_t *>(nullptr), present}) {
      if (c.absent) {
        EXPECT_GSC_OK(gsc_tensor_list_set_present(trainer.grad_list(), which, nullptr, std::ssize(kCounts), nullptr));
      }
      if (which != nullptr) continue;
      EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    }
    trainer.fill_grads(random, 1.0, 8.0);
    if (overflows) trainer.grads()[0].set(16999, kNan);
  }
};

struct Counts {
  int moved = 0, unmoved = 0;
};

/// Takes `slices` slices of at most `budget` bytes and cancels. False if the step was done before.
bool cancel_after(const Context &context, const SliceCase &c, bool overflows, int slices, int64_t budget,
                  Counts &counts) {
  Begun whole(context, c, overflows), sliced(context, c, overflows);
  const Snapshot before = sliced.trainer.snapshot();
  const Image image = saved_image(sliced.trainer);
  int64_t left = 1;
  for (int i = 0; i < slices && left > 0; ++i) EXPECT_GSC_OK(sliced.slice(budget, &left));
  if (left == 0) return false;
  const Snapshot after = sliced.trainer.snapshot();
  const bool moved = !(after == before) || sliced.trainer.tensor_steps() != whole.trainer.tensor_steps();
  cancel(context, sliced, slices);
  ++(moved ? counts.moved : counts.unmoved);
  if (moved) {
    EXPECT_BAD_STATE(gsc_scaler_step(sliced.scaler, sliced.trainer, nullptr), "taken part of a step", "load its state");
    EXPECT_BAD_STATE(gsc_optimizer_step(sliced.trainer, nullptr), "load its state");
    EXPECT_BAD_STATE(
        gsc_optimizer_save_sync(sliced.trainer, const_cast<unsigned char *>(image.data()), std::ssize(image), nullptr),
        "load its state");
    return true;
  }
  EXPECT_TRUE(saved_image(sliced.trainer) == image) << "what has not moved can be saved, and has not moved";
  EXPECT_GSC_OK(gsc_scaler_step(sliced.scaler, sliced.trainer, nullptr));
  if (after.grads != before.grads) return true;  // zeroed in part by a step that was skipped
  EXPECT_GSC_OK(gsc_scaler_step(whole.scaler, whole.trainer, nullptr));
  EXPECT_TRUE(sliced.trainer.snapshot().same_with_grads(whole.trainer.snapshot()));
  EXPECT_TRUE(saved_image(sliced.trainer) == saved_image(whole.trainer));
  return true;
}

class CancelledSlices : public testing::TestWithParam<SliceCase> {};

TEST_P(CancelledSlices, AreAsIfNotTakenUntilSomethingMoves) {
  const Context context = make_context(1);
  Random random(11);
  for (const bool overflows : {false, true}) {
    Counts counts;
    for (const bool one_chunk : {true, false}) {
      const int64_t budget = one_chunk ? 1 : 4000 + random.below(60000);
      for (int slices = 1; cancel_after(context, GetParam(), overflows, slices, budget, counts); ++slices) {
        ASSERT_FALSE(HasFailure()) << "after " << slices << " slices of " << budget << (overflows ? ", overflow" : "");
      }
    }
    const bool skips = overflows && GetParam().enabled;
    EXPECT_EQ(counts.moved > 0, !skips);
    EXPECT_TRUE(counts.unmoved > 0 || !GetParam().enabled);
  }
}

/// The end of the check and the begin of what moves are one boundary, at which nothing has moved.
TEST_P(CancelledSlices, TheEndOfTheCheckMovesNothing) {
  if (!GetParam().enabled) GTEST_SKIP() << "there is no check";
  const Context context = make_context(1);
  for (int way = 0; way < 5; ++way) {
    Begun sliced(context, GetParam(), false);
    const Image image = saved_image(sliced.trainer);
    Begun checked(context, GetParam(), false);
    ASSERT_GSC_OK(gsc_scaler_check(checked.scaler, checked.trainer.grad_list(), nullptr));
    const double norm = report_of(checked.scaler, checked.trainer.grad_list()).grad_norm;
    int64_t left = 1;
    while (left > 0 && report_of(sliced.scaler, sliced.trainer.grad_list()).grad_norm != norm) {
      ASSERT_GSC_OK(sliced.slice(1, &left));
    }
    ASSERT_GT(left, 0);
    cancel(context, sliced, way);
    ASSERT_TRUE(saved_image(sliced.trainer) == image);
    ASSERT_GSC_OK(gsc_scaler_step(sliced.scaler, sliced.trainer, nullptr));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CancelledSlices, testing::ValuesIn(slice_cases()),
                         [](const auto &info) { return text(info.param.name, info.param.kind, '_', info.index); });

}  // namespace
}  // namespace gsc_test
