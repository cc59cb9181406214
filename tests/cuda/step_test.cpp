// SPDX-License-Identifier: Apache-2.0
//
// Whole steps on the device against the CPU backend: every optimizer, dtype, flag, kind of clipping and format of state
// and masters, with groups, misaligned and absent tensors and skipped steps. Parameters, state, gradients, copies,
// reports and histories have the same bits.
#include "core/rules/dtypes.h"
#include "core/rules/state_codes.h"
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
  int32_t state_format = GSC_STATE_FULL;
  int32_t master_format = GSC_MASTER_NONE;
  double ema_decay = 0.0;
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
    options.state_format = c.state_format;
    options.master_format = c.master_format;
    options.seed = 0x123456789abcdef;
    options.ema_decay = c.ema_decay;
    if (c.ema_decay > 0.0) options.flags |= GSC_OPTIMIZER_EMA_WARMUP;
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
    if (slice_bytes == 0) {
      EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler.get(), optimizer.get(), nullptr));
      return;
    }
    for (int64_t left = 1; left > 0 && !::testing::Test::HasFailure();) {
      EXPECT_GSC_OK(gsc_scaler_step_slice(scaler.get(), optimizer.get(), slice_bytes, &left, nullptr));
    }
    EXPECT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
  }
  std::vector<unsigned char> checkpoint() const { return saved_image(optimizer.get()); }
  int64_t unchanged() const {
    int64_t count = -1;
    EXPECT_GSC_OK(gsc_optimizer_get_unchanged_sync(optimizer.get(), &count, nullptr));
    return count;
  }
  List params, grads, copy;
  Scaler scaler;
  Optimizer optimizer;
  int64_t slice_bytes = 0;  ///< 0: whole steps
};

