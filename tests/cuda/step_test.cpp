// SPDX-License-Identifier: Apache-2.0
//
// Whole steps on the device against the CPU backend: every optimizer, dtype, flag and kind of clipping, with groups,
// misaligned and absent tensors and skipped steps. Parameters, state, gradients, copies, reports and histories have the same bits.
#include "tests/cuda/twin.h"

namespace gsc_test {
namespace {

struct StepCase {
  const char *name;
  int32_t kind;
  uint32_t flags = 0;
  double momentum = 0.0;
  int32_t param_dtype = GSC_FP32;
  int32_t grad_dtype = GSC_FP16;
  int32_t copy_dtype = 0;  ///< 0: none
  int64_t offset = 0;
  int groups = 1;
  bool clip_norm = false;
  double clip_value = 0.0;  ///< 0: none
  Values params = Values::kOrdinary;
};

void PrintTo(const StepCase &c, std::ostream *stream) { *stream << c.name; }

/// One side: the same objects on one context.
struct Side {
  Side(const Context &context, const StepCase &c, const std::vector<gsc_tensor> &p, const std::vector<gsc_tensor> &g,
       const std::vector<gsc_tensor> &w)
      : params(make_list(context, p)),
        grads(make_list(context, g)),
        scaler(make_scaler(context, scaler_options(1024.0f, 3))) {
    if (!w.empty()) copy = make_list(context, w);
    gsc_optimizer_options options = optimizer_options(c.kind);
    options.flags = c.flags;
    options.lr = 0.01;
    options.weight_decay = 0.02;
    options.momentum = c.momentum;
    if (c.kind == GSC_ADAGRAD) options.initial_accumulator_value = 0.1;
    optimizer = make_optimizer(context, options, params, grads, copy);
    for (int group = 1; group < c.groups; ++group) {
      options.lr = 0.01 * (group + 1);
      EXPECT_GSC_OK(gsc_optimizer_add_group(optimizer.get(), group % static_cast<int>(p.size()),
                                            group < static_cast<int>(p.size()) ? 1 : 0, &options, nullptr));
    }
  }
  void step(const StepCase &c) const {
    if (c.clip_norm) {
      EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler.get(), grads.get(), 0.5, GSC_NORM_L2, nullptr));
    }
    if (c.clip_value > 0.0) {
      EXPECT_GSC_OK(gsc_scaler_clip_grad_value(scaler.get(), grads.get(), c.clip_value, nullptr));
    }
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler.get(), optimizer.get(), nullptr));
  }
  std::vector<unsigned char> checkpoint() const {
    int64_t bytes = 0;
    EXPECT_GSC_OK(gsc_optimizer_get_save_size(optimizer.get(), &bytes));
    std::vector<unsigned char> result(static_cast<size_t>(bytes));
    EXPECT_GSC_OK(gsc_optimizer_save_sync(optimizer.get(), result.data(), bytes, nullptr));
    return result;
  }
  List params, grads, copy;
  Scaler scaler;
  Optimizer optimizer;
};

/// Both sides over the same tensors.
struct Pair {
  explicit Pair(const StepCase &c) : step_case(c) {
    const std::vector<int64_t> counts = {1, 3,    4,     5,     127, 129, 515, 2047, 2049,
                                         0, 4100, 16383, 16385, 300, 64,  64,  64,   64};
    for (const int64_t count : counts) {
      // Every third tensor is where it likes to be, whatever the others do.
      const int64_t offset = params.size() % 3 == 2 ? 0 : c.offset;
      params.emplace_back(c.param_dtype, count, offset);
      params.back().fill(c.params, random);
      grads.emplace_back(c.grad_dtype, count, offset);
      if (c.copy_dtype != 0) copies.emplace_back(c.copy_dtype, count, offset);
    }
    host = std::make_unique<Side>(contexts.cpu, c, host_tensors(params), host_tensors(grads), host_tensors(copies));
    device =
        std::make_unique<Side>(contexts.cuda, c, device_tensors(params), device_tensors(grads), device_tensors(copies));
  }
  void fill_grads() {
    for (Twin &grad : grads) grad.fill(Values::kOrdinary, random);
  }
  void step_and_compare() {
    host->step(step_case);
    device->step(step_case);
    for (const Twin &twin : params) ASSERT_TRUE(twin.same());
    for (const Twin &twin : grads) ASSERT_TRUE(twin.same());
    for (const Twin &twin : copies) ASSERT_TRUE(twin.same());
    expect_same_report(report_of(device->scaler, device->grads.get()), report_of(host->scaler, host->grads.get()));
    ASSERT_EQ(device->checkpoint(), host->checkpoint());
  }
  const StepCase step_case;
  const Contexts contexts;
  Random random{3};
  Twins params, grads, copies;
  std::unique_ptr<Side> host, device;
};

