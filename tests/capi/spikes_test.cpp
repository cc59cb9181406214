// SPDX-License-Identifier: Apache-2.0
//
// Steps that are skipped for their gradient norm. Most tests train one parameter, whose gradient is its norm; tests/oracle
// has the rule beside random programs.
#include <cmath>

#include "tests/support/objects.h"

namespace gsc_test {
namespace {

gsc_scaler_options check_options() { return preset_options(GSC_PRESET_CHECK); }
gsc_scaler_options limited_to(double norm) {
  gsc_scaler_options options = check_options();
  options.skip_norm = norm;
  return options;
}
/// Twice the average, whatever the noise, from the second of 4 norms on.
gsc_scaler_options relative() {
  gsc_scaler_options options = check_options();
  options.spike_factor = 2.0;
  options.spike_deviations = 0.0;
  options.spike_window = 4;
  return options;
}

/// A model with one fp64 parameter, trained by SGD with lr 1.
class Model {
 public:
  explicit Model(const gsc_scaler_options &options, int32_t scaler_threads = 0)
      : home_(scaler_threads > 0 ? make_context(scaler_threads) : Context()),
        params_(make_list(context_, param_)),
        grads_(make_list(context_, grad_)),
        scaler_(make_scaler(scaler_threads > 0 ? home_ : context_, options)),
        optimizer_(make_optimizer(context_, sgd_options(), params_, grads_)) {}

  gsc_scaler *scaler() const { return scaler_; }
  gsc_tensor_list *grads() const { return grads_; }
  gsc_optimizer *optimizer() const { return optimizer_; }
  double param() const { return param_.get(0); }
  void set_grad(double value) { grad_.set(0, value); }
  double grad() const { return grad_.get(0); }
  gsc_report report() const { return report_of(scaler_, grads_); }

  /// '.' a step that was taken, 's' one that was skipped for its norm, 'x' for an inf or NaN.
  char step(double norm) {
    set_grad(norm);
    EXPECT_GSC_OK(gsc_scaler_step(scaler_, optimizer_, nullptr));
    return end();
  }
  char step_and_update(double norm) {
    set_grad(norm);
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler_, optimizer_, nullptr));
    return verdict();
  }
  char step_in_slices(double norm) {
    set_grad(norm);
    int64_t left = 1;
    while (left > 0) EXPECT_GSC_OK(gsc_scaler_step_slice(scaler_, optimizer_, 1, &left, nullptr));
    return end();
  }
  char end() {
    EXPECT_GSC_OK(gsc_scaler_update(scaler_, nullptr));
    return verdict();
  }
  std::string run(const std::vector<double> &norms) {
    std::string verdicts;
    for (const double norm : norms) verdicts += step(norm);
    return verdicts;
  }

 private:
  char verdict() {
    auto report = with_size<gsc_report>();
    gsc_scaler_get_report_sync(scaler_, nullptr, &report, nullptr);
    const bool moved = param() != before_;
    before_ = param();
    const bool overflow = (report.flags & GSC_REPORT_OVERFLOW) != 0, spike = (report.flags & GSC_REPORT_SPIKE) != 0;
    EXPECT_EQ(moved, !overflow && !spike && grad() != 0.0);
    return overflow ? 'x' : spike ? 's' : '.';
  }

  Context context_ = make_context(), home_;
  Buffer param_{GSC_FP64, 1}, grad_{GSC_FP64, 1};
  List params_, grads_;
  Scaler scaler_;
  Optimizer optimizer_;
  double before_ = 0.0;
};

TEST(Spikes, AFixedLimit) {
  Model model(limited_to(10.0));
  EXPECT_EQ(model.run({1, 5, 10, 10.001, kInf, 1e100, 10, kNan, 0}), "...sxs.x.");
}

TEST(Spikes, AFixedLimitAfterItsWarmup) {
  gsc_scaler_options options = limited_to(10.0);
  options.spike_warmup = 3;
  Model model(options);
  EXPECT_EQ(model.run({100, 100, kInf, 100, 100, 1}), "..x.s.");
}

