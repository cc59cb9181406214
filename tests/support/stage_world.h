// SPDX-License-Identifier: Apache-2.0
//
// The stage machine under any calls: two optimizers on two lists under one scaler, driven in any order, sensible or
// not, against a model that keeps the table of docs/concepts.md in a few plain fields. Status, gradients, parameters,
// steps, scale and tracker must agree after every call; a refused call must change nothing. The arithmetic itself is
// judged elsewhere: here it is one step of SGD with lr 1, so that the parameter shows the gradient that was used.
#ifndef GRADSCALER_TESTS_SUPPORT_STAGE_WORLD_H
#define GRADSCALER_TESTS_SUPPORT_STAGE_WORLD_H
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tests/support/trainer.h"

namespace gsc_test {

inline constexpr int kLists = 2;
inline constexpr int kTensors = 2;  ///< of one element each
inline constexpr int32_t kInterval = 3;
inline constexpr float kMinScale = 0.125f, kMaxScale = 1048576.0f;

enum class Stage { kReady, kChecked, kUnscaled, kStepped };

struct ListModel {
  bool used = false;  ///< in the scaler's iteration
  Stage stage = Stage::kReady;
  std::array<bool, kTensors> covered{};
  bool unscaled = false, norm_applied = false, overflow = false;
  double max_norm = -1.0, value = kInf, norm = 0.0, value_applied = kInf;
  bool partly_covered() const { return stage == Stage::kReady && (covered[0] || covered[1]); }
  bool norm_waits() const { return max_norm >= 0.0 && !norm_applied; }
  double clip() const { return overflow || max_norm < 0.0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6)); }
};

/// `Choices` has below(n), a number in [0, n): pseudo-random, or the bytes of a fuzzer.
template <typename Choices>
class StageWorld {
 public:
  explicit StageWorld(Choices choices)
      : random_(std::move(choices)), context_(make_context()), scaler_(make_scaler(context_, options())) {
    const gsc_optimizer_options sgd = sgd_options();
    away_ = random_.below(2) == 0;
    if (away_) other_ = make_context();
    for (int i = 0; i < kLists; ++i) {
      trainers_.push_back(std::make_unique<Trainer>(
          is_away(i) ? other_ : context_, TrainerSpec{.options = sgd, .counts = {1, 1}, .grad_dtypes = {GSC_FP32}}));
      refill(i);
    }
    saved_ = state_of(scaler_);
  }

  [[nodiscard]] const Choices &choices() const { return random_; }

