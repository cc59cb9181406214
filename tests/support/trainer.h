// SPDX-License-Identifier: Apache-2.0
//
// A small training set-up for the tests: parameters, gradients, an optional 16-bit model copy and one optimizer over
// them, on one CPU context. Takes snapshots of all bytes that a step may write, and judges a step by the oracle.
#ifndef GRADSCALER_TESTS_SUPPORT_TRAINER_H
#define GRADSCALER_TESTS_SUPPORT_TRAINER_H
#include <string>
#include <utility>
#include <vector>

#include "tests/support/objects.h"
#include "tests/support/optimizer_oracle.h"
#include "tests/support/oracle.h"

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
  std::vector<std::vector<unsigned char>> params, grads, copies, state;
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
    group_of_.assign(spec.counts.size(), spec.options);
  }

  std::vector<Buffer> &params() { return params_; }
  std::vector<Buffer> &grads() { return grads_; }
  std::vector<Buffer> &copies() { return copies_; }
  gsc_tensor_list *grad_list() const { return grad_list_.get(); }
  gsc_optimizer *get() const { return optimizer_.get(); }
  operator gsc_optimizer *() const { return get(); }
  const Optimizer &optimizer() const { return optimizer_; }

  void add_group(int64_t first, int64_t count, const gsc_optimizer_options &options) {
    int32_t group = -1;
    EXPECT_GSC_OK(gsc_optimizer_add_group(get(), first, count, &options, &group));
    EXPECT_GE(group, 1);
    for (int64_t i = first; i < first + count; ++i) group_of_[i] = options;
  }
  /// Tells the oracle, not the library, what the options of every tensor are from now on.
  void assume_options(const gsc_optimizer_options &options) { group_of_.assign(group_of_.size(), options); }

  /// Gradients in +-magnitude times `factor`, stored in their dtypes; one in eight is zero.
  void fill_grads(Random &random, double magnitude, double factor = 1.0) {
    for (Buffer &buffer : grads_) {
      for (int64_t i = 0; i < buffer.count(); ++i) {
        const double value = random.uniform(-magnitude, magnitude);
        buffer.set(i, random.below(8) == 0 ? 0.0 : round_to(value, buffer.dtype()) * factor);
      }
    }
  }

  int32_t slots() const {
    int32_t count = -1;
    EXPECT_GSC_OK(gsc_optimizer_get_state_count(get(), &count));
    return count;
  }
  gsc_tensor state_tensor(int32_t slot, size_t index) const {
    gsc_tensor_list *list = nullptr;
    gsc_tensor tensor{};
    EXPECT_GSC_OK(gsc_optimizer_get_state(get(), slot, &list, nullptr));
    EXPECT_GSC_OK(gsc_tensor_list_get_tensor(list, static_cast<int64_t>(index), &tensor));
    return tensor;
  }

  Snapshot snapshot() const {
    Snapshot result;
    for (const Buffer &buffer : params_) result.params.push_back(buffer.image());
    for (const Buffer &buffer : grads_) result.grads.push_back(buffer.image());
    for (const Buffer &buffer : copies_) result.copies.push_back(buffer.image());
    for (int32_t slot = 0; slot < slots(); ++slot) {
      for (size_t i = 0; i < params_.size(); ++i) {
        const gsc_tensor tensor = state_tensor(slot, i);
        const unsigned char *first = static_cast<const unsigned char *>(tensor.data);
        result.state.emplace_back(first, first + tensor.count * dtype_size(tensor.dtype));
      }
    }
    result.applied = applied_steps(optimizer_);
    return result;
  }
  bool guards_intact() const {
    for (const auto *buffers : {&params_, &grads_, &copies_}) {
      for (const Buffer &buffer : *buffers) {
        if (!buffer.guards_intact()) return false;
      }
    }
    return true;
  }

  /// Runs `step` and compares params, state and model copy with the oracle's step from the same start. The gradient
  /// that the optimizer sees is the stored one times `inverse`, times `clip` where that is not 1, clamped to `limit`.
  template <typename Step>
  void expect_step_matches(Step &&step, double inverse = 1.0, double clip = 1.0, double limit = kInf) {
    const int32_t arithmetic = spec_.param_dtype == GSC_FP64 ? GSC_FP64 : GSC_FP32;
    std::vector<std::vector<Element>> before;
    std::vector<std::vector<Real>> gradients;
    for (size_t t = 0; t < params_.size(); ++t) {
      before.push_back(elements(t));
      gradients.push_back(gradients_of(t, arithmetic, inverse, clip, limit));
    }
    const int64_t applied = applied_steps(optimizer_);
    ASSERT_GSC_OK(step());
    ASSERT_EQ(applied_steps(optimizer_), applied + 1);
    for (size_t t = 0; t < params_.size(); ++t) {
      OptimizerOracle(group_of_[t], arithmetic, applied + 1).step(before[t], gradients[t]);
      compare(t, before[t]);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(guards_intact());
  }

 private:
  std::vector<Element> elements(size_t t) const {
    std::vector<Element> result(static_cast<size_t>(params_[t].count()));
    const int32_t slot_count = slots();
    for (size_t i = 0; i < result.size(); ++i) result[i].param.v = params_[t].get(static_cast<int64_t>(i));
    for (int32_t slot = 0; slot < slot_count; ++slot) {
      const gsc_tensor state = state_tensor(slot, t);
      const auto *first = static_cast<const unsigned char *>(state.data);
      const int64_t numbers = numbers_of(spec_.options.kind, slot);
      for (size_t i = 0; i < result.size(); ++i) {
        const unsigned char *address = first + (numbers > 0 ? 0 : static_cast<int64_t>(i) * dtype_size(state.dtype));
        result[i].state[slot].v = load(address, state.dtype);
        if (numbers == 2) result[i].weight_sum = load(first + dtype_size(state.dtype), state.dtype);
      }
    }
    return result;
  }

  std::vector<Real> gradients_of(size_t t, int32_t arithmetic, double inverse, double clip, double limit) const {
    const Arithmetic f(arithmetic);
    std::vector<Real> result(static_cast<size_t>(grads_[t].count()));
    for (size_t i = 0; i < result.size(); ++i) {
      Real g = f.exact(grads_[t].get(static_cast<int64_t>(i)));
      if (grads_[t].dtype() == GSC_FP64) g.e = std::fabs(g.v) * std::ldexp(1.0, -format_of(arithmetic).precision);
      if (inverse != 1.0) g = f.mul(g, f.constant(inverse));
      // The factor depends on the norm, which has a separate error.
      if (clip != 1.0) g = f.mul(g, {clip, clip * kNormTolerance});
      g.v = std::clamp(g.v, -limit, limit);
      result[i] = g;
    }
    return result;
  }

  /// Twice the bound: the library may write the same formula in another order.
  static double allowed(const Real &expected, int32_t dtype) {
    const bool narrow = dtype == GSC_FP16 || dtype == GSC_BF16;
    return 2.0 * expected.e + (narrow ? 0.5 * ulp(std::fabs(expected.v) + 2.0 * expected.e, dtype) : 0.0);
  }

  void compare(size_t t, const std::vector<Element> &expected) {
    const int32_t slot_count = slots();
    const std::vector<Element> got = elements(t);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto where = [&] { return text("tensor ", t, " element ", i); };
      ASSERT_NEAR(got[i].param.v, expected[i].param.v, allowed(expected[i].param, spec_.param_dtype)) << where();
      for (int32_t slot = 0; slot < slot_count; ++slot) {
        const Real &state = expected[i].state[slot];
        ASSERT_NEAR(got[i].state[slot].v, state.v, allowed(state, GSC_FP32)) << where() << " slot " << slot;
      }
      ASSERT_NEAR(got[i].weight_sum, expected[i].weight_sum, 1e-12 * expected[i].weight_sum) << where();
      if (spec_.copy_dtype != 0) {
        const int64_t index = static_cast<int64_t>(i);
        ASSERT_EQ(copies_[t].get(index), round_to(params_[t].get(index), spec_.copy_dtype)) << where() << " model copy";
      }
    }
  }

  TrainerSpec spec_;
  std::vector<Buffer> params_, grads_, copies_;
  List param_list_, grad_list_, copy_list_;
  Optimizer optimizer_;
  std::vector<gsc_optimizer_options> group_of_;
};

}  // namespace gsc_test
#endif