TEST(Spikes, AMultipleOfTheAverage) {
  for (const auto step : {&Model::step, &Model::step_and_update, &Model::step_in_slices}) {
    Model model(relative());
    std::string verdicts;
    for (const double norm : {100.0, 100.0, 199.9, 300.0, 100.0, 0.0, 300.0, kNan, 300.0})
      verdicts += (model.*step)(norm);
    EXPECT_EQ(verdicts, "...s..sxs");
  }
}

/// The first norms: weights 1, 2/3, 2/4, 2/5, ... and then 1/4.
TEST(Spikes, TheAverageIsGeometric) {
  gsc_scaler_options options = relative();
  options.spike_factor = 1e6;
  Model model(options);
  double mean = 0.0, count = 0.0;
  for (const double norm : {8.0, 2.0, 32.0, 1.0, 4.0, 4.0, 64.0, 3.0, 0.0, 5.0}) {
    model.step(norm);
    if (norm > 0.0) mean += std::max(0.25, 2.0 / (count++ + 2.0)) * (std::log2(norm) - mean);
    EXPECT_NEAR(std::log2(model.report().norm_average), mean, 1e-12) << norm;
  }
}

TEST(Spikes, NoiseWidensTheLimit) {
  gsc_scaler_options options = relative();
  options.spike_deviations = 5.0;
  options.spike_window = 16;
  Model noisy(options), calm(options);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(noisy.step(i % 2 == 0 ? 1.0 : 3.0), '.');
    EXPECT_EQ(calm.step(i % 2 == 0 ? 1.0 : 1.01), '.');
  }
  EXPECT_EQ(noisy.step(6.0), '.');
  EXPECT_EQ(calm.step(2.1), 's');
  EXPECT_EQ(noisy.step(200.0), 's');
}

TEST(Spikes, ALevelThatStaysIsTaken) {
  gsc_scaler_options options = relative();
  options.spike_patience = 3;
  Model model(options);
  EXPECT_EQ(model.run({1, 1, 1, 1}), "....");
  EXPECT_EQ(model.run({40, 30, 50, 40}), "sss.");
  EXPECT_NEAR(model.report().norm_average, std::pow(40.0 * 30 * 50 * 40, 0.25), 1e-9);
  EXPECT_EQ(model.run({40, 70, 1000, 40}), "..s.");
}

/// Norms far below the average do not enter it either, unless they stay.
TEST(Spikes, ALevelThatFallsIsFollowed) {
  gsc_scaler_options options = relative();
  options.spike_patience = 3;
  options.spike_window = 16;
  Model model(options);
  model.run(std::vector<double>(16, 64.0));
  EXPECT_EQ(model.run({1, 1, 1}), "...");
  EXPECT_NEAR(model.report().norm_average, 64.0, 1e-9);
  EXPECT_EQ(model.run({1}), ".");
  EXPECT_NEAR(model.report().norm_average, 1.0, 1e-9);
  EXPECT_EQ(model.run({64}), "s");
}

/// A norm that is far off before steps are skipped for it is taken and does not count.
TEST(Spikes, AnEarlyOutlierIsLeftOutOfTheAverage) {
  gsc_scaler_options options = relative();
  options.spike_window = 64;
  Model model(options);
  model.run(std::vector<double>(10, 1.0));
  EXPECT_EQ(model.run({1000}), ".");
  EXPECT_NEAR(model.report().norm_average, 1.0, 1e-9);
}

TEST(Spikes, WithoutPatienceTheyDoNotEnd) {
  gsc_scaler_options options = relative();
  options.spike_patience = 0;
  Model model(options);
  model.run({1, 1});
  EXPECT_EQ(model.run(std::vector<double>(200, 10.0)), std::string(200, 's'));
}

struct Log {
  int warnings = 0;
  std::string last;
};

