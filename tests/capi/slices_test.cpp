// SPDX-License-Identifier: Apache-2.0
//
// Steps in slices: the bits, counts and gradients of one call for any budget, also from several threads at once, over
// skipped steps; which calls are refused in between; and what a cancelled step leaves. ThreadSanitizer runs this too.
#include <atomic>
#include <numeric>

#include "tests/capi/slices_harness.h"

namespace gsc_test {
namespace {

using Case = SliceCase;
const std::vector<int64_t> &kCounts = kSliceCounts;

/// Trains twins for a few steps, the one in single calls and the other by `step`, and expects the same.
void train(const Context &context, const Case &c, const std::function<void(const Training &)> &step) {
  Training whole(context, c), sliced(context, c);
  Random random(3), same(3);
  std::vector<uint8_t> present(kCounts.size(), 1);
  for (int i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    whole.trainer.fill_grads(random, 1.0, 8.0);
    sliced.trainer.fill_grads(same, 1.0, 8.0);
    present[3] = i % 2 == 0 ? 1 : 0;
    for (Training *training : {&whole, &sliced}) {
      gsc_tensor_list *grads = training->trainer.grad_list();
      if (i == 2) training->trainer.grads()[0].set(69999, kNan);
      if (c.absent) {
        ASSERT_GSC_OK(gsc_tensor_list_set_present(grads, present.data(), nullptr, 8, nullptr));
      }
      if (i % 2 == 1) {
        ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(training->scaler, grads, 0.5, GSC_NORM_L2, nullptr));
      }
      if (i == 3) {
        ASSERT_GSC_OK(gsc_scaler_check_range(training->scaler, grads, 1, 1, nullptr));
        ASSERT_GSC_OK(gsc_scaler_check_range(training->scaler, grads, 3, 3, nullptr));
      }
      if (i == 4) {  // the check of the slices keeps what was found before, and counts it once
        for (const int64_t tensor : {0, 3}) {
          training->trainer.grads()[tensor].set(39999, kNan);
          ASSERT_GSC_OK(gsc_scaler_check_range(training->scaler, grads, tensor, 1, nullptr));
        }
      }
    }
    ASSERT_GSC_OK(gsc_scaler_step(whole.scaler, whole.trainer, nullptr));
    step(sliced);
    gsc_report expected = with_size<gsc_report>(), found = expected;
    const gsc_status status = gsc_scaler_get_report_sync(whole.scaler, whole.trainer.grad_list(), &expected, nullptr);
    ASSERT_EQ(gsc_scaler_get_report_sync(sliced.scaler, sliced.trainer.grad_list(), &found, nullptr), status);
    ASSERT_EQ(found.nonfinite_count, expected.nonfinite_count);
    ASSERT_EQ(found.first_tensor, expected.first_tensor);
    for (Training *training : {&whole, &sliced}) {
      ASSERT_GSC_OK(gsc_scaler_update(training->scaler, nullptr));
    }
    whole.expect_same(sliced);
    if (testing::Test::HasFailure()) return;
  }
}

/// An element has 26 bytes, for its parameter and two slots twice and its copy once, and 2 or 4 of a gradient.
TEST(StepSlice, ReturnsTheBytesOfWholeElements) {
  const Training training(make_context(1), {.name = "", .kind = GSC_ADAMW});
  ASSERT_GSC_OK(gsc_scaler_unscale(training.scaler, training.trainer.grad_list(), nullptr));
  int64_t left = (70000 + 0 + 64 + 64) * 28 + (3 + 40000 + 64 + 1000) * 30;
  while (left > 0) {
    const int64_t before = left;
    ASSERT_GSC_OK(training.slice(1, &left));
    ASSERT_TRUE((before - left) % 28 == 0 || (before - left) % 30 == 0) << before << " - " << left;
  }
}

/// What check_range has read is not read again, and so not left.
TEST(StepSlice, LeavesOutWhatWasCheckedBefore) {
  const int64_t sweep = (70000 + 0 + 64 + 64) * 28 + (3 + 40000 + 64 + 1000) * 30;
  const int64_t check[] = {70000 * 2, 3 * 4, 0, 40000 * 4, 64 * 2, 64 * 4, 64 * 2, 1000 * 4};
  const int64_t whole = std::accumulate(std::begin(check), std::end(check), int64_t{0});
  for (int64_t first = 0; first < 8; ++first) {
    for (int64_t last = first; last <= 8; ++last) {
      SCOPED_TRACE(text(first, " to ", last));
      const Training training(make_context(1), {.name = "", .kind = GSC_ADAMW});
      ASSERT_GSC_OK(
          gsc_scaler_check_range(training.scaler, training.trainer.grad_list(), first, last - first, nullptr));
      int64_t left = 0;
      ASSERT_GSC_OK(training.slice(1, &left));
      const int64_t unchecked = whole - std::accumulate(check + first, check + last, int64_t{0});
      if (unchecked == 0) {
        EXPECT_EQ(left, sweep - 16384 * 28);
        continue;
      }
      // The slice was the first chunk that was left; tensor 2 has none.
      int64_t t = 0;
      while (check[t] == 0 || (t >= first && t < last)) ++t;
      const int64_t chunk = t == 0 ? 16384 * 2 : (t == 3 ? 16384 * 4 : check[t]);
      EXPECT_EQ(left, unchecked - chunk + sweep);
    }
  }
}

class Slices : public testing::TestWithParam<Case> {};

TEST_P(Slices, SameBitsForAnyBudget) {
  for (const int64_t budget : {int64_t{1}, int64_t{300000}, INT64_MAX}) {
    SCOPED_TRACE(budget);
    int most = 0;
    train(make_context(budget == 1 ? 1 : 3), GetParam(), [&](const Training &sliced) {
      int64_t left = INT64_MAX;
      int slices = 0;
      for (int64_t before = left; left > 0; ++slices, before = left) {
        ASSERT_GSC_OK(sliced.slice(budget, &left));
        ASSERT_TRUE(left < before || budget == 1);  // a chunk of an absent tensor has no bytes
        ASSERT_LT(slices, 100);
      }
      most = std::max(most, slices);
      ASSERT_GSC_OK(sliced.slice(budget, &left));
      EXPECT_EQ(left, 0) << "nothing until update";
    });
    // Chunks of 16384 elements and of small tensors, once in the check and once in each sweep.
    const int32_t kind = GetParam().kind;
    const int sweeps = has_norms(kind) ? 2 : 1;
    if (budget == 1) {
      EXPECT_EQ(most, 13 * (1 + sweeps));
    } else if (budget == INT64_MAX) {
      EXPECT_EQ(most, 1);
    }
    if (HasFailure()) return;
  }
}

TEST_P(Slices, SameBitsFromSeveralThreads) {
  for (const int32_t pool : {1, 3}) {
    const Context context = make_context(pool);
    train(context, GetParam(), [&](const Training &sliced) {
      std::atomic<int> failures{0};
      on_threads(4, [&](int) {
        for (int64_t left = 1; left > 0;) {
          if (sliced.slice(100000, &left) == GSC_OK) continue;
          ++failures;
          return;
        }
      });
      ASSERT_EQ(failures, 0);
    });
    if (HasFailure()) return;
  }
}

TEST_P(Slices, AStepTakesTheRest) {
  const Context context = make_context(2);
  Random random(4);
  train(context, GetParam(), [&](const Training &sliced) {
    int64_t left = 1;
    for (int64_t i = random.below(30); i > 0 && left > 0; --i) ASSERT_GSC_OK(sliced.slice(1, &left));
    if (left > 0) {
      ASSERT_GSC_OK(gsc_scaler_step(sliced.scaler, sliced.trainer, nullptr));
    }
    EXPECT_BAD_STATE(gsc_scaler_step(sliced.scaler, sliced.trainer, nullptr), "stepped");
  });
}

INSTANTIATE_TEST_SUITE_P(All, Slices, testing::ValuesIn(slice_cases()),
                         [](const auto &info) { return text(info.param.name, info.param.kind, '_', info.index); });

const Case kAdamw = {"adamw", GSC_ADAMW};

/// Between two slices, with the parameters moved in part.
struct Between : Training {
  explicit Between(const Context &context) : Training(context, kAdamw) {
    Random random(3);
    trainer.fill_grads(random, 1.0, 8.0);
    int64_t left = 0;
    while (left == 0 || left > 1400000) EXPECT_GSC_OK(slice(100000, &left));
  }
};

TEST(SlicesMisuse, EverythingElseWaitsForTheLastSlice) {
  const Context context = make_context();
  Between b(context);
  Trainer &t = b.trainer;
  gsc_scaler *scaler = b.scaler;
  gsc_tensor_list *grads = t.grad_list();
  gsc_optimizer *optimizer = t;
  const gsc_optimizer_options options = Training::options_of(kAdamw);
  std::vector<char> image(4 << 20);
  int64_t bytes = 0, numbers[8] = {};
  int32_t apply = 0;
  float one = 1.0F;
  gsc_tensor_list *state = nullptr;
  EXPECT_GSC_OK(gsc_optimizer_get_save_size(optimizer, &bytes));
  EXPECT_GSC_OK(gsc_optimizer_get_state(optimizer, 0, &state, nullptr));
  std::vector<void *> moved, moved_state;
  for (size_t i = 0; i < kCounts.size(); ++i) {
    moved.push_back(t.grads()[i].data());
    moved_state.push_back(t.state_tensor(0, i).data);
  }
  const Snapshot before = t.snapshot();
  const auto refused = [](gsc_status status) { EXPECT_BAD_STATE(status, "between the slices of a step"); };
  refused(gsc_scaler_check(scaler, grads, nullptr));
  refused(gsc_scaler_check_range(scaler, grads, 0, 1, nullptr));
  refused(gsc_scaler_unscale(scaler, grads, nullptr));
  refused(gsc_scaler_clip_grad_norm(scaler, grads, 1.0, GSC_NORM_L2, nullptr));
  refused(gsc_scaler_clip_grad_value(scaler, grads, 1.0, nullptr));
  refused(gsc_scaler_should_step_sync(scaler, grads, &apply, nullptr));
  refused(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
  refused(gsc_scaler_update(scaler, nullptr));
  refused(gsc_optimizer_step(optimizer, nullptr));
  refused(gsc_optimizer_step_scaled(optimizer, &one, nullptr, nullptr));
  refused(gsc_optimizer_zero_grads(optimizer, nullptr));
  refused(gsc_optimizer_add_group(optimizer, 0, 1, &options, nullptr));
  refused(gsc_optimizer_set_options(optimizer, 0, &options, nullptr));
  refused(gsc_optimizer_set_lr(optimizer, 0, 0.1, nullptr));
  refused(gsc_optimizer_set_device_lr(optimizer, 0, &one, nullptr));
  refused(gsc_optimizer_set_steps(optimizer, 1, 0, nullptr));
  refused(gsc_optimizer_set_tensor_steps(optimizer, numbers, 8, nullptr));
  refused(gsc_optimizer_set_offsets(optimizer, numbers, 8, nullptr));
  refused(gsc_optimizer_save_sync(optimizer, image.data(), bytes, nullptr));
  refused(gsc_optimizer_load_sync(optimizer, image.data(), bytes, nullptr));
  EXPECT_BAD_STATE(set_pointers(grads, moved), "scaler");
  EXPECT_BAD_STATE(set_pointers(state, moved_state), "slices");
  int64_t left = -1;
  EXPECT_INVALID(b.slice(0, &left), "max_bytes", "is 0");
  const Scaler other = make_scaler(context, 1.0F);
  EXPECT_BAD_STATE(gsc_scaler_step_slice(other, optimizer, 1, &left, nullptr), "another scaler");
  EXPECT_EQ(left, -1);
  EXPECT_TRUE(t.snapshot().same_with_grads(before)) << "a refused call changes nothing";
  EXPECT_EQ(applied_steps(t), 0) << "the step counts when it is done";
  ASSERT_GSC_OK(b.slice(INT64_MAX, &left));
  EXPECT_EQ(left, 0);
  EXPECT_EQ(applied_steps(t), 1);
  EXPECT_GSC_OK(gsc_optimizer_set_lr(optimizer, 0, 0.1, nullptr));
  EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
}

TEST(SlicesMisuse, ACancelledStepNeedsItsStateLoaded) {
  const Context context = make_context();
  const std::function<void(Between &)> cancels[] = {
      [](Between &b) { EXPECT_GSC_OK(gsc_scaler_discard(b.scaler, b.trainer.grad_list())); },
      [](Between &b) { EXPECT_GSC_OK(gsc_scaler_discard(b.scaler, nullptr)); },
      [](Between &b) { EXPECT_GSC_OK(gsc_scaler_set_scale(b.scaler, 64.0F, nullptr)); },
      [&](Between &b) { b.scaler = make_scaler(context, 64.0F); }};
  for (const auto &cancel : cancels) {
    Between b(context);
    gsc_optimizer *optimizer = b.trainer.get();
    cancel(b);
    int64_t left = -1, bytes = 0;
    EXPECT_BAD_STATE(b.slice(1, &left), "optimizer has taken part of a step", "load its state");
    EXPECT_BAD_STATE(gsc_optimizer_step(optimizer, nullptr), "load its state");
    EXPECT_GSC_OK(gsc_optimizer_get_save_size(optimizer, &bytes));
    std::vector<char> image(bytes);
    EXPECT_BAD_STATE(gsc_optimizer_save_sync(optimizer, image.data(), bytes, nullptr), "load");
    const Training fresh(context, kAdamw);
    ASSERT_GSC_OK(load_image(optimizer, saved_image(fresh.trainer)));
    EXPECT_GSC_OK(b.slice(INT64_MAX, &left));
    EXPECT_EQ(left, 0);
  }
  // In the check nothing has moved.
  Training b(context, kAdamw);
  int64_t left = -1;
  ASSERT_GSC_OK(b.slice(1, &left));
  ASSERT_GSC_OK(gsc_scaler_discard(b.scaler, b.trainer.grad_list()));
  EXPECT_GSC_OK(gsc_scaler_step(b.scaler, b.trainer, nullptr));
}

/// The host's job system, in which a job of the slice's own region looks at the step.
struct Jobs {
  const Training *training = nullptr;
  static void run(void *user, int32_t count, gsc_task_fn body, void *argument) {
    auto *jobs = static_cast<Jobs *>(user);
    if (const Training *t = jobs->training) {
      EXPECT_BAD_STATE(gsc_scaler_discard(t->scaler, nullptr), "in use by a call");
      EXPECT_BAD_STATE(gsc_scaler_step(t->scaler, t->trainer, nullptr), "in use");
      EXPECT_BAD_STATE(gsc_optimizer_set_lr(t->trainer, 0, 1.0, nullptr), "in use");
      // A nested slice takes a share of the work.
      int64_t left = 0;
      jobs->training = nullptr;
      EXPECT_GSC_OK(t->slice(1, &left));
      EXPECT_GT(left, 0);
      jobs->training = t;
    }
    for (int32_t i = 0; i < count; ++i) body(argument, i);
  }
};

TEST(SlicesMisuse, ACallbackCannotPullTheStepAway) {
  Jobs jobs;
  const Context context = make_context(&Jobs::run, &jobs, 3);
  train(context, kAdamw, [&](const Training &sliced) {
    jobs.training = &sliced;
    for (int64_t left = 1; left > 0;) ASSERT_GSC_OK(sliced.slice(1000000, &left));
    jobs.training = nullptr;
  });
}

}  // namespace
}  // namespace gsc_test
