// SPDX-License-Identifier: Apache-2.0
//
// Bad input to optimizers: lists that do not fit each other, buffers that overlap between lists, state of the wrong
// shape, groups, and saved state that is truncated or foreign. Options are in option_limits_test.cpp.
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

  void expect_refused(const gsc_optimizer_options *options, gsc_tensor_list *params, gsc_tensor_list *grads,
                      gsc_tensor_list *copy, const std::vector<gsc_tensor_list *> &state,
                      std::initializer_list<const char *> words) {
    gsc_optimizer *const untouched = reinterpret_cast<gsc_optimizer *>(uintptr_t{0x10});
    gsc_optimizer *optimizer = untouched;
    const gsc_status status =
        gsc_optimizer_create(context_.get(), options, params, grads, copy, state.empty() ? nullptr : state.data(),
                             static_cast<int32_t>(state.size()), &optimizer);
    EXPECT_TRUE(is_error(status, GSC_ERROR_INVALID_ARGUMENT, words));
    EXPECT_EQ(optimizer, untouched);
  }

  Context context_;
  std::vector<Buffer> param_buffers_, grad_buffers_;
  List params_, grads_;
};

TEST_F(BadInputOptimizer, CreateArguments) {
  gsc_optimizer *out = nullptr;
  EXPECT_GSC_ERROR(gsc_optimizer_create(nullptr, nullptr, params_.get(), grads_.get(), nullptr, nullptr, 0, &out),
                   GSC_ERROR_INVALID_ARGUMENT, "context");
  EXPECT_GSC_ERROR(
      gsc_optimizer_create(context_.get(), nullptr, params_.get(), grads_.get(), nullptr, nullptr, 0, nullptr),
      GSC_ERROR_INVALID_ARGUMENT, "out_optimizer");
  EXPECT_GSC_ERROR(
      gsc_optimizer_create(context_.get(), nullptr, params_.get(), grads_.get(), nullptr, nullptr, 2, &out),
      GSC_ERROR_INVALID_ARGUMENT, "state");
  EXPECT_GSC_ERROR(
      gsc_optimizer_create(context_.get(), nullptr, params_.get(), grads_.get(), nullptr, nullptr, -1, &out),
      GSC_ERROR_INVALID_ARGUMENT, "state");
  EXPECT_EQ(out, nullptr);
  expect_refused(nullptr, nullptr, grads_.get(), nullptr, {}, {"params"});
  expect_refused(nullptr, params_.get(), nullptr, nullptr, {}, {"grads"});
}

TEST_F(BadInputOptimizer, LengthsAndCounts) {
  std::vector<Buffer> shorter = make_buffers(GSC_FP16, {4, 8});
  std::vector<Buffer> uneven = make_buffers(GSC_FP16, {4, 7, 4});
  const List short_list = make_list(context_, shorter);
  const List uneven_list = make_list(context_, uneven);
  expect_refused(nullptr, params_.get(), short_list.get(), nullptr, {}, {"grads"});
  expect_refused(nullptr, params_.get(), uneven_list.get(), nullptr, {}, {"grads", "[1]"});
  expect_refused(nullptr, params_.get(), grads_.get(), short_list.get(), {}, {"model_copy"});
  expect_refused(nullptr, params_.get(), grads_.get(), uneven_list.get(), {}, {"model_copy", "[1]"});
}

TEST_F(BadInputOptimizer, State) {
  std::vector<Buffer> first = make_buffers(GSC_FP32, {4, 8, 4});
  std::vector<Buffer> second = make_buffers(GSC_FP32, {4, 8, 4});
  std::vector<Buffer> third = make_buffers(GSC_FP32, {4, 8, 4});
  std::vector<Buffer> narrow = make_buffers(GSC_FP16, {4, 8, 4});
  std::vector<Buffer> uneven = make_buffers(GSC_FP32, {4, 8, 5});
  const List a = make_list(context_, first), b = make_list(context_, second), c = make_list(context_, third);
  const List wrong_dtype = make_list(context_, narrow), wrong_count = make_list(context_, uneven);
  gsc_tensor_list *const p = params_.get();
  gsc_tensor_list *const g = grads_.get();
  expect_refused(nullptr, p, g, nullptr, {a.get()}, {"state"});
  expect_refused(nullptr, p, g, nullptr, {a.get(), b.get(), c.get()}, {"state"});
  expect_refused(nullptr, p, g, nullptr, {a.get(), nullptr}, {"state[1]"});
  expect_refused(nullptr, p, g, nullptr, {a.get(), wrong_dtype.get()}, {"state[1]", "[0]"});
  expect_refused(nullptr, p, g, nullptr, {wrong_count.get(), b.get()}, {"state[0]", "[2]"});
  expect_refused(nullptr, p, g, nullptr, {a.get(), a.get()}, {"state[1]", "overlap"});
}

