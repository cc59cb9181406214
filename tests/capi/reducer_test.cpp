// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads under a reducer: one overflows and all skip, clipping uses the norm over all ranks, one all-reduce a
// step with every kind of step, and a callback that fails, throws or leaves no sums changes nothing.
#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

/// A callback that goes wrong, and the status of the call it was made by.
struct Fault {
  int32_t (*act)(double *values);
  gsc_status status;
};
template <int kCount, int kSum>
int32_t leave_sums(double *values) {
  const double numbers[] = {0.0, 1.0, -1.0, 1e308, kInf, kNan};
  values[0] = numbers[kCount];
  values[1] = numbers[kSum];
  return 0;
}
// Two lists could even cancel out: -1 and 1 offenders.
const Fault kFaults[] = {
    {[](double *) { return int32_t{7}; }, GSC_ERROR_CALLBACK},
    {[](double *values) -> int32_t {
       values[0] = 5.0;  // as if a part had arrived
       throw std::bad_alloc();
     },
     GSC_ERROR_OUT_OF_MEMORY},
    {[](double *) -> int32_t { throw std::runtime_error("not today"); }, GSC_ERROR_CALLBACK},
    {[](double *) -> int32_t { throw 7; }, GSC_ERROR_CALLBACK},
    {leave_sums<5, 1>, GSC_ERROR_CALLBACK},
    {leave_sums<2, 1>, GSC_ERROR_CALLBACK},
    {leave_sums<3, 1>, GSC_ERROR_CALLBACK},
    {leave_sums<4, 1>, GSC_ERROR_CALLBACK},
    {leave_sums<0, 5>, GSC_ERROR_CALLBACK},
    {leave_sums<0, 2>, GSC_ERROR_CALLBACK},
};

/// Sums over threads; every rank must call it equally often.
class AllReduce {
 public:
  explicit AllReduce(int ranks) : ranks_(ranks) {}

  gsc_reducer reducer() { return {sizeof(gsc_reducer), 0, &AllReduce::call, this}; }
  int64_t calls() const { return calls_; }
  int64_t last_count() const { return last_count_; }
  void fail_next(const Fault &fault = kFaults[0]) { fault_ = &fault; }

 private:
  static int32_t call(void *user, double *values, int64_t count, gsc_stream) {
    return static_cast<AllReduce *>(user)->sum(values, count);
  }
  int32_t sum(double *values, int64_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++calls_;
    last_count_ = count;
    if (fault_ != nullptr) return std::exchange(fault_, nullptr)->act(values);
    if (arrived_ == 0) total_.assign(count, 0.0);
    for (int64_t i = 0; i < count; ++i) total_[i] += values[i];
    const int64_t round = round_;
    if (++arrived_ == ranks_) {
      result_ = total_;
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
    for (int64_t i = 0; i < count; ++i) values[i] = result_[i];
    return 0;
  }

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<double> total_, result_;
  int arrived_ = 0;
  int64_t round_ = 0;
  int64_t calls_ = 0;
  int64_t last_count_ = 0;
  const Fault *fault_ = nullptr;
};

/// One rank: its own context, scaler and trainer.
struct Rank {
  explicit Rank(AllReduce &all_reduce, const gsc_scaler_options &options, int index)
      : context(make_context()), trainer(context, spec(index)), scaler(make_scaler(context, options)) {
    const gsc_reducer reducer = all_reduce.reducer();
    EXPECT_GSC_OK(gsc_scaler_set_reducer(scaler, &reducer));
  }
  static TrainerSpec spec(int index) {
    // Ranks hold shards of different sizes; what they must agree on is only the verdict and the norm.
    return {.options = sgd_options(), .counts = {4, 10 * (index + 1)}, .grad_dtypes = {GSC_FP16}};
  }
  Context context;
  Trainer trainer;
  Scaler scaler;
};

void on_all(std::vector<std::unique_ptr<Rank>> &ranks, const std::function<void(Rank &, int)> &work) {
  on_threads(std::ssize(ranks), [&](int i) { work(*ranks[i], i); });
}

std::vector<std::unique_ptr<Rank>> make_ranks(AllReduce &all_reduce, int count, const gsc_scaler_options &options) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(std::make_unique<Rank>(all_reduce, options, i));
  return ranks;
}