TEST(Spikes, AnErrorAfterItsPatience) {
  Log log;
  gsc_scaler_options options = limited_to(10.0);
  options.spike_patience = 2;
  options.spike_action = GSC_SPIKE_ERROR;
  gsc_context_options context_options = GSC_CONTEXT_OPTIONS_INIT;
  context_options.log = [](void *user, int32_t level, const char *message) {
    if (level != GSC_LOG_WARNING) return;
    ++static_cast<Log *>(user)->warnings;
    static_cast<Log *>(user)->last = message;
  };
  context_options.log_user = &log;
  const Context context = make_context(context_options);
  Buffer grad(GSC_FP32, 1);
  const List grads = make_list(context, grad);
  const Scaler scaler = make_scaler(context, options);
  const auto update = [&](double norm) {
    grad.set(0, norm);
    EXPECT_GSC_OK(gsc_scaler_check(scaler, grads, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
  };
  update(20);
  EXPECT_EQ(report_status(scaler), GSC_OK);
  EXPECT_EQ(log.warnings, 0);
  update(30);
  auto report = with_size<gsc_report>();
  EXPECT_GSC_ERROR(gsc_scaler_get_report_sync(scaler, nullptr, &report, nullptr), GSC_ERROR_SPIKES, "30", "10", "2");
  EXPECT_EQ(report.flags, uint32_t{GSC_REPORT_SPIKE | GSC_REPORT_SPIKES_PERSIST});
  EXPECT_EQ(report_status(scaler, grads), GSC_ERROR_SPIKES);
  EXPECT_EQ(log.warnings, 1);
  EXPECT_NE(log.last.find("30"), std::string::npos);
  update(40);
  EXPECT_EQ(report_status(scaler), GSC_ERROR_SPIKES);
  update(1);
  EXPECT_EQ(report_status(scaler), GSC_OK);
  EXPECT_EQ(log.warnings, 2);
}

TEST(Spikes, TheScaleAndItsTrackersStay) {
  gsc_scaler_options options = scaler_options(1024.0f, 3);
  options.hysteresis = 2;
  options.skip_norm = 10.0;
  Model model(options);
  EXPECT_EQ(model.run({1024, 1024 * 20, 1024 * 20, 1024}), ".ss.");
  const gsc_scaler_state state = state_of(model.scaler());
  EXPECT_EQ(state.scale, 1024.0f);
  EXPECT_EQ(state.growth_tracker, 2);
  EXPECT_EQ(state.hysteresis_tracker, 2);
  EXPECT_EQ(state.updates, 4);
  EXPECT_EQ(state.skipped, 2);
  EXPECT_EQ(state.spikes, 2);
  EXPECT_EQ(state.consecutive_skips, 0);
  EXPECT_EQ(applied_steps(model.optimizer()), 2);
  EXPECT_EQ(skipped_steps(model.optimizer()), 2);
  EXPECT_EQ(model.step(1024), '.');
  EXPECT_EQ(scale_of(model.scaler()), 2048.0f);
}

TEST(Spikes, ReportHistoryAndDeviceState) {
  gsc_scaler_options options = limited_to(10.0);
  options.history_capacity = 4;
  Model model(options);
  auto state = with_size<gsc_device_state>();
  EXPECT_GSC_OK(gsc_scaler_get_device_state(model.scaler(), model.grads(), &state));
  EXPECT_EQ(model.run({1, 20, kInf}), ".sx");
  const gsc_report last = report_of(model.scaler());
  EXPECT_EQ(last.flags, uint32_t{GSC_REPORT_OVERFLOW});
  EXPECT_EQ(last.consecutive_skips, 2);
  EXPECT_EQ(last.skipped, 2);
  EXPECT_EQ(last.spikes, 1);
  model.set_grad(20);
  EXPECT_GSC_OK(gsc_scaler_check(model.scaler(), model.grads(), nullptr));
  EXPECT_EQ(*state.found_inf, 1.0f);
  EXPECT_EQ(*state.spike, 2);
  EXPECT_EQ(*state.norm_limit, 10.0);
  EXPECT_EQ(*state.grad_norm, 20.0);
  const gsc_report report = model.report();
  EXPECT_EQ(report.flags, uint32_t{GSC_REPORT_SPIKE});
  EXPECT_EQ(report.norm_limit, 10.0);
  EXPECT_EQ(report.grad_norm, 20.0);
  EXPECT_EQ(report.nonfinite_count, 0);
  gsc_history_entry entries[4];
  int64_t count = 0;
  EXPECT_GSC_OK(gsc_scaler_get_history_sync(model.scaler(), entries, 4, &count, nullptr));
  ASSERT_EQ(count, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(entries[i].spike, i == 1) << i;
    EXPECT_EQ(entries[i].overflow, i == 2) << i;
    EXPECT_EQ(entries[i].norm_limit, 10.0) << i;
  }
}

TEST(Spikes, NoLimitIsInf) {
  Model model(check_options());
  EXPECT_EQ(model.step(1e100), '.');
  EXPECT_EQ(model.report().norm_limit, kInf);
  EXPECT_EQ(model.report().norm_average, 0.0);
}

/// The norm before clipping decides, and a skipped step clips nothing.
TEST(Spikes, BesideClipping) {
  for (const bool unscales : {false, true}) {
    Model model(limited_to(10.0));
    for (const double norm : {8.0, 20.0}) {
      model.set_grad(norm);
      if (unscales) {
        EXPECT_GSC_OK(gsc_scaler_unscale(model.scaler(), model.grads(), nullptr));
      }
      EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(model.scaler(), model.grads(), 1.0, GSC_NORM_L2, nullptr));
      EXPECT_GSC_OK(gsc_scaler_step(model.scaler(), model.optimizer(), nullptr));
      EXPECT_EQ(model.end(), norm == 8.0 ? '.' : 's');
    }
    EXPECT_NEAR(model.param(), -1.0, 1e-6);
    EXPECT_EQ(model.grad(), 20.0);
  }
}

TEST(Spikes, YourOwnOptimizerIsTold) {
  Model model(limited_to(10.0));
  int32_t apply = -1;
  model.set_grad(20);
  EXPECT_GSC_OK(gsc_scaler_should_step_sync(model.scaler(), model.grads(), &apply, nullptr));
  EXPECT_EQ(apply, 0);
  EXPECT_EQ(model.end(), 's');
}

/// A check that is taken back does not count.
TEST(Spikes, OneNormForEachUpdate) {
  gsc_scaler_options options = relative();
  options.spike_factor = 1e6;
  Model model(options);
  EXPECT_EQ(model.run({4}), ".");
  for (int i = 0; i < 3; ++i) {
    model.set_grad(1e3);
    EXPECT_GSC_OK(gsc_scaler_check(model.scaler(), model.grads(), nullptr));
    EXPECT_GSC_OK(gsc_scaler_discard(model.scaler(), nullptr));
  }
  model.set_grad(32);
  EXPECT_GSC_OK(gsc_scaler_check(model.scaler(), model.grads(), nullptr));
  EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(model.scaler(), model.grads(), 1.0, GSC_NORM_L2, nullptr));
  EXPECT_GSC_OK(gsc_scaler_step(model.scaler(), model.optimizer(), nullptr));
  EXPECT_EQ(model.end(), '.');
  EXPECT_NEAR(std::log2(model.report().norm_average), 2 + 2.0 / 3 * 3, 1e-12);
}