TEST_F(BadInputOptimizer, OverlapBetweenLists) {
  std::vector<gsc_tensor> tensors = tensors_of(grad_buffers_);
  tensors[2].data = static_cast<uint16_t *>(param_buffers_[1].data()) + 15;
  tensors[2].count = 1;
  std::vector<gsc_tensor> small = tensors_of(param_buffers_);
  small[2].count = 1;
  const List grads = make_list(context_, tensors);
  const List params = make_list(context_, small);
  expect_refused(nullptr, params.get(), grads.get(), nullptr, {}, {"grads", "[2]", "overlap"});
  expect_refused(nullptr, params_.get(), params_.get(), nullptr, {}, {"overlap"});
  expect_refused(nullptr, params_.get(), grads_.get(), grads_.get(), {}, {"model_copy", "overlap"});
}

TEST_F(BadInputOptimizer, ForeignContext) {
  const Context other = make_context();
  std::vector<Buffer> buffers = make_buffers(GSC_FP32, {4, 8, 4});
  std::vector<Buffer> more = make_buffers(GSC_FP32, {4, 8, 4});
  const List foreign = make_list(other, buffers);
  const List own = make_list(context_, more);
  expect_refused(nullptr, foreign.get(), grads_.get(), nullptr, {}, {"params", "context"});
  expect_refused(nullptr, params_.get(), foreign.get(), nullptr, {}, {"grads", "context"});
  expect_refused(nullptr, params_.get(), grads_.get(), foreign.get(), {}, {"model_copy", "context"});
  expect_refused(nullptr, params_.get(), grads_.get(), nullptr, {own.get(), foreign.get()}, {"state[1]", "context"});
}

TEST_F(BadInputOptimizer, Groups) {
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  const Optimizer optimizer = make_optimizer(context_, options, params_, grads_);
  gsc_optimizer *const o = optimizer.get();
  int32_t group = -7;
  const gsc_status bad = GSC_ERROR_INVALID_ARGUMENT;
  const int64_t ranges[][2] = {{-1, 1}, {0, -1}, {0, 4}, {3, 1}, {1, INT64_MAX}};
  for (const auto &range : ranges) {
    EXPECT_NE(gsc_optimizer_add_group(o, range[0], range[1], &options, &group), GSC_OK) << range[0] << ' ' << range[1];
  }
  EXPECT_GSC_ERROR(gsc_optimizer_add_group(nullptr, 0, 1, &options, &group), bad, "optimizer");
  EXPECT_GSC_ERROR(gsc_optimizer_add_group(o, 0, 1, nullptr, &group), bad, "options");
  gsc_optimizer_options other = options;
  other.flags = GSC_OPTIMIZER_MAXIMIZE;
  EXPECT_GSC_ERROR(gsc_optimizer_add_group(o, 0, 1, &other, &group), bad, "flags");
  other = optimizer_options(GSC_ADAM);
  EXPECT_GSC_ERROR(gsc_optimizer_add_group(o, 0, 1, &other, &group), bad, "kind");
  EXPECT_EQ(group, -7);
  ASSERT_GSC_OK(gsc_optimizer_add_group(o, 1, 1, &options, &group));
  EXPECT_EQ(group, 1);
  EXPECT_GSC_ERROR(gsc_optimizer_add_group(o, 0, 2, &options, &group), bad, "tensor", "1", "group");
  int32_t count = 0;
  EXPECT_GSC_OK(gsc_optimizer_get_group_count(o, &count));
  EXPECT_EQ(count, 2);
  gsc_optimizer_options out = options;
  for (const int32_t index : {-1, 2}) {
    EXPECT_GSC_ERROR(gsc_optimizer_get_options(o, index, &out), bad, "group");
    EXPECT_GSC_ERROR(gsc_optimizer_set_options(o, index, &options, nullptr), bad, "group");
    EXPECT_GSC_ERROR(gsc_optimizer_set_lr(o, index, 0.1, nullptr), bad, "group");
    EXPECT_GSC_ERROR(gsc_optimizer_set_device_lr(o, index, nullptr, nullptr), bad, "group");
  }
  for (const double lr : {-1.0, kInf, kNan}) EXPECT_GSC_ERROR(gsc_optimizer_set_lr(o, 0, lr, nullptr), bad, "lr");
}

