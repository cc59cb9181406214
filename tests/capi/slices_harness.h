// SPDX-License-Identifier: Apache-2.0
//
// A training whose steps are taken in slices, for the suites about them.
#ifndef GRADSCALER_TESTS_CAPI_SLICES_HARNESS_H
#define GRADSCALER_TESTS_CAPI_SLICES_HARNESS_H
#include "tests/support/trainer.h"

namespace gsc_test {

struct SliceCase {
  const char *name;
  int32_t kind;
  uint32_t flags = 0;
  int32_t param_dtype = GSC_FP32;
  std::vector<int32_t> grad_dtypes = {GSC_FP16, GSC_FP32};
  int32_t copy_dtype = GSC_BF16;
  int32_t state_format = GSC_STATE_FULL;
  int32_t master_format = GSC_MASTER_NONE;
  bool absent = false;
  bool enabled = true;
};
inline void PrintTo(const SliceCase &c, std::ostream *stream) { *stream << c.name; }

/// Several chunks in two tensors, one without elements, and a row of small ones.
inline const std::vector<int64_t> kSliceCounts = {70000, 3, 0, 40000, 64, 64, 64, 1000};

struct Training {
  Training(const Context &context, const SliceCase &c, const std::vector<int64_t> &counts = kSliceCounts)
      : trainer(context, {.options = options_of(c),
                          .counts = counts,
                          .param_dtype = c.param_dtype,
                          .grad_dtypes = c.grad_dtypes,
                          .copy_dtype = c.copy_dtype}) {
    gsc_scaler_options policy = scaler_options(64.0F, 2);
    policy.enabled = c.enabled ? 1 : 0;
    scaler = make_scaler(context, policy);
    gsc_optimizer_options group = options_of(c);
    group.lr = 0.03;
    trainer.add_group(3, 2, group);
  }
  static gsc_optimizer_options options_of(const SliceCase &c) {
    gsc_optimizer_options options = optimizer_options(c.kind);
    options.flags = c.flags;
    options.lr = 0.01;
    options.weight_decay = 0.1;
    options.state_format = c.state_format;
    options.master_format = c.master_format;
    options.seed = 7;
    if (c.flags != 0) options.ema_decay = 0.9;
    return options;
  }
  gsc_status slice(int64_t max_bytes, int64_t *left) const {
    return gsc_scaler_step_slice(scaler, trainer, max_bytes, left, nullptr);
  }
  void expect_same(Training &other) {
    ASSERT_EQ(images_of(trainer.params()), images_of(other.trainer.params()));
    ASSERT_EQ(images_of(trainer.grads()), images_of(other.trainer.grads()));
    ASSERT_EQ(images_of(trainer.copies()), images_of(other.trainer.copies()));
    ASSERT_EQ(saved_image(trainer), saved_image(other.trainer));
    ASSERT_EQ(scale_of(scaler), scale_of(other.scaler));
    ASSERT_TRUE(trainer.guards_intact());
  }
  Trainer trainer;
  Scaler scaler;
};

/// Every kind, and what a step may do besides.
inline std::vector<SliceCase> slice_cases() {
  std::vector<SliceCase> result = {
      {"zero_grads", GSC_ADAMW, GSC_OPTIMIZER_ZERO_GRADS},
      {"write_grads", GSC_LAMB, GSC_OPTIMIZER_WRITE_GRADS},
      {"fp64", GSC_LAMB, 0, GSC_FP64, {GSC_FP32, GSC_FP64}},
      {.name = "bits16_stochastic",
       .kind = GSC_ADAMW,
       .param_dtype = GSC_BF16,
       .grad_dtypes = {GSC_BF16},
       .copy_dtype = 0,
       .state_format = GSC_STATE_BITS16,
       .master_format = GSC_MASTER_STOCHASTIC},
      {.name = "bits8_split",
       .kind = GSC_LAMB,
       .param_dtype = GSC_BF16,
       .grad_dtypes = {GSC_BF16},
       .copy_dtype = 0,
       .state_format = GSC_STATE_BITS8,
       .master_format = GSC_MASTER_SPLIT16},
      {.name = "absent",
       .kind = GSC_ADAMW,
       .flags = GSC_OPTIMIZER_COUNT_UNCHANGED,
       .grad_dtypes = {GSC_FP16},
       .copy_dtype = 0,
       .absent = true},
      {.name = "absent_lamb", .kind = GSC_LAMB, .grad_dtypes = {GSC_FP16}, .copy_dtype = 0, .absent = true},
      {.name = "disabled", .kind = GSC_ADAMW, .grad_dtypes = {GSC_FP32}, .copy_dtype = 0, .enabled = false}};
  for (const int32_t kind : optimizer_kinds()) result.push_back({"kind", kind});
  return result;
}

}  // namespace gsc_test
#endif