  void call() {
    const int i = static_cast<int>(random_.below(kLists));
    ListModel &list = lists_[i];
    gsc_tensor_list *grads = trainers_[i]->grad_list();
    gsc_scaler *scaler = scaler_;
    for (auto &trainer : trainers_) {
      for (Buffer &param : trainer->params()) param.fill(0.0);
    }
    if (!list.used && random_.below(2) == 0) refill(i);
    read_gradients();
    params_ = {};
    switch (random_.below(14)) {
      case 0:
        return judge("check", gsc_scaler_check(scaler, grads, nullptr), list.stage == Stage::kReady,
                     [&] { look(i, false); });
      case 1: {
        const int64_t first = random_.below(kTensors), count = 1 + random_.below(kTensors - first);
        bool fresh = list.stage == Stage::kReady;
        for (int64_t t = first; t < first + count; ++t) fresh = fresh && !list.covered[t];
        return judge("check_range", gsc_scaler_check_range(scaler, grads, first, count, nullptr), fresh, [&] {
          list.used = true;
          for (int64_t t = first; t < first + count; ++t) list.covered[t] = true;
          if (list.covered[0] && list.covered[1]) look(i, false);
        });
      }
      case 2:
      case 3:
        return judge("unscale", gsc_scaler_unscale(scaler, grads, nullptr),
                     list.stage == Stage::kReady || list.stage == Stage::kChecked, [&] { look(i, true); });
      case 4: {
        const double limit = std::ldexp(1.0, static_cast<int>(random_.below(6)) - 2);
        return judge("clip_grad_norm", gsc_scaler_clip_grad_norm(scaler, grads, limit, GSC_NORM_L2, nullptr),
                     list.stage != Stage::kStepped && list.max_norm < 0.0 && list.value == kInf, [&] {
                       list.used = true;
                       list.max_norm = limit;
                       if (list.unscaled) apply_norm(i);
                     });
      }
      case 5: {
        const double limit = random_.below(5) == 0 ? kInf : std::ldexp(1.0, static_cast<int>(random_.below(6)) - 3);
        return judge("clip_grad_value", gsc_scaler_clip_grad_value(scaler, grads, limit, nullptr),
                     list.stage != Stage::kStepped, [&] {
                       list.used = true;
                       list.value = std::min(list.value, limit);
                       if (!list.unscaled || list.value == kInf) return;
                       if (list.norm_waits()) apply_norm(i);
                       clamp(i);
                     });
      }
      case 6:
      case 7:
        return judge("step", gsc_scaler_step(scaler, trainers_[i]->get(), nullptr), list.stage != Stage::kStepped,
                     [&] { step(i); });
      case 8: {
        int32_t apply = -7;
        const gsc_status status = gsc_scaler_should_step_sync(scaler, grads, &apply, nullptr);
        const bool waits = list.value < list.value_applied;
        judge("should_step_sync", status, list.stage != Stage::kStepped && !waits, [&] {
          if (list.stage == Stage::kReady) look(i, false);
          if (list.norm_waits()) apply_norm(i);
          list.stage = Stage::kStepped;
        });
        EXPECT_EQ(apply, status != GSC_OK ? -7 : (list.overflow ? 0 : 1));
        return;
      }
      case 9:
      case 10:
        return judge("update", gsc_scaler_update(scaler, nullptr), can_update(), [&] { update(); });
      case 11: {
        const gsc_status status = gsc_scaler_step_and_update(scaler, trainers_[i]->get(), nullptr);
        if (is_away(i)) {
          EXPECT_EQ(status, GSC_ERROR_INVALID_ARGUMENT);
          return judge("step_and_update of a list away", GSC_OK, true, [] {});
        }
        const bool may_step = list.stage != Stage::kStepped && !other(i).partly_covered();
        return judge("step_and_update", status, may_step, [&] {
          step(i);
          update();
        });
      }
      case 12: {
        const bool all = random_.below(2) == 0;
        return judge("discard", gsc_scaler_discard(scaler, all ? nullptr : grads), true,
                     [&] { all ? forget_all() : static_cast<void>(list = ListModel{}); });
      }
      default:
        return rarer_call(grads, list);
    }
  }

 private:
  static gsc_scaler_options options() {
    gsc_scaler_options o = scaler_options(8.0f, kInterval);
    o.min_scale = kMinScale;
    o.max_scale = kMaxScale;
    return o;
  }

  void rarer_call(gsc_tensor_list *grads, ListModel &list) {
    switch (random_.below(4)) {
      case 0: {
        const float scale = std::ldexp(1.0f, static_cast<int>(random_.below(12)));
        return judge("set_scale", gsc_scaler_set_scale(scaler_, scale, nullptr), true, [&] {
          scale_ = scale;
          forget_all();
        });
      }
      case 1:
        saved_ = state_of(scaler_);
        return;
      case 2:
        return judge("set_state", gsc_scaler_set_state(scaler_, &saved_, nullptr), true, [&] {
          scale_ = saved_.scale;
          tracker_ = saved_.growth_tracker;
          forget_all();
        });
      default: {
        const Scaler other = make_scaler(context_, 2.0f);  // returns the list when it goes
        return judge("check of another scaler", gsc_scaler_check(other, grads, nullptr), !list.used, [] {});
      }
    }
  }

