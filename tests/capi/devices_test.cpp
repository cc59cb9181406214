// SPDX-License-Identifier: Apache-2.0
//
// Lists of several devices under one scaler, with CPU contexts as the devices: the same results, bit for bit, as with
// all lists on the scaler's own device, for any calls of an iteration, and only the scaler's device is special.
#include <functional>
#include <new>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

constexpr int kDevices = 3;

TrainerSpec spec(int index) {
  return {.options = optimizer_options(GSC_ADAMW),
          .counts = {3, 1000 * (index + 1)},
          .grad_dtypes = {GSC_FP16},
          .copy_dtype = GSC_BF16,
          .seed = static_cast<uint64_t>(index + 1)};
}

/// A scaler on the first of `contexts` and a trainer on each; trainers beyond the last context share it.
struct Job {
  explicit Job(int count) {
    for (int i = 0; i < count; ++i) contexts.push_back(make_context());
    scaler = make_scaler(contexts[0], scaler_options(1024.0f, 2));
    for (int i = 0; i < kDevices; ++i) {
      const auto device = static_cast<size_t>(std::min(i, count - 1));
      trainers.push_back(std::make_unique<Trainer>(contexts[device], spec(i)));
    }
  }
  std::vector<Context> contexts;
  Scaler scaler;
  std::vector<std::unique_ptr<Trainer>> trainers;
};

using Way = std::function<void(gsc_scaler *, Trainer &)>;

const Way kWays[] = {
    [](gsc_scaler *s, Trainer &t) { EXPECT_GSC_OK(gsc_scaler_step(s, t, nullptr)); },
    [](gsc_scaler *s, Trainer &t) {
      EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(s, t.grad_list(), 0.5, GSC_NORM_L2, nullptr));
      EXPECT_GSC_OK(gsc_scaler_clip_grad_value(s, t.grad_list(), 0.01, nullptr));
      EXPECT_GSC_OK(gsc_scaler_step(s, t, nullptr));
    },
    [](gsc_scaler *s, Trainer &t) {
      EXPECT_GSC_OK(gsc_scaler_unscale(s, t.grad_list(), nullptr));
      EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(s, t.grad_list(), 0.5, GSC_NORM_INF, nullptr));
      EXPECT_GSC_OK(gsc_scaler_step(s, t, nullptr));
    },
    [](gsc_scaler *s, Trainer &t) {
      EXPECT_GSC_OK(gsc_scaler_check_range(s, t.grad_list(), 1, 1, nullptr));
      EXPECT_GSC_OK(gsc_scaler_step(s, t, nullptr));
    },
    [](gsc_scaler *s, Trainer &t) {
      int32_t apply = -1;
      EXPECT_GSC_OK(gsc_scaler_should_step_sync(s, t.grad_list(), &apply, nullptr));
      EXPECT_EQ(apply, std::isfinite(t.grads()[1].get(5)) ? 1 : 0);
    },
};

void expect_same_reports(const gsc_report &a, const gsc_report &b) {
  EXPECT_EQ(a.flags, b.flags);
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.updates, b.updates);
  EXPECT_EQ(a.skipped, b.skipped);
  EXPECT_EQ(a.grad_amax, b.grad_amax);
  EXPECT_EQ(a.nonfinite_count, b.nonfinite_count);
  EXPECT_EQ(a.first_tensor, b.first_tensor);
  EXPECT_EQ(a.first_element, b.first_element);
  EXPECT_TRUE(a.grad_norm == b.grad_norm || (std::isnan(a.grad_norm) && std::isnan(b.grad_norm)));
}

TEST(Devices, SameBitsAsOnOneDevice) {
  for (const Way &way : kWays) {
    SCOPED_TRACE(&way - kWays);
    Job one(1);
    Job many(kDevices);
    for (int iteration = 0; iteration < 8; ++iteration) {
      SCOPED_TRACE(iteration);
      for (size_t i = 0; i < kDevices; ++i) {
        for (Job *job : {&one, &many}) {
          Trainer &trainer = *job->trainers[i];
          Random random(static_cast<uint64_t>(iteration) * 10 + i);
          trainer.fill_grads(random, 0.25, scale_of(job->scaler));
          // One device after the other overflows, then none.
          if (iteration % 4 == static_cast<int>(i)) trainer.grads()[1].set(5, i == 1 ? kNan : kInf);
          way(job->scaler, trainer);
        }
        expect_same_reports(report_of(many.scaler, many.trainers[i]->grad_list()),
                            report_of(one.scaler, one.trainers[i]->grad_list()));
        EXPECT_TRUE(many.trainers[i]->snapshot().same_with_grads(one.trainers[i]->snapshot()));
      }
      for (const Job *job : {&one, &many}) EXPECT_GSC_OK(gsc_scaler_update(job->scaler, nullptr));
      expect_same_reports(report_of(many.scaler), report_of(one.scaler));
      EXPECT_EQ(report_of(many.scaler).nonfinite_count, iteration % 4 == 3 ? 0 : 1);
    }
    const gsc_scaler_state a = state_of(many.scaler);
    const gsc_scaler_state b = state_of(one.scaler);
    EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
    EXPECT_NE(a.skipped, 0);
  }
}