TEST(Spikes, EachListHasItsOwnAverage) {
  const Context context = make_context();
  const Scaler scaler = make_scaler(context, relative());
  Buffer small(GSC_FP32, 1), large(GSC_FP32, 1);
  const List first = make_list(context, small), second = make_list(context, large);
  const auto check = [&](double a, double b) {
    small.set(0, a);
    large.set(0, b);
    EXPECT_GSC_OK(gsc_scaler_check(scaler, first, nullptr));
    EXPECT_GSC_OK(gsc_scaler_check(scaler, second, nullptr));
    EXPECT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    return std::pair(report_of(scaler, first).flags, report_of(scaler, second).flags);
  };
  const uint32_t spike = GSC_REPORT_SPIKE;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(check(1, 1000), std::pair(0U, 0U));
  EXPECT_EQ(check(3, 1000), std::pair(spike, 0U));
  EXPECT_NEAR(report_of(scaler).norm_limit, 2.0, 1e-9);
  EXPECT_EQ(check(1, 3000), std::pair(0U, spike));
  EXPECT_NEAR(report_of(scaler).norm_limit, 2000.0, 1e-6);
  EXPECT_EQ(report_of(scaler).spikes, 2);
}

TEST(Spikes, AListOfAnotherDevice) {
  Model model(relative(), 2);
  EXPECT_EQ(model.run({1, 1, 1, 5, 1}), "...s.");
  EXPECT_NEAR(report_of(model.scaler()).norm_limit, 2.0, 1e-9);
  // It has entered the iteration when the options change.
  EXPECT_GSC_OK(gsc_scaler_check_range(model.scaler(), model.grads(), 0, 0, nullptr));
  const gsc_scaler_options options = limited_to(0.5);
  EXPECT_GSC_OK(gsc_scaler_set_options(model.scaler(), &options, nullptr));
  EXPECT_EQ(model.step(1), 's');
}