class CudaStep : public ::testing::TestWithParam<StepCase> {};

TEST_P(CudaStep, SameBits) {
  SKIP_WITHOUT_DEVICE();
  Pair pair(GetParam());
  for (int step = 0; step < 4; ++step) {
    SCOPED_TRACE(step);
    set_order(static_cast<unsigned>(step));
    pair.fill_grads();
    if (step == 2) pair.grads[6].fill(Values::kWithNan, pair.random);
    pair.step_and_compare();
    if (HasFailure()) return;
  }
  set_order(0);
  EXPECT_EQ(applied_steps(pair.device->optimizer), 3);
  EXPECT_EQ(skipped_steps(pair.device->optimizer), 1);
  gsc_history_entry want[4];
  gsc_history_entry got[4];
  int64_t count = 0;
  ASSERT_GSC_OK(gsc_scaler_get_history_sync(pair.host->scaler.get(), want, 4, &count, nullptr));
  ASSERT_GSC_OK(gsc_scaler_get_history_sync(pair.device->scaler.get(), got, 4, &count, nullptr));
  ASSERT_EQ(count, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(got[i].scale, want[i].scale);
    EXPECT_EQ(got[i].overflow, want[i].overflow);
    EXPECT_TRUE(same_value(got[i].grad_norm, want[i].grad_norm));
  }
}

/// Gradients come and go, with memory of their own or without any. The CPU's steps are held to a model in
/// tests/capi/absent_test.cpp.
TEST_P(CudaStep, SameBitsWithAbsentTensors) {
  SKIP_WITHOUT_DEVICE();
  Pair pair(GetParam());
  const auto count = static_cast<int64_t>(pair.grads.size());
  for (int step = 0; step < 7; ++step) {
    SCOPED_TRACE(step);
    set_order(static_cast<unsigned>(step));
    pair.fill_grads();
    if (step == 3) pair.grads[6].fill(Values::kWithNan, pair.random);
    std::vector<uint8_t> mask(pair.grads.size(), step == 5 ? 0 : 1);
    for (size_t i = 0; i < mask.size(); ++i) {
      if (step < 5 && i != 6 && pair.random.below(3) == 0) mask[i] = 0;
      if (mask[i] == 0 && i != 9) pair.grads[i].fill(Values::kWithInf, pair.random);  // which is not read
    }
    for (const auto &[side, is_host] : {std::pair(pair.host.get(), true), std::pair(pair.device.get(), false)}) {
      std::vector<void *> data;
      for (size_t i = 0; i < mask.size(); ++i) {
        Twin &grad = pair.grads[i];
        data.push_back(mask[i] == 0 && step % 2 == 1 ? nullptr : (is_host ? grad.host_data() : grad.device_data()));
      }
      ASSERT_GSC_OK(gsc_tensor_list_set_present(side->grads.get(), step == 6 ? nullptr : mask.data(), data.data(),
                                                count, nullptr));
    }
    pair.step_and_compare();
    if (HasFailure()) return;
    std::vector<gsc_tensor_diagnosis> want(mask.size()), got(mask.size());
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(pair.host->grads.get(), want.data(), nullptr, count, nullptr));
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(pair.device->grads.get(), got.data(), nullptr, count, nullptr));
    for (size_t i = 0; i < mask.size(); ++i) {
      EXPECT_EQ(got[i].count, want[i].count);
      EXPECT_EQ(got[i].inf_count, want[i].inf_count);
      EXPECT_EQ(got[i].l2_norm, want[i].l2_norm);
      EXPECT_EQ(got[i].amin, want[i].amin);
    }
  }
  set_order(0);
  EXPECT_EQ(applied_steps(pair.device->optimizer), 6);
  for (const Side *side : {pair.host.get(), pair.device.get()}) {
    ASSERT_GSC_OK(gsc_scaler_unscale(side->scaler.get(), side->grads.get(), nullptr));
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(side->scaler.get(), side->grads.get(), 0.1, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_discard(side->scaler.get(), nullptr));
    ASSERT_GSC_OK(gsc_optimizer_zero_grads(side->optimizer.get(), nullptr));
  }
  for (const Twin &twin : pair.grads) ASSERT_TRUE(twin.same());
}

