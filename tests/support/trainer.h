// SPDX-License-Identifier: Apache-2.0
//
// A small training set-up for the tests: parameters, gradients, an optional 16-bit model copy and one optimizer over
// them, on one CPU context. Takes snapshots of all bytes that a step may write, and judges a step by the reference.
#ifndef GRADSCALER_TESTS_SUPPORT_TRAINER_H
#define GRADSCALER_TESTS_SUPPORT_TRAINER_H
#include <string>
#include <utility>
#include <vector>

#include "tests/support/objects.h"
#include "tests/support/reference_formulas.h"

namespace gsc_test {

struct TrainerSpec {
  gsc_optimizer_options options;
  std::vector<int64_t> counts = {1, 7, 64, 1000, 4097};
  int32_t param_dtype = GSC_FP32;
  /// Dtype of gradient i is grad_dtypes[i % size].
  std::vector<int32_t> grad_dtypes = {GSC_FP32};
  /// 0: no model copy.
  int32_t copy_dtype = 0;
  int64_t offset = 0;
  uint64_t seed = 1;
};

/// Every byte that a step may write.
struct Snapshot {
  std::vector<Image> params, grads, copies, state;
  int64_t applied = 0;
  bool operator==(const Snapshot &o) const {
    return params == o.params && copies == o.copies && state == o.state && applied == o.applied;
  }
  bool same_with_grads(const Snapshot &o) const { return *this == o && grads == o.grads; }
};

class Trainer {
 public:
  Trainer(const Context &context, const TrainerSpec &spec) : spec_(spec) {
    Random random(spec.seed);
    for (size_t i = 0; i < spec.counts.size(); ++i) {
      params_.emplace_back(spec.param_dtype, spec.counts[i], spec.offset);
      params_.back().fill_random(random, -1.0, 1.0);
      grads_.emplace_back(spec.grad_dtypes[i % spec.grad_dtypes.size()], spec.counts[i], spec.offset);
      if (spec.copy_dtype != 0) copies_.emplace_back(spec.copy_dtype, spec.counts[i], spec.offset);
    }
    param_list_ = make_list(context, params_);
    grad_list_ = make_list(context, grads_);
    if (spec.copy_dtype != 0) copy_list_ = make_list(context, copies_);
    optimizer_ = make_optimizer(context, spec.options, param_list_, grad_list_, copy_list_);
  }

  std::vector<Buffer> &params() { return params_; }
  std::vector<Buffer> &grads() { return grads_; }
  std::vector<Buffer> &copies() { return copies_; }
  gsc_tensor_list *param_list() const { return param_list_.get(); }
  gsc_tensor_list *grad_list() const { return grad_list_.get(); }
  gsc_tensor_list *copy_list() const { return copy_list_.get(); }
  gsc_optimizer *get() const { return optimizer_.get(); }
  operator gsc_optimizer *() const { return get(); }
  const Optimizer &optimizer() const { return optimizer_; }
  void destroy_optimizer() { optimizer_ = nullptr; }

  void add_group(int64_t first, int64_t count, const gsc_optimizer_options &options) {
    int32_t group = -1;
    EXPECT_GSC_OK(gsc_optimizer_add_group(get(), first, count, &options, &group));
    EXPECT_GE(group, 1);
  }

  /// Gradients in +-magnitude times `factor`, stored in their dtypes; one in eight is zero.
  void fill_grads(Random &random, double magnitude, double factor = 1.0) {
    for (Buffer &buffer : grads_) {
      for (int64_t i = 0; i < buffer.count(); ++i) {
        const double value = random.uniform(-magnitude, magnitude);
        buffer.set(i, random.below(8) == 0 ? 0.0 : round_to(value, buffer.dtype()) * factor);
      }
    }
  }

  void fill_grads(double value) {
    for (Buffer &buffer : grads_) buffer.fill(value);
  }

  int32_t slots() const {
    int32_t count = -1;
    EXPECT_GSC_OK(gsc_optimizer_get_state_count(get(), &count));
    return count;
  }
  gsc_tensor state_tensor(int32_t slot, size_t index) const {
    gsc_tensor_list *list = nullptr;
    EXPECT_GSC_OK(gsc_optimizer_get_state(get(), slot, &list, nullptr));
    return tensor_at(list, index);
  }

  /// The steps of each tensor.
  std::vector<int64_t> tensor_steps() const {
    std::vector<int64_t> steps(params_.size(), -1);
    EXPECT_GSC_OK(gsc_optimizer_get_tensor_steps_sync(get(), steps.data(), std::ssize(steps), nullptr));
    return steps;
  }

  Snapshot snapshot() const {
    Snapshot result = {.params = images_of(params_),
                       .grads = images_of(grads_),
                       .copies = images_of(copies_),
                       .state = {},
                       .applied = applied_steps(optimizer_)};
    for (int32_t slot = 0; slot < slots(); ++slot) {
      for (size_t i = 0; i < params_.size(); ++i) result.state.push_back(image_of(state_tensor(slot, i)));
    }
    return result;
  }
  bool guards_intact() const {
    const auto intact = [](const auto &buffers) { return std::ranges::all_of(buffers, &Buffer::guards_intact); };
    return intact(params_) && intact(grads_) && intact(copies_);
  }