TEST(Devices, AListReadsTheScaleOfItsIteration) {
  Job job(2);
  Trainer &away = *job.trainers[1];
  gsc_scaler *const s = job.scaler;
  auto state = with_size<gsc_device_state>();
  EXPECT_BAD_STATE(gsc_scaler_get_device_state(s, away.grad_list(), &state), "grads");
  for (const float scale : {8.0f, 32.0f}) {
    for (Buffer &buffer : away.grads()) buffer.fill(2.0 * scale);
    ASSERT_GSC_OK(gsc_scaler_set_scale(s, scale, nullptr));
    ASSERT_GSC_OK(gsc_scaler_unscale(s, away.grad_list(), nullptr));
    EXPECT_EQ(away.grads()[1].get(999), 2.0);
    ASSERT_GSC_OK(gsc_scaler_get_device_state(s, away.grad_list(), &state));
    EXPECT_EQ(*state.scale, scale);
    EXPECT_EQ(*state.inv_scale, 1.0f / scale);
    EXPECT_EQ(*state.found_inf, 0.0f);
    auto home = with_size<gsc_device_state>();
    ASSERT_GSC_OK(gsc_scaler_get_device_state(s, nullptr, &home));
    EXPECT_NE(state.scale, home.scale);
  }
}

TEST(Devices, DiscardAndRestore) {
  Job job(2);
  Trainer &away = *job.trainers[1];
  gsc_scaler *const s = job.scaler;
  const gsc_scaler_state saved = state_of(job.scaler);
  away.grads()[0].set(0, kInf);
  ASSERT_GSC_OK(gsc_scaler_check(s, away.grad_list(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_discard(s, away.grad_list()));
  EXPECT_BAD_STATE(gsc_scaler_update(s, nullptr), "update");
  ASSERT_GSC_OK(gsc_scaler_step(s, away, nullptr));
  ASSERT_GSC_OK(gsc_scaler_update(s, nullptr));
  EXPECT_EQ(skipped_steps(away.optimizer()), 1);
  EXPECT_EQ(scale_of(job.scaler), 512.0f);
  ASSERT_GSC_OK(gsc_scaler_check(s, away.grad_list(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_set_state(s, &saved, nullptr));
  EXPECT_EQ(scale_of(job.scaler), 1024.0f);
  EXPECT_GSC_OK(gsc_scaler_check(s, away.grad_list(), nullptr)) << "back at READY";
}

/// Two scalers of one context take a list of another in turn.
TEST(Devices, TheLastScalerToTakeAListHasItsState) {
  Job job(2);
  Trainer &away = *job.trainers[1];
  for (Buffer &buffer : away.grads()) buffer.fill(4.0);
  gsc_scaler *const first = job.scaler;
  Scaler second = make_scaler(job.contexts[0], 2.0f);
  ASSERT_GSC_OK(gsc_scaler_check(first, away.grad_list(), nullptr));
  const double norm = report_of(job.scaler, away.grad_list()).grad_norm;
  EXPECT_GT(norm, 0.0);
  ASSERT_GSC_OK(gsc_scaler_update(first, nullptr));
  auto state = with_size<gsc_device_state>();
  ASSERT_GSC_OK(gsc_scaler_get_device_state(first, away.grad_list(), &state));
  const float *const scale = state.scale;
  EXPECT_EQ(*scale, 1024.0f);
  EXPECT_BAD_STATE(gsc_scaler_get_device_state(second, away.grad_list(), &state), "grads");
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(second, away.grad_list(), 1.0, GSC_NORM_L2, nullptr));
  EXPECT_BAD_STATE(gsc_scaler_get_device_state(first, away.grad_list(), &state), "grads");
  // One of the list's own context, too, is the last to use it.
  ASSERT_GSC_OK(gsc_scaler_discard(second, away.grad_list()));
  const Scaler own = make_scaler(job.contexts[1], 4.0f);
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(own, away.grad_list(), 1.0, GSC_NORM_L2, nullptr));
  EXPECT_BAD_STATE(gsc_scaler_get_device_state(second, away.grad_list(), &state), "grads");
  ASSERT_GSC_OK(gsc_scaler_discard(own, away.grad_list()));
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(second, away.grad_list(), 1.0, GSC_NORM_L2, nullptr));
  second.reset();
  EXPECT_EQ(report_of(job.scaler, away.grad_list()).grad_norm, norm);
  EXPECT_EQ(*scale, 2.0f) << "valid as long as the list";
  const Context third = make_context();
  const Scaler other = make_scaler(third, 8.0f);
  ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(other, away.grad_list(), 1.0, GSC_NORM_L2, nullptr));
  EXPECT_BAD_STATE(report_status(job.scaler, away.grad_list()), "grads", "third");
}

