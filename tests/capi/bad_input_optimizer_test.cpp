// SPDX-License-Identifier: Apache-2.0
//
// Bad input to optimizers: lists that do not fit each other, buffers that overlap between lists, state of the wrong
// shape, and groups. Options are in option_limits_test.cpp, saved state in checkpoint_test.cpp.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

class BadInputOptimizer : public ::testing::Test {
 protected:
  BadInputOptimizer()
      : context_(make_context()),
        param_buffers_(make_buffers(GSC_FP32, {4, 8, 4})),
        grad_buffers_(make_buffers(GSC_FP16, {4, 8, 4})),
        params_(make_list(context_, param_buffers_)),
        grads_(make_list(context_, grad_buffers_)) {}

  void expect_refused(gsc_tensor_list *params, gsc_tensor_list *grads, gsc_tensor_list *copy,
                      const std::vector<gsc_tensor_list *> &state, std::initializer_list<const char *> words) {
    const gsc_status status = status_of_optimizer(context_, nullptr, params, grads, state, copy);
    EXPECT_TRUE(is_error(status, GSC_ERROR_INVALID_ARGUMENT, words));
  }

  Context context_;
  std::vector<Buffer> param_buffers_, grad_buffers_;
  List params_, grads_;
};

TEST_F(BadInputOptimizer, CreateArguments) {
  gsc_optimizer *out = nullptr;
  EXPECT_INVALID(gsc_optimizer_create(nullptr, nullptr, params_, grads_, nullptr, nullptr, 0, &out), "context");
  EXPECT_INVALID(gsc_optimizer_create(context_, nullptr, params_, grads_, nullptr, nullptr, 0, nullptr),
                 "out_optimizer");
  EXPECT_INVALID(gsc_optimizer_create(context_, nullptr, params_, grads_, nullptr, nullptr, 2, &out), "state");
  gsc_tensor_list *const six[6] = {params_, params_, params_, params_, params_, params_};
  for (const int32_t count : {-1, 6}) {
    EXPECT_INVALID(gsc_optimizer_create(context_, nullptr, params_, grads_, nullptr, six, count, &out), "state_count",
                   text("is ", count, "; it must be in 0..5").c_str());
  }
  EXPECT_EQ(out, nullptr);
  expect_refused(nullptr, grads_, nullptr, {}, {"params"});
  expect_refused(params_, nullptr, nullptr, {}, {"grads"});
}

TEST_F(BadInputOptimizer, LengthsAndCounts) {
  std::vector<Buffer> shorter = make_buffers(GSC_FP16, {4, 8}), uneven = make_buffers(GSC_FP16, {4, 7, 4});
  const List short_list = make_list(context_, shorter), uneven_list = make_list(context_, uneven);
  expect_refused(params_, short_list, nullptr, {}, {"grads"});
  expect_refused(params_, uneven_list, nullptr, {}, {"grads", "[1]"});
  expect_refused(params_, grads_, short_list, {}, {"model_copy"});
  expect_refused(params_, grads_, uneven_list, {}, {"model_copy", "[1]"});
}

TEST_F(BadInputOptimizer, State) {
  const auto fp32 = [] { return make_buffers(GSC_FP32, {4, 8, 4}); };
  std::vector<Buffer> first = fp32(), second = fp32(), third = fp32(), narrow = make_buffers(GSC_FP16, {4, 8, 4}),
                      uneven = make_buffers(GSC_FP32, {4, 8, 5});
  const List a = make_list(context_, first), b = make_list(context_, second), c = make_list(context_, third);
  const List wrong_dtype = make_list(context_, narrow), wrong_count = make_list(context_, uneven);
  expect_refused(params_, grads_, nullptr, {a}, {"state"});
  expect_refused(params_, grads_, nullptr, {a, b, c}, {"state"});
  expect_refused(params_, grads_, nullptr, {a, nullptr}, {"state[1]"});
  expect_refused(params_, grads_, nullptr, {a, wrong_dtype}, {"state[1]", "[0]"});
  expect_refused(params_, grads_, nullptr, {wrong_count, b}, {"state[0]", "[2]"});
  expect_refused(params_, grads_, nullptr, {a, a}, {"state[1]", "overlap"});
}