/// Both sides over the same tensors.
struct Pair {
  explicit Pair(const StepCase &c, const std::vector<int64_t> &counts = {1, 3, 4, 5, 127, 129, 515, 2047, 2049, 0, 4100,
                                                                         16383, 16385, 300, 64, 64, 64, 64})
      : step_case(c) {
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
    ASSERT_EQ(device->unchanged(), host->unchanged());
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

/// In slices of about a third of a step, from a step that is skipped on.
TEST_P(CudaStep, SameBitsInSlices) {
  SKIP_WITHOUT_DEVICE();
  Pair pair(GetParam());
  pair.device->slice_bytes = 400000;
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    pair.fill_grads();
    if (step == 0) pair.grads[6].fill(Values::kWithNan, pair.random);
    pair.step_and_compare();
    if (HasFailure()) return;
  }
}

/// Gradients come and go, with memory of their own or without any, and weights are averaged. The CPU's steps are held to
/// models in tests/capi/absent_test.cpp and ema_test.cpp.
TEST_P(CudaStep, SameBitsWithAbsentTensorsAndAverages) {
  SKIP_WITHOUT_DEVICE();
  StepCase averaging = GetParam();
  averaging.ema_decay = 0.75;
  Pair pair(averaging);
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

/// A state slot for each kind of tensor in turn, in formats and at addresses of the caller's choice.
struct OwnState {
  OwnState(const Contexts &contexts, const std::vector<int32_t> &dtypes, const std::vector<int64_t> &counts) {
    std::vector<gsc_tensor> on_host, on_device;
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t bytes = counts[i] * gsc::dtype_bytes(dtypes[i]);
      const bool has_scales = gsc::is_grouped(dtypes[i]);
      // Codes begin behind an element that is not theirs, so that some are misaligned.
      const int64_t begin = gsc::dtype_bytes(dtypes[i]) * static_cast<int64_t>(i % 3);
      const int64_t scales = begin + bytes;
      host.emplace_back(static_cast<size_t>(scales + gsc::state_groups(counts[i]) + 8), 0);
      device.emplace_back(static_cast<int64_t>(host.back().size()));
      copy_to_device(device.back().data(), host.back().data(), static_cast<int64_t>(host.back().size()));
      for (const auto &[tensors, memory] : {std::pair(&on_host, reinterpret_cast<char *>(host.back().data())),
                                            std::pair(&on_device, device.back().data())}) {
        gsc_tensor t = GSC_TENSOR_INIT(memory + begin, counts[i], dtypes[i]);
        if (has_scales) {
          t.scale = memory + scales;
          t.scale_dtype = GSC_FP8_E8M0;
          t.scale_block_rows = 1;
          t.scale_block_columns = gsc::kStateGroup;
        }
        tensors->push_back(t);
      }
    }
    host_list = make_list(contexts.cpu, on_host);
    device_list = make_list(contexts.cuda, on_device);
  }
  ::testing::AssertionResult same() const {
    for (size_t i = 0; i < host.size(); ++i) {
      std::vector<unsigned char> bytes(host[i].size());
      copy_to_host(bytes.data(), device[i].data(), static_cast<int64_t>(bytes.size()));
      if (bytes != host[i]) return ::testing::AssertionFailure() << "tensor " << i;
    }
    return ::testing::AssertionSuccess();
  }
  std::vector<std::vector<unsigned char>> host;
  std::vector<DeviceBytes> device;
  List host_list, device_list;
};

/// Tensors of one list with different formats, and a parameter in fp64 between them.
TEST(CudaFormats, ListsOfTheCallersMayMixThem) {
  SKIP_WITHOUT_DEVICE();
  for (const int32_t kind : {GSC_ADAMW, GSC_LAMB}) {
    const Contexts contexts;
    const std::vector<int64_t> counts = {700, 33, 2100, 16400, 5, 1000};
    const std::vector<int32_t> params = {GSC_FP32, GSC_BF16, GSC_FP64, GSC_FP16, GSC_FP32, GSC_FP32};
    const std::vector<int32_t> moments = {GSC_BF16, GSC_FP8_E4M3, GSC_FP64, GSC_FP32, GSC_FP8_E4M3, GSC_FP8_E4M3};
    const std::vector<int32_t> squares = {GSC_UFP8_E4M4, GSC_FP32, GSC_FP64, GSC_UFP16_E5M11, GSC_UFP8_E4M4, GSC_FP32};
    Twins p, g;
    Random random(11);
    for (size_t i = 0; i < counts.size(); ++i) {
      p.emplace_back(params[i], counts[i]);
      p.back().fill(Values::kOrdinary, random);
      g.emplace_back(i % 2 == 0 ? GSC_FP32 : GSC_FP16, counts[i]);
    }
    const OwnState m(contexts, moments, counts), v(contexts, squares, counts);
    gsc_optimizer_options options = optimizer_options(kind);
    options.lr = 0.01;
    Optimizer optimizers[2];
    List param_lists[2] = {make_list(contexts.cpu, host_tensors(p)), make_list(contexts.cuda, device_tensors(p))};
    List grad_lists[2] = {make_list(contexts.cpu, host_tensors(g)), make_list(contexts.cuda, device_tensors(g))};
    for (int side = 0; side < 2; ++side) {
      gsc_tensor_list *state[] = {(side == 0 ? m.host_list : m.device_list).get(),
                                  (side == 0 ? v.host_list : v.device_list).get()};
      gsc_optimizer *optimizer = nullptr;
      ASSERT_GSC_OK(gsc_optimizer_create((side == 0 ? contexts.cpu : contexts.cuda).get(), &options,
                                         param_lists[side].get(), grad_lists[side].get(), nullptr, state, 2,
                                         &optimizer));
      optimizers[side] = Optimizer(optimizer);
    }
    for (int step = 0; step < 4; ++step) {
      SCOPED_TRACE(text("kind ", kind, " step ", step));
      set_order(static_cast<unsigned>(step));
      for (Twin &grad : g) grad.fill(Values::kOrdinary, random);
      for (const Optimizer &optimizer : optimizers) ASSERT_GSC_OK(gsc_optimizer_step(optimizer.get(), nullptr));
      for (const Twin &twin : p) ASSERT_TRUE(twin.same());
      ASSERT_TRUE(m.same());
      ASSERT_TRUE(v.same());
    }
    set_order(0);
  }
}

TEST(CudaStep, EvaluatesAsTheCpuDoes) {
  SKIP_WITHOUT_DEVICE();
  for (const int32_t kind : {GSC_ADAMW_SCHEDULE_FREE, GSC_SGD_SCHEDULE_FREE}) {
    for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_STOCHASTIC}) {
      SCOPED_TRACE(text("kind ", kind, " master ", master));
      Pair pair({.name = "",
                 .kind = kind,
                 .momentum = 0.9,
                 .param_dtype = master == GSC_MASTER_NONE ? GSC_FP32 : GSC_BF16,
                 .copy_dtype = master == GSC_MASTER_NONE ? GSC_FP16 : 0,
                 .groups = 3,
                 .master_format = master});
      for (int step = 0; step < 4; ++step) {
        set_order(static_cast<unsigned>(step));
        pair.fill_grads();
        pair.step_and_compare();
        if (::testing::Test::HasFailure()) return;
        if (step % 2 == 0) continue;
        for (const int32_t evaluating : {1, 0}) {
          for (const auto *side : {&pair.host, &pair.device}) {
            ASSERT_GSC_OK(gsc_optimizer_set_evaluating((*side)->optimizer.get(), evaluating, nullptr));
          }
          for (const Twin &twin : pair.params) ASSERT_TRUE(twin.same());
          for (const Twin &twin : pair.copies) ASSERT_TRUE(twin.same());
          ASSERT_EQ(pair.device->checkpoint(), pair.host->checkpoint());
        }
      }
      set_order(0);
    }
  }
}