bool is_out_of_memory = false;
void *allocate_or_refuse(void *, int64_t bytes, int64_t alignment) {
  if (is_out_of_memory) return nullptr;
  return ::operator new(static_cast<size_t>(bytes), std::align_val_t(static_cast<size_t>(alignment)), std::nothrow);
}

TEST(Devices, AnAppliedStepDoesNotRunOutOfMemory) {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.num_threads = 1;
  options.allocate = allocate_or_refuse;
  options.release = [](void *, void *memory, int64_t, int64_t alignment) {
    ::operator delete(memory, std::align_val_t(static_cast<size_t>(alignment)));
  };
  const Context home = make_context(options);
  const Context there = make_context();
  Buffer params(GSC_FP32, 2), grads(GSC_FP32, 2);
  grads.fill(1.0);
  const List p = make_list(there, params), g = make_list(there, grads);
  const Optimizer optimizer = make_optimizer(there, sgd_options(), p, g);
  const Scaler scaler = make_scaler(home, disabled_options());
  ASSERT_GSC_OK(gsc_scaler_unscale(scaler, g, nullptr));
  is_out_of_memory = true;
  EXPECT_GSC_OK(gsc_scaler_step(scaler, optimizer, nullptr));
  is_out_of_memory = false;
  EXPECT_EQ(params.get(0), -1.0);
}

/// Lists that are rebuilt in every iteration would otherwise stay until the scaler is destroyed.
TEST(Devices, ADisabledScalerLetsGoOfItsListsAtUpdate) {
  int64_t live = 0;
  gsc_context_options counting = GSC_CONTEXT_OPTIONS_INIT;
  counting.num_threads = 1;
  counting.allocate = [](void *user, int64_t bytes, int64_t alignment) {
    ++*static_cast<int64_t *>(user);
    return ::operator new(static_cast<size_t>(bytes), std::align_val_t(static_cast<size_t>(alignment)), std::nothrow);
  };
  counting.release = [](void *user, void *memory, int64_t, int64_t alignment) {
    --*static_cast<int64_t *>(user);
    ::operator delete(memory, std::align_val_t(static_cast<size_t>(alignment)));
  };
  counting.allocator_user = &live;
  gsc_context *created = nullptr;
  ASSERT_GSC_OK(gsc_context_create(&counting, &created));
  const Context home = make_context(), there(created);
  const Scaler scaler = make_scaler(home, disabled_options());
  const int64_t before = live;
  for (int iteration = 0; iteration < 3; ++iteration) {
    Buffer grads(GSC_FP32, 4);
    const List g = make_list(there, grads);
    ASSERT_GSC_OK(gsc_scaler_unscale(scaler, g, nullptr));
    ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  }
  EXPECT_EQ(live, before);
}

TEST(Devices, StepAndUpdateNeedsTheScalersOwnDevice) {
  Job job(2);
  EXPECT_INVALID(gsc_scaler_step_and_update(job.scaler, job.trainers[1]->get(), nullptr), "context", "update");
  EXPECT_EQ(applied_steps(job.trainers[1]->optimizer()), 0);
  ASSERT_GSC_OK(gsc_scaler_step(job.scaler, job.trainers[1]->get(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_step_and_update(job.scaler, job.trainers[0]->get(), nullptr));
  EXPECT_EQ(report_of(job.scaler).updates, 1);
}

}  // namespace
}  // namespace gsc_test