  /// Runs `step` and compares params, state and model copy with the reference from the same start. The gradient that
  /// the optimizer sees is the stored one times `inverse`.
  template <typename Step>
  void expect_step_matches(Step &&step, float inverse = 1.0f) {
    if (spec_.param_dtype == GSC_FP64) return expect_match<double>(step, inverse);
    expect_match<float>(step, inverse);
  }

 private:
  template <typename T, typename Step>
  void expect_match(Step &&step, float inverse) {
    std::vector<ReferenceTensor<T>> before;
    std::vector<std::vector<double>> gradients;
    for (size_t t = 0; t < params_.size(); ++t) {
      before.push_back(tensor<T>(t));
      gradients.push_back(grads_[t].values());
    }
    const int64_t number = applied_steps(optimizer_) + 1;
    ASSERT_GSC_OK(step());
    ASSERT_EQ(applied_steps(optimizer_), number);
    for (size_t t = 0; t < params_.size(); ++t) {
      std::vector<T> used;
      for (const double g : gradients[t]) used.push_back(gradient(g, grads_[t].dtype(), inverse));
      ReferenceTensor<T> expected = before[t];
      ReferenceStep<T> reference(spec_.options, number);
      reference.step(expected, std::move(used));
      for (size_t i = 0; spec_.copy_dtype != 0 && i < expected.p.size(); ++i) {
        expect_number(copies_[t].get(i), expected.p[i], before[t].p[i], spec_.copy_dtype, "copy");
      }
      for (T &p : expected.p) p = round_to(p, spec_.param_dtype);
      compare(t, before[t], expected, reference);
      if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "tensor " << t << " of " << params_[t].count() << " elements";
        return;
      }
    }
    EXPECT_TRUE(guards_intact());
  }

  template <typename T>
  ReferenceTensor<T> tensor(size_t t) const {
    ReferenceTensor<T> result;
    for (const double p : params_[t].values()) result.p.push_back(p);
    for (int32_t slot = 0; slot < slots(); ++slot) {
      const gsc_tensor state = state_tensor(slot, t);
      const bool is_ema = spec_.options.ema_decay > 0.0 && slot + 1 == slots();
      for (int64_t i = 0; i < state.count; ++i) {
        const double value =
            load(static_cast<const unsigned char *>(state.data) + i * dtype_size(state.dtype), state.dtype);
        if (numbers_of(spec_.options.kind, slot) > 0 && !is_ema) {
          result.numbers[i] = value;
        } else {
          (is_ema ? result.ema : result.s[slot]).push_back(value);
        }
      }
    }
    return result;
  }

  /// In fp32, or fp64 if it is stored so.
  static double gradient(double stored, int32_t dtype, float inverse) {
    return dtype == GSC_FP64 ? times<double>(stored, inverse) : times<float>(stored, inverse);
  }

  /// The same bits; with norms, whose sums have another order, within a few units of what the step has changed and of the
  /// number itself. (In fp32 norms are fp64 and show little.)
  template <typename T>
  void expect_number(double got, T exact, T before, int32_t dtype, const char *what) const {
    const double wide = exact, expected = round_to(wide, dtype);
    if (!has_norms(spec_.options.kind)) {
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(got)
                                       : got == expected && std::signbit(got) == std::signbit(expected))
          << what << ": " << got << ", by the reference " << expected;
      return;
    }
    const double change = wide - before;
    const double allowed = spec_.param_dtype == GSC_FP64
                               ? 1e-12 * std::max(std::fabs(wide), std::fabs(change))
                               : 16.0 * ulp(change, GSC_FP32) + ulp(wide, GSC_FP32) + ulp(wide, dtype);
    ASSERT_NEAR(got, wide, allowed) << what;
  }

  template <typename T>
  void compare(size_t t, const ReferenceTensor<T> &before, ReferenceTensor<T> &expected,
               const ReferenceStep<T> &reference) {
    const ReferenceTensor<T> got = tensor<T>(t);
    const int32_t arithmetic = spec_.param_dtype == GSC_FP64 ? GSC_FP64 : GSC_FP32;
    for (size_t i = 0; i < expected.p.size(); ++i) {
      expect_number(got.p[i], expected.p[i], before.p[i], spec_.param_dtype, "parameter");
      for (size_t k = 0; k < 3; ++k) {
        if (expected.s[k].empty()) continue;
        expect_number(got.s[k][i], expected.s[k][i], before.s[k][i], arithmetic, "state");
      }
    }
    expected.p = got.p;
    reference.average(expected);
    for (size_t i = 0; i < expected.ema.size(); ++i) ASSERT_EQ(got.ema[i], expected.ema[i]) << "average of " << i;
    for (size_t k = 0; k < 2 && !expected.p.empty(); ++k)
      ASSERT_NEAR(got.numbers[k], expected.numbers[k], 1e-12 * expected.numbers[k]);
  }

  TrainerSpec spec_;
  std::vector<Buffer> params_, grads_, copies_;
  List param_list_, grad_list_, copy_list_;
  Optimizer optimizer_;
};

}  // namespace gsc_test
#endif