TEST_F(BadInputOptimizer, OverlapBetweenLists) {
  std::vector<gsc_tensor> tensors = tensors_of(grad_buffers_), small = tensors_of(param_buffers_);
  tensors[2].data = static_cast<uint16_t *>(param_buffers_[1].data()) + 15;
  tensors[2].count = 1;
  small[2].count = 1;
  const List grads = make_list(context_, tensors), params = make_list(context_, small);
  expect_refused(params, grads, nullptr, {}, {"grads", "[2]", "overlap"});
  expect_refused(params_, params_, nullptr, {}, {"overlap"});
  expect_refused(params_, grads_, grads_, {}, {"model_copy", "overlap"});
  const auto named = [&](const std::vector<gsc_tensor> &of, std::vector<const char *> names) {
    gsc_tensor_list *list = nullptr;
    EXPECT_GSC_OK(gsc_tensor_list_create(context_, of.data(), std::ssize(of), names.data(), &list));
    return List(list);
  };
  expect_refused(named(small, {"p0", "p1", "p2"}), named(tensors, {"g0", "g1", "g2"}), nullptr, {},
                 {"grads[2]", "params[1] (\"p1\") in memory (\"g2\")"});
}

TEST_F(BadInputOptimizer, ForeignContext) {
  const Context other = make_context();
  std::vector<Buffer> buffers = make_buffers(GSC_FP32, {4, 8, 4}), more = make_buffers(GSC_FP32, {4, 8, 4});
  const List foreign = make_list(other, buffers), own = make_list(context_, more);
  expect_refused(foreign, grads_, nullptr, {}, {"params", "context"});
  expect_refused(params_, foreign, nullptr, {}, {"grads", "context"});
  expect_refused(params_, grads_, foreign, {}, {"model_copy", "context"});
  expect_refused(params_, grads_, nullptr, {own, foreign}, {"state[1]", "context"});
}

TEST_F(BadInputOptimizer, Groups) {
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  const Optimizer optimizer = make_optimizer(context_, options, params_, grads_);
  gsc_optimizer *const o = optimizer;
  int32_t group = -7;
  EXPECT_GSC_OK(gsc_optimizer_add_group(make_optimizer(context_, options, params_, grads_), 3, 0, &options, nullptr));
  const int64_t ranges[][2] = {{-1, 1}, {0, -1}, {0, 4}, {3, 1}, {1, INT64_MAX}};
  for (const auto &range : ranges) {
    EXPECT_NE(gsc_optimizer_add_group(o, range[0], range[1], &options, &group), GSC_OK) << range[0] << ' ' << range[1];
  }
  EXPECT_INVALID(gsc_optimizer_add_group(nullptr, 0, 1, &options, &group), "optimizer");
  EXPECT_INVALID(gsc_optimizer_add_group(o, 0, 1, nullptr, &group), "options");
  gsc_optimizer_options other = options;
  other.flags = GSC_OPTIMIZER_MAXIMIZE;
  EXPECT_INVALID(gsc_optimizer_add_group(o, 0, 1, &other, &group), "flags");
  other = optimizer_options(GSC_ADAM);
  EXPECT_INVALID(gsc_optimizer_add_group(o, 0, 1, &other, &group), "kind");
  other = options;
  other.state_format = GSC_STATE_BITS16;
  EXPECT_INVALID(gsc_optimizer_add_group(o, 0, 1, &other, &group), "state_format is 1, but the optimizer's is 0");
  EXPECT_EQ(group, -7);
  ASSERT_GSC_OK(gsc_optimizer_add_group(o, 1, 1, &options, &group));
  EXPECT_EQ(group, 1);
  EXPECT_INVALID(gsc_optimizer_add_group(o, 0, 2, &options, &group), "tensor", "1", "group");
  int32_t count = 0;
  EXPECT_GSC_OK(gsc_optimizer_get_group_count(o, &count));
  EXPECT_EQ(count, 2);
  gsc_optimizer_options out = options;
  for (const int32_t index : {-1, 2}) {
    EXPECT_INVALID(gsc_optimizer_get_options(o, index, &out), "group");
    EXPECT_INVALID(gsc_optimizer_set_options(o, index, &options, nullptr), "group");
    EXPECT_INVALID(gsc_optimizer_set_lr(o, index, 0.1, nullptr), "group");
    EXPECT_INVALID(gsc_optimizer_set_device_lr(o, index, nullptr, nullptr), "group");
  }
  for (const double lr : {-1.0, kInf, kNan}) EXPECT_INVALID(gsc_optimizer_set_lr(o, 0, lr, nullptr), "lr");
}

TEST_F(BadInputOptimizer, WhatMustStay) {
  gsc_optimizer_options options = optimizer_options(GSC_SGD);
  options.momentum = 0.9;
  const Optimizer optimizer = make_optimizer(context_, options, params_, grads_);
  const auto expect_bad = [&](const char *word, void (*spoil)(gsc_optimizer_options &)) {
    gsc_optimizer_options changed = options;
    spoil(changed);
    EXPECT_INVALID(gsc_optimizer_set_options(optimizer, 0, &changed, nullptr), word);
  };
  expect_bad("momentum", [](auto &o) { o.momentum = 0.0; });
  expect_bad("flags", [](auto &o) { o.flags = GSC_OPTIMIZER_MAXIMIZE; });
  expect_bad("kind", [](auto &o) { o.kind = GSC_LION; });
}