TEST(Reducer, OneOverflowsAllSkip) {
  constexpr int kRanks = 3;
  AllReduce all_reduce(kRanks);
  auto ranks = make_ranks(all_reduce, kRanks, scaler_options(64.0f, 1));
  for (int iteration = 0; iteration < 4; ++iteration) {
    on_all(ranks, [&](Rank &rank, int index) {
      rank.trainer.fill_grads(1.0);
      if (iteration == 1 && index == 0) rank.trainer.grads()[1].set(3, kInf);
      if (iteration == 3 && index == 2) rank.trainer.grads()[0].set(0, kNan);
      const Snapshot before = rank.trainer.snapshot();
      EXPECT_GSC_OK(gsc_scaler_step(rank.scaler, rank.trainer, nullptr));
      EXPECT_EQ(rank.trainer.snapshot() == before, iteration % 2 == 1)
          << "iteration " << iteration << " rank " << index;
      EXPECT_GSC_OK(gsc_scaler_update(rank.scaler, nullptr));
    });
    for (const auto &rank : ranks) EXPECT_EQ(scale_of(rank->scaler), scale_of(ranks[0]->scaler));
  }
  EXPECT_EQ(scale_of(ranks[0]->scaler), 64.0f);
  EXPECT_EQ(all_reduce.calls(), 4 * kRanks) << "one all-reduce a step";
  EXPECT_EQ(all_reduce.last_count(), 2) << "of two doubles";
  for (const auto &rank : ranks) {
    EXPECT_EQ(applied_steps(rank->trainer), 2);
    EXPECT_EQ(skipped_steps(rank->trainer), 2);
  }
}

TEST(Reducer, ReportsSayWhatIsOwnAndWhatIsShared) {
  AllReduce all_reduce(2);
  auto ranks = make_ranks(all_reduce, 2, scaler_options(2.0f));
  on_all(ranks, [](Rank &rank, int index) {
    rank.trainer.fill_grads(index == 0 ? 2.0 : 6.0);
    if (index == 1) rank.trainer.grads()[1].set(7, kInf);
    EXPECT_GSC_OK(gsc_scaler_check(rank.scaler, rank.trainer.grad_list(), nullptr));
    const gsc_report report = report_of(rank.scaler, rank.trainer.grad_list());
    EXPECT_NE(report.flags & GSC_REPORT_OVERFLOW, 0u);
    EXPECT_EQ(report.nonfinite_count, 1);
    EXPECT_FALSE(std::isfinite(report.grad_norm));
    EXPECT_EQ(report.inf_count, index);
    EXPECT_EQ(report.first_tensor, index == 1 ? 1 : -1);
    EXPECT_EQ(report.first_element, index == 1 ? 7 : -1);
    EXPECT_EQ(report.grad_amax, index == 0 ? 1.0 : 3.0);
  });
}

TEST(Reducer, ClipsByTheNormOverAllRanks) {
  for (const bool unscale_first : {false, true}) {
    AllReduce all_reduce(2);
    auto ranks = make_ranks(all_reduce, 2, scaler_options(4.0f));
    // 14 + 24 gradients of 8: unscaled 2, so the norm over both is 2 * sqrt(38).
    const double norm = 2.0 * std::sqrt(38.0);
    on_all(ranks, [&](Rank &rank, int) {
      rank.trainer.fill_grads(8.0);
      const std::vector<double> before = rank.trainer.params()[0].values();
      gsc_scaler *const s = rank.scaler;
      gsc_tensor_list *const grads = rank.trainer.grad_list();
      if (unscale_first) {
        EXPECT_GSC_OK(gsc_scaler_unscale(s, grads, nullptr));
      }
      EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(s, grads, 1.0, GSC_NORM_L2, nullptr));
      EXPECT_GSC_OK(gsc_scaler_step(s, rank.trainer, nullptr));
      EXPECT_GSC_OK(gsc_scaler_update(s, nullptr));
      EXPECT_NEAR(report_of(rank.scaler, grads).grad_norm, norm, 1e-9);
      const double expected = 2.0 / (norm + 1e-6);
      // Unscaled fp16 gradients are clipped in fp16.
      const double allowed = unscale_first ? ulp(expected, GSC_FP16) : 1e-6;
      EXPECT_NEAR(before[0] - rank.trainer.params()[0].get(0), expected, allowed);
    });
    EXPECT_EQ(all_reduce.calls(), 2) << "the check's all-reduce brings the norm too";
  }
}