TEST(CudaFormats, CheckpointsLoadAsOnTheCpu) {
  SKIP_WITHOUT_DEVICE();
  const auto pair_of = [](int32_t state, int32_t master) {
    return std::make_unique<Pair>(StepCase{.name = "",
                                           .kind = GSC_ADAMW,
                                           .param_dtype = GSC_BF16,
                                           .offset = 1,
                                           .state_format = state,
                                           .master_format = master});
  };
  for (const int32_t from : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    const auto source = pair_of(from, GSC_MASTER_SPLIT16);
    source->fill_grads();
    source->step_and_compare();
    const std::vector<unsigned char> image = source->device->checkpoint();
    for (const int32_t to : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      SCOPED_TRACE(text("state ", from, " into ", to));
      const auto target = pair_of(to, GSC_MASTER_SPLIT8);
      for (const auto *side : {&target->host, &target->device}) {
        ASSERT_GSC_OK(gsc_optimizer_load_sync((*side)->optimizer.get(), image.data(),
                                              static_cast<int64_t>(image.size()), nullptr));
      }
      ASSERT_EQ(target->device->checkpoint(), target->host->checkpoint());
    }
  }
}

TEST(CudaFormats, EveryKindWithEveryFormatOfStateAndMasters) {
  SKIP_WITHOUT_DEVICE();
  int number = 0;
  for (const int32_t kind : optimizer_kinds()) {
    for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
        for (const int32_t param : {GSC_FP16, GSC_BF16}) {
          if (state == GSC_STATE_FULL && master == GSC_MASTER_NONE) continue;
          ++number;
          SCOPED_TRACE(text("kind ", kind, " state ", state, " master ", master, " param ", param));
          Pair pair({.name = "",
                     .kind = kind,
                     .momentum = kind == GSC_SGD || kind == GSC_RMSPROP || kind == GSC_SGD_SCHEDULE_FREE ? 0.9 : 0.0,
                     .param_dtype = param,
                     .grad_dtype = number % 3 == 0 ? GSC_FP32 : (number % 3 == 1 ? GSC_FP16 : GSC_BF16),
                     .copy_dtype = master == GSC_MASTER_NONE ? GSC_FP16 : 0,
                     .offset = number % 5 == 0 ? 1 : 0,
                     .clip_norm = number % 2 == 0,
                     .state_format = state,
                     .master_format = master,
                     .ema_decay = number % 2 == 0 ? 0.75 : 0.0},
                    {1, 31, 33, 0, 300, 64, 520});
          for (int step = 0; step < 3; ++step) {
            set_order(static_cast<unsigned>(step));
            pair.fill_grads();
            if (step == 1) pair.grads[2].fill(Values::kWithInf, pair.random);
            pair.step_and_compare();
          }
          set_order(0);
          if (::testing::Test::HasFailure()) return;
          EXPECT_EQ(applied_steps(pair.device->optimizer), 2);
        }
      }
    }
  }
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
      {.name = "rmsprop", .kind = GSC_RMSPROP, .offset = 1},
      {.name = "rmsprop_momentum", .kind = GSC_RMSPROP, .momentum = 0.9, .copy_dtype = GSC_FP16},
      {.name = "rmsprop_centered", .kind = GSC_RMSPROP, .flags = GSC_OPTIMIZER_CENTERED, .momentum = 0.9, .groups = 3},
      {.name = "adadelta", .kind = GSC_ADADELTA, .grad_dtype = GSC_FP32, .copy_dtype = GSC_BF16},
      {.name = "adamax", .kind = GSC_ADAMAX, .grad_dtype = GSC_BF16, .clip_norm = true},
      {.name = "nadam", .kind = GSC_NADAM, .copy_dtype = GSC_FP16, .groups = 3},
      {.name = "nadam_fp64", .kind = GSC_NADAM, .param_dtype = GSC_FP64, .grad_dtype = GSC_FP64, .groups = 18},
      {.name = "radam", .kind = GSC_RADAM, .flags = GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY, .offset = 3},
      {.name = "adabelief", .kind = GSC_ADABELIEF, .copy_dtype = GSC_BF16},
      {.name = "ademamix", .kind = GSC_ADEMAMIX, .copy_dtype = GSC_FP16, .groups = 3, .clip_norm = true},
      {.name = "adamw_schedule_free", .kind = GSC_ADAMW_SCHEDULE_FREE, .copy_dtype = GSC_FP16, .groups = 3},
      {.name = "sgd_schedule_free", .kind = GSC_SGD_SCHEDULE_FREE, .momentum = 0.9, .clip_norm = true},
      {.name = "lars", .kind = GSC_LARS, .momentum = 0.9, .copy_dtype = GSC_BF16, .groups = 3, .clip_norm = true},
      {.name = "lars_zero",
       .kind = GSC_LARS,
       .flags = GSC_OPTIMIZER_ZERO_GRADS | GSC_OPTIMIZER_NESTEROV,
       .momentum = 0.9},
      {.name = "novograd", .kind = GSC_NOVOGRAD, .flags = GSC_OPTIMIZER_WRITE_GRADS, .grad_dtype = GSC_FP32},
      {.name = "novograd_fp64",
       .kind = GSC_NOVOGRAD,
       .flags = GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY | GSC_OPTIMIZER_BIAS_CORRECTION,
       .param_dtype = GSC_FP64,
       .grad_dtype = GSC_FP64,
       .groups = 18},
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
      {.name = "counted",
       .kind = GSC_ADAMW,
       .flags = GSC_OPTIMIZER_COUNT_UNCHANGED,
       .copy_dtype = GSC_FP16,
       .offset = 1},
      {.name = "counted_bf16",
       .kind = GSC_LAMB,
       .flags = GSC_OPTIMIZER_COUNT_UNCHANGED,
       .param_dtype = GSC_BF16,
       .grad_dtype = GSC_BF16},
      {.name = "counted_fp64",
       .kind = GSC_SGD,
       .flags = GSC_OPTIMIZER_COUNT_UNCHANGED,
       .param_dtype = GSC_FP64,
       .grad_dtype = GSC_FP64},
      {.name = "counted_16bit_split16",
       .kind = GSC_ADAMW,
       .flags = GSC_OPTIMIZER_COUNT_UNCHANGED,
       .param_dtype = GSC_BF16,
       .offset = 1,
       .state_format = GSC_STATE_BITS16,
       .master_format = GSC_MASTER_SPLIT16},
      {.name = "counted_8bit_split8",
       .kind = GSC_LION,
       .flags = GSC_OPTIMIZER_COUNT_UNCHANGED,
       .param_dtype = GSC_FP16,
       .state_format = GSC_STATE_BITS8,
       .master_format = GSC_MASTER_SPLIT8},
      {.name = "write_fp64_grads", .kind = GSC_SGD, .flags = GSC_OPTIMIZER_WRITE_GRADS, .grad_dtype = GSC_FP64},
      {.name = "zero_fp64_grads", .kind = GSC_SGD, .flags = GSC_OPTIMIZER_ZERO_GRADS, .grad_dtype = GSC_FP64},
      {.name = "adamw_16bit_split16",
       .kind = GSC_ADAMW,
       .param_dtype = GSC_FP16,
       .clip_norm = true,
       .state_format = GSC_STATE_BITS16,
       .master_format = GSC_MASTER_SPLIT16},
      {.name = "adamw_8bit_split8_misaligned",
       .kind = GSC_ADAMW,
       .param_dtype = GSC_BF16,
       .grad_dtype = GSC_BF16,
       .offset = 1,
       .groups = 3,
       .state_format = GSC_STATE_BITS8,
       .master_format = GSC_MASTER_SPLIT8},
      {.name = "amsgrad_8bit_stochastic",
       .kind = GSC_ADAM,
       .flags = GSC_OPTIMIZER_AMSGRAD | GSC_OPTIMIZER_MAXIMIZE | GSC_OPTIMIZER_ZERO_GRADS,
       .param_dtype = GSC_BF16,
       .copy_dtype = GSC_FP64,
       .state_format = GSC_STATE_BITS8,
       .master_format = GSC_MASTER_STOCHASTIC},
      {.name = "adagrad_16bit_fp64_grads",
       .kind = GSC_ADAGRAD,
       .flags = GSC_OPTIMIZER_WRITE_GRADS,
       .grad_dtype = GSC_FP64,
       .copy_dtype = GSC_FP32,
       .clip_value = 0.0003,
       .state_format = GSC_STATE_BITS16},
      {.name = "momentum_8bit_many_groups",
       .kind = GSC_SGD,
       .flags = GSC_OPTIMIZER_WRITE_GRADS,
       .momentum = 0.9,
       .offset = 3,
       .groups = 18,
       .clip_value = 0.0003,
       .state_format = GSC_STATE_BITS8},
      {.name = "lamb_8bit_split16",
       .kind = GSC_LAMB,
       .param_dtype = GSC_BF16,
       .groups = 18,
       .clip_norm = true,
       .state_format = GSC_STATE_BITS8,
       .master_format = GSC_MASTER_SPLIT16},
      {.name = "lamb_16bit_misaligned",
       .kind = GSC_LAMB,
       .flags = GSC_OPTIMIZER_ZERO_GRADS,
       .grad_dtype = GSC_FP64,
       .offset = 1,
       .state_format = GSC_STATE_BITS16},
      {.name = "lion_8bit_nan",
       .kind = GSC_LION,
       .copy_dtype = GSC_BF16,
       .params = Values::kWithNan,
       .state_format = GSC_STATE_BITS8},
  };
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, CudaStep, ::testing::ValuesIn(step_cases()),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gsc_test