/// A buffer without momentum holds no average: PyTorch would restart it.
TEST_F(BadInputOptimizer, MomentumStaysOrStaysOutInEveryGroup) {
  gsc_optimizer_options options = optimizer_options(GSC_SGD), plain = options;
  options.momentum = 0.9;
  for (const bool has : {true, false}) {
    const Optimizer optimizer = make_optimizer(context_, options, params_, grads_);
    const gsc_optimizer_options &given = has ? options : plain, &other = has ? plain : options;
    int32_t group = 0;
    ASSERT_GSC_OK(gsc_optimizer_add_group(optimizer, 0, 1, &given, &group));
    EXPECT_INVALID(gsc_optimizer_set_options(optimizer, group, &other, nullptr), "options.momentum is", "group 1");
    gsc_optimizer_options changed = given;
    changed.momentum *= 0.5;
    EXPECT_GSC_OK(gsc_optimizer_set_options(optimizer, group, &changed, nullptr));
  }
  const Optimizer without = make_optimizer(context_, plain, params_, grads_);
  EXPECT_INVALID(gsc_optimizer_add_group(without, 0, 1, &options, nullptr), "options.momentum is",
                 "without a momentum buffer");
}

TEST_F(BadInputOptimizer, NullHandles) {
  const Optimizer optimizer = make_optimizer(context_, optimizer_options(GSC_ADAMW), params_, grads_);
  gsc_optimizer *const o = optimizer;
  int32_t word = -7;
  int64_t steps = -7;
  gsc_tensor_list *list = nullptr;
  EXPECT_INVALID(gsc_optimizer_step(nullptr, nullptr), "optimizer");
  EXPECT_INVALID(gsc_optimizer_step_scaled(nullptr, nullptr, nullptr, nullptr), "optimizer");
  EXPECT_INVALID(gsc_optimizer_zero_grads(nullptr, nullptr), "optimizer");
  EXPECT_INVALID(gsc_optimizer_get_group_count(nullptr, &word), "optimizer");
  EXPECT_INVALID(gsc_optimizer_get_group_count(o, nullptr), "out_count");
  EXPECT_INVALID(gsc_optimizer_get_grads(nullptr, &list), "optimizer");
  EXPECT_INVALID(gsc_optimizer_get_grads(o, nullptr), "out_grads");
  EXPECT_INVALID(gsc_optimizer_get_state_count(o, nullptr), "out_count");
  for (const int32_t slot : {-1, 2}) EXPECT_INVALID(gsc_optimizer_get_state(o, slot, &list, nullptr), "slot");
  EXPECT_INVALID(gsc_optimizer_get_steps_sync(nullptr, &steps, nullptr, nullptr), "optimizer");
  EXPECT_INVALID(gsc_optimizer_get_unchanged_sync(nullptr, &steps, nullptr), "optimizer");
  EXPECT_INVALID(gsc_optimizer_get_unchanged_sync(o, nullptr, nullptr), "out_unchanged");
  EXPECT_INVALID(gsc_optimizer_set_steps(o, -3, 7, nullptr), "applied is -3; it must be in 0..2^53");
  EXPECT_INVALID(gsc_optimizer_set_steps(o, 7, -3, nullptr), "skipped is -3; it must be in 0..2^53");
  EXPECT_INVALID(gsc_optimizer_set_steps(o, INT64_MAX, 7, nullptr), "applied is 9223372036854775807");
  EXPECT_INVALID(gsc_optimizer_set_steps(o, 7, INT64_MAX, nullptr), "skipped is 9223372036854775807");
  EXPECT_INVALID(gsc_optimizer_get_options(o, 0, nullptr), "out_options");
  EXPECT_INVALID(gsc_optimizer_get_save_size(o, nullptr), "out_bytes");
  EXPECT_INVALID(gsc_optimizer_save_sync(o, nullptr, 100, nullptr), "buffer");
  EXPECT_INVALID(gsc_optimizer_load_sync(o, nullptr, 100, nullptr), "buffer");
  EXPECT_EQ(word, -7);
  EXPECT_EQ(steps, -7);
  EXPECT_EQ(list, nullptr);
  EXPECT_EQ(applied_steps(optimizer), 0);
}

}  // namespace
}  // namespace gsc_test