TEST(Reducer, OneAllReduceWhicheverWay) {
  const std::function<void(Rank &)> ways[] = {
      [](Rank &r) { EXPECT_GSC_OK(gsc_scaler_step(r.scaler, r.trainer, nullptr)); },
      [](Rank &r) {
        EXPECT_GSC_OK(gsc_scaler_check(r.scaler, r.trainer.grad_list(), nullptr));
        EXPECT_GSC_OK(gsc_scaler_step(r.scaler, r.trainer, nullptr));
      },
      [](Rank &r) {
        EXPECT_GSC_OK(gsc_scaler_unscale(r.scaler, r.trainer.grad_list(), nullptr));
        EXPECT_GSC_OK(gsc_scaler_step(r.scaler, r.trainer, nullptr));
      },
      [](Rank &r) {
        EXPECT_GSC_OK(gsc_scaler_check_range(r.scaler, r.trainer.grad_list(), 1, 1, nullptr));
        EXPECT_GSC_OK(gsc_scaler_check_range(r.scaler, r.trainer.grad_list(), 0, 1, nullptr));
        EXPECT_GSC_OK(gsc_scaler_step(r.scaler, r.trainer, nullptr));
      },
      [](Rank &r) {
        int32_t apply = 0;
        EXPECT_GSC_OK(gsc_scaler_should_step_sync(r.scaler, r.trainer.grad_list(), &apply, nullptr));
        EXPECT_EQ(apply, 1);
      },
  };
  for (const auto &way : ways) {
    AllReduce all_reduce(1);
    Rank rank(all_reduce, scaler_options(4.0f), 0);
    way(rank);
    EXPECT_GSC_OK(gsc_scaler_update(rank.scaler, nullptr));
    EXPECT_EQ(all_reduce.calls(), 1);
  }
}

TEST(Reducer, FailureChangesNothingAndCanBeRetried) {
  for (const Fault &fault : kFaults) {
    SCOPED_TRACE(&fault - kFaults);
    AllReduce all_reduce(1);
    Rank rank(all_reduce, scaler_options(4.0f), 0);
    gsc_scaler *const s = rank.scaler;
    rank.trainer.fill_grads(8.0);
    const Snapshot before = rank.trainer.snapshot();
    const gsc_scaler_state state = state_of(rank.scaler);
    const auto expect_nothing = [&](const std::function<gsc_status()> &call) {
      all_reduce.fail_next(fault);
      EXPECT_GSC_ERROR(call(), fault.status, "all_reduce");
      EXPECT_TRUE(rank.trainer.snapshot().same_with_grads(before));
      EXPECT_TRUE(same_bytes(state_of(rank.scaler), state));
      EXPECT_EQ(skipped_steps(rank.trainer), 0);
      EXPECT_BAD_STATE(gsc_scaler_update(s, nullptr), "no list");
      EXPECT_BAD_STATE(report_status(rank.scaler, rank.trainer.grad_list()), "checked");
    };
    expect_nothing([&] { return gsc_scaler_step(s, rank.trainer, nullptr); });
    expect_nothing([&] { return gsc_scaler_step_and_update(s, rank.trainer, nullptr); });
    expect_nothing([&] { return gsc_scaler_check(s, rank.trainer.grad_list(), nullptr); });
    const gsc_reducer reducer = all_reduce.reducer();
    EXPECT_GSC_OK(gsc_scaler_set_reducer(s, &reducer)) << "the list is in no iteration";
    EXPECT_GSC_OK(gsc_scaler_step_and_update(s, rank.trainer, nullptr));
    EXPECT_EQ(applied_steps(rank.trainer), 1);
    EXPECT_EQ(rank.trainer.grads()[0].get(0), 8.0);
    // The report of that step goes too when the next check fails half way.
    EXPECT_GSC_OK(report_status(rank.scaler, rank.trainer.grad_list()));
    all_reduce.fail_next(fault);
    EXPECT_GSC_ERROR(gsc_scaler_check(s, rank.trainer.grad_list(), nullptr), fault.status, "all_reduce");
    EXPECT_BAD_STATE(report_status(rank.scaler, rank.trainer.grad_list()), "checked");
  }
}

