// SPDX-License-Identifier: Apache-2.0
//
// Random calls: two optimizers on two lists under one scaler, with the lists of one context or of two, driven in any
// order, sensible or not. A call that is refused changes nothing, and no call writes beyond a buffer. Which calls are
// allowed and what they give is in tests/oracle; this is for sanitizers, a fuzzer and long use.
#ifndef GRADSCALER_TESTS_SUPPORT_RANDOM_CALLS_H
#define GRADSCALER_TESTS_SUPPORT_RANDOM_CALLS_H
#include <cmath>
#include <utility>

#include "tests/support/trainer.h"

namespace gsc_test {

/// `Choices` has below(n), a number in [0, n): pseudo-random, or the bytes of a fuzzer.
template <typename Choices>
class RandomCalls {
 public:
  explicit RandomCalls(Choices choices)
      : random_(std::move(choices)), context_(make_context()), scaler_(make_scaler(context_, scaler_options(8.0f, 3))) {
    is_away_ = random_.below(2) == 0;
    if (is_away_) other_ = make_context();
    for (const bool second : {false, true}) {
      trainers_.push_back(std::make_unique<Trainer>(
          second && is_away_ ? other_ : context_,
          TrainerSpec{.options = sgd_options(), .counts = {1, 1}, .grad_dtypes = {GSC_FP32}}));
    }
    saved_ = state_of(scaler_);
  }

  [[nodiscard]] const Choices &choices() const { return random_; }

  void call() {
    const size_t i = random_.below(2);
    if (random_.below(2) == 0) refill(*trainers_[i]);
    const Snapshot before[] = {trainers_[0]->snapshot(), trainers_[1]->snapshot()};
    const gsc_scaler_state state = state_of(scaler_);
    const gsc_status status = make(i);
    for (const auto &trainer : trainers_) EXPECT_TRUE(trainer->guards_intact());
    if (status == GSC_OK) return;
    const bool needs_own_device = status == GSC_ERROR_INVALID_ARGUMENT && is_away_ && i == 1;
    EXPECT_TRUE(status == GSC_ERROR_BAD_STATE || needs_own_device) << gsc_error_get_message();
    for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(trainers_[k]->snapshot().same_with_grads(before[k]));
    EXPECT_TRUE(same_bytes(state_of(scaler_), state));
  }

 private:
  gsc_status make(size_t i) {
    gsc_scaler *const scaler = scaler_;
    gsc_optimizer *const optimizer = *trainers_[i];
    gsc_tensor_list *const grads = trainers_[i]->grad_list();
    const double limit = std::ldexp(1.0, random_.below(6) - 2);
    switch (random_.below(17)) {
      case 0:
        return gsc_scaler_check(scaler, grads, nullptr);
      case 1: {
        const int64_t first = random_.below(2);
        return gsc_scaler_check_range(scaler, grads, first, 1 + random_.below(2 - first), nullptr);
      }
      case 2:
      case 3:
        return gsc_scaler_unscale(scaler, grads, nullptr);
      case 4:
        return gsc_scaler_clip_grad_norm(scaler, grads, limit, GSC_NORM_L2, nullptr);
      case 5:
        return gsc_scaler_clip_grad_value(scaler, grads, random_.below(5) == 0 ? kInf : limit, nullptr);
      case 6:
      case 7:
        return gsc_scaler_step(scaler, optimizer, nullptr);
      case 8: {
        int32_t apply = -7;
        const gsc_status status = gsc_scaler_should_step_sync(scaler, grads, &apply, nullptr);
        EXPECT_EQ(apply == -7, status != GSC_OK);
        return status;
      }
      case 9:
      case 10:
        return gsc_scaler_update(scaler, nullptr);
      case 11:
      case 12:
        return gsc_scaler_step_and_update(scaler, optimizer, nullptr);
      case 13:
        return gsc_scaler_discard(scaler, random_.below(2) == 0 ? nullptr : grads);
      case 14:
        return gsc_scaler_set_scale(scaler, limit, nullptr);
      case 15:
        if (random_.below(2) == 0) return gsc_scaler_set_state(scaler, &saved_, nullptr);
        saved_ = state_of(scaler_);
        return GSC_OK;
      default: {
        const Scaler rival = make_scaler(context_, 2.0f);  // returns the list when it goes
        return gsc_scaler_check(rival, grads, nullptr);
      }
    }
  }

  void refill(Trainer &trainer) {
    for (Buffer &buffer : trainer.grads()) {
      const int64_t kind = random_.below(16);
      buffer.set(0, kind == 0 ? kInf : kind == 1 ? kNan : random_.below(64) - 32);
    }
  }

  Choices random_;
  bool is_away_ = false;  ///< the second list is of another context
  Context context_, other_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  Scaler scaler_;
  gsc_scaler_state saved_;
};

}  // namespace gsc_test
#endif