TEST_F(BadInputOptimizer, WhatMustStay) {
  gsc_optimizer_options options = optimizer_options(GSC_SGD);
  options.momentum = 0.9;
  const Optimizer optimizer = make_optimizer(context_, options, params_, grads_);
  const auto expect_bad = [&](const char *word, const std::function<void(gsc_optimizer_options &)> &spoil) {
    gsc_optimizer_options changed = options;
    spoil(changed);
    EXPECT_GSC_ERROR(gsc_optimizer_set_options(optimizer.get(), 0, &changed, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                     word);
  };
  expect_bad("momentum", [](gsc_optimizer_options &o) { o.momentum = 0.0; });
  expect_bad("flags", [](gsc_optimizer_options &o) { o.flags = GSC_OPTIMIZER_MAXIMIZE; });
  expect_bad("kind", [](gsc_optimizer_options &o) { o.kind = GSC_LION; });
}

/// A buffer without momentum holds no average: PyTorch would restart it.
TEST_F(BadInputOptimizer, MomentumStaysOrStaysOutInEveryGroup) {
  gsc_optimizer_options options = optimizer_options(GSC_SGD), plain = options;
  options.momentum = 0.9;
  for (const bool has : {true, false}) {
    const Optimizer optimizer = make_optimizer(context_, options, params_, grads_);
    const gsc_optimizer_options &given = has ? options : plain, &other = has ? plain : options;
    int32_t group = 0;
    ASSERT_GSC_OK(gsc_optimizer_add_group(optimizer.get(), 0, 1, &given, &group));
    EXPECT_GSC_ERROR(gsc_optimizer_set_options(optimizer.get(), group, &other, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                     "options.momentum is", "group 1");
    gsc_optimizer_options changed = given;
    changed.momentum *= 0.5;
    EXPECT_GSC_OK(gsc_optimizer_set_options(optimizer.get(), group, &changed, nullptr));
  }
  const Optimizer without = make_optimizer(context_, plain, params_, grads_);
  EXPECT_GSC_ERROR(gsc_optimizer_add_group(without.get(), 0, 1, &options, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "options.momentum is", "without a momentum buffer");
}

TEST_F(BadInputOptimizer, NullHandles) {
  const Optimizer optimizer = make_optimizer(context_, optimizer_options(GSC_ADAMW), params_, grads_);
  gsc_optimizer *const o = optimizer.get();
  const gsc_status bad = GSC_ERROR_INVALID_ARGUMENT;
  int32_t word = -7;
  int64_t steps = -7;
  gsc_tensor_list *list = nullptr;
  EXPECT_GSC_ERROR(gsc_optimizer_step(nullptr, nullptr), bad, "optimizer");
  EXPECT_GSC_ERROR(gsc_optimizer_step_scaled(nullptr, nullptr, nullptr, nullptr), bad, "optimizer");
  EXPECT_GSC_ERROR(gsc_optimizer_zero_grads(nullptr, nullptr), bad, "optimizer");
  EXPECT_GSC_ERROR(gsc_optimizer_get_group_count(nullptr, &word), bad, "optimizer");
  EXPECT_GSC_ERROR(gsc_optimizer_get_group_count(o, nullptr), bad, "out_count");
  EXPECT_GSC_ERROR(gsc_optimizer_get_grads(nullptr, &list), bad, "optimizer");
  EXPECT_GSC_ERROR(gsc_optimizer_get_grads(o, nullptr), bad, "out_grads");
  EXPECT_GSC_ERROR(gsc_optimizer_get_state_count(o, nullptr), bad, "out_count");
  for (const int32_t slot : {-1, 2}) EXPECT_GSC_ERROR(gsc_optimizer_get_state(o, slot, &list, nullptr), bad, "slot");
  EXPECT_GSC_ERROR(gsc_optimizer_get_steps_sync(nullptr, &steps, nullptr, nullptr), bad, "optimizer");
  EXPECT_GSC_ERROR(gsc_optimizer_get_unchanged_sync(nullptr, &steps, nullptr), bad, "optimizer");
  EXPECT_GSC_ERROR(gsc_optimizer_get_unchanged_sync(o, nullptr, nullptr), bad, "out_unchanged");
  EXPECT_GSC_ERROR(gsc_optimizer_set_steps(o, -1, 0, nullptr), bad, "applied");
  EXPECT_GSC_ERROR(gsc_optimizer_set_steps(o, 0, -1, nullptr), bad, "skipped");
  EXPECT_GSC_ERROR(gsc_optimizer_set_steps(o, INT64_MAX, 0, nullptr), bad, "applied");
  EXPECT_GSC_ERROR(gsc_optimizer_set_steps(o, 0, INT64_MAX, nullptr), bad, "skipped");
  EXPECT_GSC_ERROR(gsc_optimizer_get_options(o, 0, nullptr), bad, "out_options");
  EXPECT_GSC_ERROR(gsc_optimizer_get_save_size(o, nullptr), bad, "out_bytes");
  EXPECT_GSC_ERROR(gsc_optimizer_save_sync(o, nullptr, 100, nullptr), bad, "buffer");
  EXPECT_GSC_ERROR(gsc_optimizer_load_sync(o, nullptr, 100, nullptr), bad, "buffer");
  EXPECT_EQ(word, -7);
  EXPECT_EQ(steps, -7);
  EXPECT_EQ(list, nullptr);
  EXPECT_EQ(applied_steps(optimizer), 0);
}

/// Saved bytes of an optimizer of `spec` after one step.
std::vector<unsigned char> saved(const Context &context, const TrainerSpec &spec) {
  Trainer trainer(context, spec);
  Random random(5);
  trainer.fill_grads(random, 1.0);
  EXPECT_GSC_OK(gsc_optimizer_step(trainer.get(), nullptr));
  return saved_image(trainer.get());
}

/// Damage, too, is in checkpoint_test.cpp.
TEST(BadInputOptimizerLoad, OtherSizesAndOptimizers) {
  const Context context = make_context();
  const TrainerSpec spec = {.options = optimizer_options(GSC_ADAMW), .counts = {3, 5}};
  TrainerSpec of_adam = spec, of_other_counts = spec, of_doubles = spec;
  of_adam.options = optimizer_options(GSC_ADAM);
  of_other_counts.counts = {5, 3};
  of_doubles.param_dtype = GSC_FP64;
  std::vector<unsigned char> bytes = saved(context, spec), longer = bytes;
  longer.push_back(0);
  Trainer trainer(context, spec);
  const Snapshot before = trainer.snapshot();
  const auto size = static_cast<int64_t>(bytes.size());
  EXPECT_EQ(gsc_optimizer_load_sync(trainer.get(), bytes.data(), -1, nullptr), GSC_ERROR_INVALID_ARGUMENT);
  for (const std::vector<unsigned char> &foreign :
       {longer, std::vector<unsigned char>(bytes.size(), 0), std::vector<unsigned char>(bytes.size(), 0xff),
        saved(context, of_adam), saved(context, of_other_counts), saved(context, of_doubles)}) {
    EXPECT_EQ(load_image(trainer.get(), foreign), GSC_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(trainer.snapshot() == before) << gsc_error_get_message();
  }
  EXPECT_GSC_OK(load_image(trainer.get(), bytes));
  EXPECT_EQ(applied_steps(trainer.optimizer()), 1);
  EXPECT_GSC_ERROR(gsc_optimizer_save_sync(trainer.get(), bytes.data(), size - 1, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "size");
}

}  // namespace
}  // namespace gsc_test