/// unscale has written the gradients by then.
TEST(Reducer, FailureInUnscaleSkipsTheStep) {
  for (const Fault &fault : kFaults) {
    SCOPED_TRACE(&fault - kFaults);
    AllReduce all_reduce(1);
    Rank rank(all_reduce, scaler_options(4.0f), 0);
    rank.trainer.fill_grads(4.0);
    all_reduce.fail_next(fault);
    EXPECT_GSC_ERROR(gsc_scaler_unscale(rank.scaler, rank.trainer.grad_list(), nullptr), fault.status, "all_reduce",
                     "will be skipped");
    EXPECT_EQ(rank.trainer.grads()[1].get(9), 1.0);
    EXPECT_GSC_OK(gsc_scaler_step_and_update(rank.scaler, rank.trainer, nullptr));
    EXPECT_EQ(skipped_steps(rank.trainer), 1);
    EXPECT_EQ(report_of(rank.scaler).nonfinite_count, 1);
    EXPECT_EQ(report_of(rank.scaler).grad_norm, kInf);
    EXPECT_EQ(scale_of(rank.scaler), 2.0f);
  }
}

/// A check by ranges whose all-reduce failed starts over: every range can and must be checked again. Also when a clip
/// is waiting, which keeps the list in the iteration.
TEST(Reducer, FailureForgetsTheRanges) {
  for (const bool clip : {false, true}) {
    AllReduce all_reduce(1);
    Rank rank(all_reduce, scaler_options(4.0f), 0);
    gsc_scaler *const s = rank.scaler;
    gsc_tensor_list *const grads = rank.trainer.grad_list();
    int64_t count = 0;
    ASSERT_GSC_OK(gsc_tensor_list_get_count(grads, &count));
    if (clip) {
      ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(s, grads, 1.0, GSC_NORM_L2, nullptr));
    }
    ASSERT_GSC_OK(gsc_scaler_check_range(s, grads, 0, 1, nullptr));
    all_reduce.fail_next();
    EXPECT_GSC_ERROR(gsc_scaler_check_range(s, grads, 1, count - 1, nullptr), GSC_ERROR_CALLBACK, "all_reduce");
    ASSERT_GSC_OK(gsc_scaler_check_range(s, grads, 0, 1, nullptr));
    EXPECT_BAD_STATE(gsc_scaler_update(s, nullptr), "check_range has checked 1");
    ASSERT_GSC_OK(gsc_scaler_check_range(s, grads, 1, count - 1, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(s, nullptr));
  }
}

TEST(Reducer, CanBeRemoved) {
  AllReduce all_reduce(1);
  Rank rank(all_reduce, scaler_options(4.0f), 0);
  ASSERT_GSC_OK(gsc_scaler_set_reducer(rank.scaler, nullptr));
  ASSERT_GSC_OK(gsc_scaler_step_and_update(rank.scaler, rank.trainer, nullptr));
  EXPECT_EQ(all_reduce.calls(), 0);
}

TEST(Reducer, NoInfNorm) {
  AllReduce all_reduce(1);
  Rank rank(all_reduce, scaler_options(4.0f), 0);
  EXPECT_GSC_ERROR(gsc_scaler_clip_grad_norm(rank.scaler, rank.trainer.grad_list(), 1.0, GSC_NORM_INF, nullptr),
                   GSC_ERROR_UNSUPPORTED, "GSC_NORM_INF");
}

}  // namespace
}  // namespace gsc_test