  template <typename Effect>
  void judge(const char *what, gsc_status status, bool allowed, const Effect &effect) {
    SCOPED_TRACE(what);
    if (allowed) {
      EXPECT_GSC_OK(status);
      effect();
    } else {
      EXPECT_EQ(status, GSC_ERROR_BAD_STATE);
    }
    EXPECT_EQ(scale_of(scaler_), scale_);
    EXPECT_EQ(state_of(scaler_).growth_tracker, tracker_);
    for (size_t i = 0; i < kLists; ++i) {
      EXPECT_EQ(applied_steps(trainers_[i]->optimizer()), applied_[i]);
      EXPECT_EQ(skipped_steps(trainers_[i]->optimizer()), skipped_[i]);
      for (size_t t = 0; t < kTensors; ++t) {
        expect_close(trainers_[i]->grads()[t].get(0), grads_[i][t], "gradient", i, t);
        expect_close(trainers_[i]->params()[t].get(0), params_[i][t], "parameter", i, t);
      }
    }
  }
  static void expect_close(double got, double expected, const char *what, size_t list, size_t tensor) {
    if (std::isfinite(expected)) {
      EXPECT_NEAR(got, expected, 1e-5 * std::fabs(expected)) << what << ' ' << list << ' ' << tensor;
    } else {
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(got) : got == expected) << what << ' ' << list << ' ' << tensor;
    }
  }

  void refill(int i) {
    for (Buffer &buffer : trainers_[i]->grads()) {
      const int64_t kind = random_.below(16);
      buffer.set(0, kind == 0   ? kInf
                    : kind == 1 ? kNan
                                : static_cast<double>(random_.below(64) - 32) * static_cast<double>(scale_of(scaler_)));
    }
  }
  void read_gradients() {
    for (size_t i = 0; i < kLists; ++i) {
      for (size_t t = 0; t < kTensors; ++t) grads_[i][t] = trainers_[i]->grads()[t].get(0);
    }
  }

  void look(int i, bool unscale) {
    ListModel &list = lists_[i];
    list.used = true;
    list.overflow = false;
    double sum = 0.0;
    for (double &g : grads_[i]) {
      const double value = g / static_cast<double>(scale_);
      list.overflow = list.overflow || !std::isfinite(value);
      sum += value * value;
      if (unscale) g = value;
    }
    list.norm = std::sqrt(sum);
    list.unscaled = unscale;
    list.stage = unscale ? Stage::kUnscaled : Stage::kChecked;
  }
  void apply_norm(int i) {
    ListModel &list = lists_[i];
    for (double &g : grads_[i]) g *= list.clip();
    list.norm_applied = true;
  }
  void clamp(int i) {
    ListModel &list = lists_[i];
    for (double &g : grads_[i]) g = std::isnan(g) ? g : std::clamp(g, -list.value, list.value);
    list.value_applied = list.value;
  }
  void step(int i) {
    const auto at = static_cast<size_t>(i);
    ListModel &list = lists_[at];
    if (list.stage == Stage::kReady) look(i, false);
    list.stage = Stage::kStepped;
    if (list.overflow) {
      ++skipped_[at];
      return;
    }
    ++applied_[at];
    for (size_t t = 0; t < kTensors; ++t) {
      double g = list.unscaled ? grads_[at][t] : grads_[at][t] / static_cast<double>(scale_);
      if (list.norm_waits()) g *= list.clip();
      params_[at][t] = -std::clamp(g, -list.value, list.value);
    }
  }
  const ListModel &other(int i) const { return lists_[1 - i]; }
  bool can_update() const {
    const auto looked_at = [](const ListModel &list) { return list.stage != Stage::kReady; };
    return std::any_of(lists_.begin(), lists_.end(), looked_at) &&
           std::none_of(lists_.begin(), lists_.end(), [](const ListModel &list) { return list.partly_covered(); });
  }
  void update() {
    bool overflow = false;
    for (const ListModel &list : lists_) overflow = overflow || (list.stage != Stage::kReady && list.overflow);
    if (overflow) {
      scale_ = std::max(kMinScale, scale_ / 2);
      tracker_ = 0;
    } else if (++tracker_ == kInterval) {
      scale_ = std::min(kMaxScale, scale_ * 2);
      tracker_ = 0;
    }
    forget_all();
  }
  void forget_all() { lists_ = {}; }

  bool is_away(int i) const { return away_ && i == 1; }

  Choices random_;
  bool away_ = false;  ///< the second list is of another context
  Context context_, other_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  Scaler scaler_;
  gsc_scaler_state saved_;
  // The model.
  std::array<ListModel, kLists> lists_;
  std::array<std::array<double, kTensors>, kLists> grads_{}, params_{};
  std::array<int64_t, kLists> applied_{}, skipped_{};
  float scale_ = 8.0f;
  int32_t tracker_ = 0;
};

}  // namespace gsc_test
#endif