/// The norm is that of all ranks.
TEST(Spikes, RanksDecideTogether) {
  Model model(limited_to(10.0));
  auto reducer = with_size<gsc_reducer>();
  double others = 0.0;
  reducer.user = &others;
  reducer.all_reduce = [](void *user, double *values, int64_t, gsc_stream) {
    values[1] += *static_cast<double *>(user);
    return 0;
  };
  EXPECT_GSC_OK(gsc_scaler_set_reducer(model.scaler(), &reducer));
  EXPECT_EQ(model.step(1), '.');
  others = 400.0;
  EXPECT_EQ(model.step(1), 's');
}

TEST(Spikes, ADisabledScalerSkipsNothing) {
  gsc_scaler_options options = limited_to(10.0);
  options.enabled = 0;
  Model model(options);
  model.set_grad(20);
  EXPECT_GSC_OK(gsc_scaler_step(model.scaler(), model.optimizer(), nullptr));
  EXPECT_EQ(model.param(), -20.0);
}

TEST(Spikes, OptionsCanChange) {
  Model model(check_options());
  EXPECT_EQ(model.run({1, 20}), "..");
  gsc_scaler_options options = limited_to(10.0);
  EXPECT_GSC_OK(gsc_scaler_set_options(model.scaler(), &options, nullptr));
  EXPECT_EQ(model.run({1, 20}), ".s");
}

TEST(Spikes, ACheckpointHasTheAverage) {
  Model model(relative()), resumed(relative());
  EXPECT_EQ(model.run({4, 4, 9}), "..s");
  EXPECT_GSC_OK(load_image(resumed.optimizer(), saved_image(model.optimizer())));
  EXPECT_EQ(resumed.step(9), 's');
  EXPECT_NEAR(resumed.report().norm_average, 4.0, 1e-9);
  EXPECT_EQ(saved_image(resumed.optimizer()).size(), saved_image(model.optimizer()).size());
}

TEST(StaticScale, Stays) {
  for (const int32_t preset : {GSC_PRESET_CHECK, GSC_PRESET_STATIC_SCALE}) {
    gsc_scaler_options options = preset_options(preset);
    options.growth_interval = 1;
    options.floor_action = GSC_FLOOR_REPORT;
    options.floor_patience = 2;
    const float scale = options.init_scale;
    EXPECT_EQ(scale, preset == GSC_PRESET_CHECK ? 1.0f : 128.0f);
    Model model(options);
    EXPECT_EQ(model.run({1, 1, kInf}), "..x");
    EXPECT_EQ(scale_of(model.scaler()), scale);
    EXPECT_EQ(report_of(model.scaler()).growth_tracker, 0);
    EXPECT_EQ(report_of(model.scaler()).flags & GSC_REPORT_AT_FLOOR, 0U);
    EXPECT_EQ(model.step(kInf), 'x');
    EXPECT_NE(report_of(model.scaler()).flags & GSC_REPORT_AT_FLOOR, 0U);
    EXPECT_EQ(scale_of(model.scaler()), scale);
    EXPECT_GSC_OK(gsc_scaler_set_scale(model.scaler(), 4.0f, nullptr));
    EXPECT_EQ(model.step(1), '.');
    EXPECT_EQ(scale_of(model.scaler()), 4.0f);
  }
}

}  // namespace
}  // namespace gsc_test