std::vector<StepCase> step_cases() {
  std::vector<StepCase> cases = {
      {.name = "sgd", .kind = GSC_SGD},
      {.name = "momentum", .kind = GSC_SGD, .momentum = 0.9},
      {.name = "nesterov", .kind = GSC_SGD, .flags = GSC_OPTIMIZER_NESTEROV, .momentum = 0.9, .offset = 1},
      {.name = "adam", .kind = GSC_ADAM, .grad_dtype = GSC_FP32, .clip_norm = true},
      {.name = "adam_amsgrad", .kind = GSC_ADAM, .flags = GSC_OPTIMIZER_AMSGRAD, .offset = 1},
      {.name = "adamw", .kind = GSC_ADAMW, .copy_dtype = GSC_FP16, .clip_norm = true},
      {.name = "adamw_amsgrad", .kind = GSC_ADAMW, .flags = GSC_OPTIMIZER_AMSGRAD, .copy_dtype = GSC_BF16},
      {.name = "adagrad", .kind = GSC_ADAGRAD, .grad_dtype = GSC_BF16, .offset = 3},
      {.name = "lion", .kind = GSC_LION, .grad_dtype = GSC_BF16, .copy_dtype = GSC_BF16},
      {.name = "lamb", .kind = GSC_LAMB, .clip_norm = true},
      {.name = "lamb_misaligned", .kind = GSC_LAMB, .copy_dtype = GSC_FP16, .offset = 1, .groups = 3},
      {.name = "lamb_fp64", .kind = GSC_LAMB, .param_dtype = GSC_FP64, .grad_dtype = GSC_FP64, .offset = 1},
      {.name = "lamb_zero", .kind = GSC_LAMB, .flags = GSC_OPTIMIZER_ZERO_GRADS},
      {.name = "lamb_nan", .kind = GSC_LAMB, .params = Values::kWithNan},
      {.name = "fp16_params", .kind = GSC_ADAMW, .param_dtype = GSC_FP16},
      {.name = "bf16_params_misaligned",
       .kind = GSC_ADAMW,
       .param_dtype = GSC_BF16,
       .grad_dtype = GSC_BF16,
       .offset = 1},
      {.name = "fp64_params",
       .kind = GSC_ADAMW,
       .param_dtype = GSC_FP64,
       .grad_dtype = GSC_FP64,
       .copy_dtype = GSC_FP32},
      {.name = "fp64_params_fp16_grads", .kind = GSC_ADAMW, .param_dtype = GSC_FP64, .copy_dtype = GSC_FP16},
      {.name = "fp64_grads", .kind = GSC_ADAMW, .grad_dtype = GSC_FP64, .copy_dtype = GSC_FP64, .clip_value = 0.0003},
      {.name = "groups", .kind = GSC_ADAMW, .groups = 5},
      {.name = "many_groups", .kind = GSC_ADAMW, .groups = 18},
      {.name = "many_groups_lamb", .kind = GSC_LAMB, .groups = 18},
      {.name = "maximize", .kind = GSC_ADAM, .flags = GSC_OPTIMIZER_MAXIMIZE, .clip_value = 0.0003},
      {.name = "zero_grads", .kind = GSC_ADAMW, .flags = GSC_OPTIMIZER_ZERO_GRADS, .offset = 1},
      {.name = "write_grads", .kind = GSC_ADAMW, .flags = GSC_OPTIMIZER_WRITE_GRADS, .clip_norm = true},
      {.name = "write_fp64_grads", .kind = GSC_SGD, .flags = GSC_OPTIMIZER_WRITE_GRADS, .grad_dtype = GSC_FP64},
      {.name = "zero_fp64_grads", .kind = GSC_SGD, .flags = GSC_OPTIMIZER_ZERO_GRADS, .grad_dtype = GSC_FP64},
  };
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, CudaStep, ::testing::ValuesIn(step_cases()),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gsc_test
