// SPDX-License-Identifier: Apache-2.0
//
// Whole steps on the device against the CPU backend: every optimizer, dtype, flag, kind of clipping and format of state
// and masters, with groups, misaligned and absent tensors and skipped steps. Parameters, state, gradients, copies,
// reports and histories have the same bits.
#include "core/rules/optim/variants.h"
#include "tests/cuda/state_twin.h"
#include "tests/support/kinds.h"

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
  Values params = kOrdinary;
  int32_t state_format = GSC_STATE_FULL;
  int32_t master_format = GSC_MASTER_NONE;
  double ema_decay = 0.0;
  bool has_range = false;  ///< of parameters, another in each group
};

void PrintTo(const StepCase &c, std::ostream *stream) { *stream << c.name; }

/// With which a kind takes this formula, or any that it takes.
template <typename F>
constexpr double momentum_of() {
  constexpr int32_t kKind = F::kKind.code;
  return gsc::kNeedsMomentum<F> || kKind == GSC_SGD_SCHEDULE_FREE ? 0.9 : 0.0;
}

gsc_optimizer_options options_of(const StepCase &c, int group = 0) {
  gsc_optimizer_options options = optimizer_options(c.kind);
  options.flags = c.flags;
  options.lr = 0.01 * (group + 1);
  options.weight_decay = 0.02;
  options.momentum = c.momentum;
  options.state_format = c.state_format;
  options.master_format = c.master_format;
  options.seed = 0x123456789abcdef;
  options.ema_decay = c.ema_decay;
  if (c.ema_decay > 0.0) options.flags |= GSC_OPTIMIZER_EMA_WARMUP;
  if (c.kind == GSC_ADAGRAD) options.initial_accumulator_value = 0.1;
  if (c.has_range && group % 3 != 1) {
    options.param_min = -0.25 / (group + 1);
    options.param_max = 0.375;
  }
  return options;
}

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
    const gsc_optimizer_options options = options_of(c);
    host =
        std::make_unique<Side>(contexts.cpu, options, host_tensors(params), host_tensors(grads), host_tensors(copies));
    device = std::make_unique<Side>(contexts.device, options, device_tensors(params), device_tensors(grads),
                                    device_tensors(copies));
    for (int group = 1; group < c.groups; ++group) {
      const gsc_optimizer_options others = options_of(c, group);
      const int tensors = params.size();
      for (const Side *side : {host.get(), device.get()}) {
        EXPECT_GSC_OK(
            gsc_optimizer_add_group(side->optimizer, group % tensors, group < tensors ? 1 : 0, &others, nullptr));
      }
    }
  }
  void fill_grads() {
    for (Twin &grad : grads) grad.fill(kOrdinary, random);
  }
  /// On the device, in slices of so many bytes if that is not 0.
  void step_and_compare(int64_t slice_bytes = 0) {
    step(*host, 0);
    step(*device, slice_bytes);
    for (const Twins *twins : {&params, &grads, &copies}) ASSERT_TRUE(same(*twins));
    expect_same_report(report_of(device->scaler, device->grads), report_of(host->scaler, host->grads));
    ASSERT_EQ(saved_image(device->optimizer), saved_image(host->optimizer));
    ASSERT_EQ(unchanged(*device), unchanged(*host));
  }
  const StepCase step_case;
  const Contexts contexts;
  Random random{3};
  Twins params, grads, copies;
  std::unique_ptr<Side> host, device;

 private:
  void step(const Side &side, int64_t slice_bytes) const {
    const StepCase &c = step_case;
    if (c.clip_norm) {
      EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(side.scaler, side.grads, 0.5, GSC_NORM_L2, nullptr));
    }
    if (c.clip_value > 0.0) {
      EXPECT_GSC_OK(gsc_scaler_clip_grad_value(side.scaler, side.grads, c.clip_value, nullptr));
    }
    if (slice_bytes == 0) {
      EXPECT_GSC_OK(gsc_scaler_step_and_update(side.scaler, side.optimizer, nullptr));
      return;
    }
    for (int64_t left = 1; left > 0 && !testing::Test::HasFailure();) {
      EXPECT_GSC_OK(gsc_scaler_step_slice(side.scaler, side.optimizer, slice_bytes, &left, nullptr));
    }
    EXPECT_GSC_OK(gsc_scaler_update(side.scaler, nullptr));
  }
  static int64_t unchanged(const Side &side) {
    int64_t count = -1;
    EXPECT_GSC_OK(gsc_optimizer_get_unchanged_sync(side.optimizer, &count, nullptr));
    return count;
  }
};

class DeviceStep : public testing::TestWithParam<StepCase> {};

TEST_P(DeviceStep, SameBits) {
  SKIP_WITHOUT_DEVICE();
  Pair pair(GetParam());
  for (int step = 0; step < 4; ++step) {
    SCOPED_TRACE(step);
    set_order(step);
    pair.fill_grads();
    if (step == 2) pair.grads[6].fill(kWithNan, pair.random);
    pair.step_and_compare();
    if (HasFailure()) return;
  }
  set_order(0);
  EXPECT_EQ(applied_steps(pair.device->optimizer), 3);
  EXPECT_EQ(skipped_steps(pair.device->optimizer), 1);
  gsc_history_entry want[4], got[4];
  int64_t count = 0;
  ASSERT_GSC_OK(gsc_scaler_get_history_sync(pair.host->scaler, want, 4, &count, nullptr));
  ASSERT_GSC_OK(gsc_scaler_get_history_sync(pair.device->scaler, got, 4, &count, nullptr));
  ASSERT_EQ(count, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(got[i].scale, want[i].scale);
    EXPECT_EQ(got[i].overflow, want[i].overflow);
    EXPECT_TRUE(same_value(got[i].grad_norm, want[i].grad_norm));
  }
}

/// In slices of about a third of a step, from a step that is skipped on.
TEST_P(DeviceStep, SameBitsInSlices) {
  SKIP_WITHOUT_DEVICE();
  Pair pair(GetParam());
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    pair.fill_grads();
    if (step == 0) pair.grads[6].fill(kWithNan, pair.random);
    pair.step_and_compare(400000);
    if (HasFailure()) return;
  }
}

/// Gradients come and go, with memory of their own or without any, and weights are averaged. The CPU's steps are held to
/// a model in tests/oracle.
TEST_P(DeviceStep, SameBitsWithAbsentTensorsAndAverages) {
  SKIP_WITHOUT_DEVICE();
  StepCase averaging = GetParam();
  averaging.ema_decay = 0.75;
  averaging.params = kOrdinary;  // the average of a NaN may have other bits on a device
  Pair pair(averaging);
  const auto count = std::ssize(pair.grads);
  for (int step = 0; step < 7; ++step) {
    SCOPED_TRACE(step);
    set_order(step);
    pair.fill_grads();
    if (step == 3) pair.grads[6].fill(kWithNan, pair.random);
    std::vector<uint8_t> mask(pair.grads.size(), step == 5 ? 0 : 1);
    for (size_t i = 0; i < mask.size(); ++i) {
      if (step < 5 && i != 6 && pair.random.below(3) == 0) mask[i] = 0;
      if (mask[i] == 0 && i != 9) pair.grads[i].fill(kWithInf, pair.random);  // which is not read
    }
    for (const auto &[side, is_host] : {std::pair(pair.host.get(), true), std::pair(pair.device.get(), false)}) {
      std::vector<void *> data;
      for (size_t i = 0; i < mask.size(); ++i) {
        Twin &grad = pair.grads[i];
        data.push_back(mask[i] == 0 && step % 2 == 1 ? nullptr : (is_host ? grad.host_data() : grad.device_data()));
      }
      ASSERT_GSC_OK(
          gsc_tensor_list_set_present(side->grads, step == 6 ? nullptr : mask.data(), data.data(), count, nullptr));
    }
    pair.step_and_compare();
    if (HasFailure()) return;
    std::vector<gsc_tensor_diagnosis> want(mask.size()), got(mask.size());
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(pair.host->grads, want.data(), nullptr, count, nullptr));
    ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(pair.device->grads, got.data(), nullptr, count, nullptr));
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
    ASSERT_GSC_OK(gsc_scaler_unscale(side->scaler, side->grads, nullptr));
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(side->scaler, side->grads, 0.1, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_discard(side->scaler, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_zero_grads(side->optimizer, nullptr));
  }
  ASSERT_TRUE(same(pair.grads));
}

/// Any norm above the average of those before is a spike, and the third in a row is taken: about half of the steps.
TEST(DeviceStep, SpikesAsOnTheCpu) {
  for (const int64_t slice_bytes : {int64_t{0}, int64_t{100000}}) {
    Pair pair({"adamw", GSC_ADAMW, 0, 0.0, GSC_FP32, GSC_FP16, GSC_FP16});
    gsc_scaler_options options;
    EXPECT_GSC_OK(gsc_scaler_get_options(pair.host->scaler, &(options = with_size<gsc_scaler_options>())));
    options.spike_factor = 1.0;
    options.spike_deviations = 0.0;
    options.spike_window = 2;
    options.spike_patience = 2;
    for (const Side *side : {pair.host.get(), pair.device.get()}) {
      EXPECT_GSC_OK(gsc_scaler_set_options(side->scaler, &options, nullptr));
    }
    for (int i = 0; i < 16; ++i) {
      pair.fill_grads();
      ASSERT_NO_FATAL_FAILURE(pair.step_and_compare(slice_bytes)) << i;
    }
    const gsc_report report = report_of(pair.device->scaler);
    EXPECT_GT(report.spikes, 2);
    EXPECT_GT(applied_steps(pair.device->optimizer), 2);
    EXPECT_GT(report.norm_average, 0.0);
  }
}

TEST(DeviceStep, NormsOfTensorsAsOnTheCpu) {
  for (const int32_t dtype : {GSC_FP16, GSC_FP32, GSC_FP64}) {
    for (const int64_t slice_bytes : {int64_t{0}, int64_t{100000}}) {
      Pair pair({"sgd", GSC_SGD, 0, 0.0, dtype == GSC_FP64 ? GSC_FP64 : GSC_FP32, dtype});
      const TwinNorms norms(*pair.host, *pair.device, pair.grads.size());
      for (const Values values : {Values::kOrdinary, Values::kWithInf, Values::kWithNan, Values::kHuge}) {
        for (Twin &grad : pair.grads) grad.fill(values, pair.random);
        ASSERT_NO_FATAL_FAILURE(pair.step_and_compare(slice_bytes));
        norms.expect_same();
      }
    }
  }
}

/// Whole steps, slices and steps without a scaler. A factor that is invalid on the device skips the step.
TEST(DeviceStep, FactorsAsOnTheCpu) {
  for (const int64_t slice_bytes : {int64_t{0}, int64_t{100000}}) {
    Pair pair({"adamw", GSC_ADAMW, 0, 0.0, GSC_FP32, GSC_FP16, GSC_FP16});
    TwinWord<float> factor(1.0F / 3.0F);
    ASSERT_GSC_OK(gsc_tensor_list_set_device_factor(pair.host->grads, &factor.host));
    ASSERT_GSC_OK(gsc_tensor_list_set_device_factor(pair.device->grads, factor.device()));
    for (int i = 0; i < 4; ++i) {
      factor.set(1.0F / static_cast<float>(i + 3));
      pair.fill_grads();
      ASSERT_NO_FATAL_FAILURE(pair.step_and_compare(slice_bytes)) << i;
    }
    for (const Side *side : {pair.host.get(), pair.device.get()}) {
      ASSERT_GSC_OK(gsc_optimizer_step(side->optimizer, nullptr));
    }
    ASSERT_TRUE(same(pair.params));
    const int64_t applied = applied_steps(pair.device->optimizer);
    for (const float bad : {-1.0F, static_cast<float>(kInf), static_cast<float>(kNan)}) {
      factor.set(bad);
      ASSERT_GSC_OK(gsc_scaler_step_and_update(pair.device->scaler, pair.device->optimizer, nullptr));
      EXPECT_GT(report_of(pair.device->scaler).nonfinite_count, 0) << bad;
      ASSERT_GSC_OK(gsc_optimizer_step(pair.device->optimizer, nullptr));
    }
    EXPECT_EQ(applied_steps(pair.device->optimizer), applied);
    ASSERT_TRUE(same(pair.params));
  }
}

/// Tensors of one list with different formats, and a parameter in fp64 between them.
TEST(DeviceFormats, ListsOfTheCallersMayMixThem) {
  SKIP_WITHOUT_DEVICE();
  struct Row {
    int64_t count;
    int32_t param, slots[2];
  };
  const Row rows[] = {{700, GSC_FP32, {GSC_BF16, GSC_UINT8_LOG}},   {33, GSC_BF16, {GSC_FP8_E4M3, GSC_FP32}},
                      {2100, GSC_FP64, {GSC_FP64, GSC_FP64}},       {16400, GSC_FP16, {GSC_FP32, GSC_UFP16_E6M10}},
                      {5, GSC_FP32, {GSC_FP8_E4M3, GSC_UINT8_LOG}}, {1000, GSC_FP32, {GSC_FP8_E4M3, GSC_FP32}}};
  for (const int32_t kind : {GSC_ADAMW, GSC_LAMB}) {
    const Contexts contexts;
    Twins p, g;
    std::vector<StateTwin> state[2];
    std::vector<gsc_tensor> host_state[2], device_state[2];
    Random random(11);
    for (const Row &row : rows) {
      const int64_t i = std::ssize(p);
      add_filled(p, random, row.param, row.count);
      g.emplace_back(i % 2 == 0 ? GSC_FP32 : GSC_FP16, row.count);
      for (int s = 0; s < 2; ++s) state[s].emplace_back(row.slots[s], row.count, nullptr, i % 3);  // some misaligned
    }
    for (int s = 0; s < 2; ++s) {
      for (StateTwin &twin : state[s]) {
        host_state[s].push_back(twin.host_tensor());
        device_state[s].push_back(twin.device_tensor());
      }
    }
    gsc_optimizer_options options = optimizer_options(kind);
    options.lr = 0.01;
    const auto make = [&](const Context &context, const auto &params, const auto &grads, const auto(&state)[2]) {
      const List m = make_list(context, state[0]), v = make_list(context, state[1]);
      return make_optimizer(context, options, make_list(context, params), make_list(context, grads), nullptr, {m, v});
    };
    const Optimizer optimizers[] = {make(contexts.cpu, host_tensors(p), host_tensors(g), host_state),
                                    make(contexts.device, device_tensors(p), device_tensors(g), device_state)};
    for (int step = 0; step < 4; ++step) {
      SCOPED_TRACE(text("kind ", kind, " step ", step));
      set_order(step);
      for (Twin &grad : g) grad.fill(kOrdinary, random);
      for (const Optimizer &optimizer : optimizers) {
        ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
        EXPECT_EQ(applied_steps(optimizer), step + 1);
      }
      ASSERT_TRUE(same(p));
      for (auto &slot : state) {
        for (StateTwin &twin : slot) ASSERT_TRUE(twin.same(contexts.cpu));
      }
    }
    set_order(0);
  }
}

/// Gradients of every magnitude, whose squares and means overflow.
TEST(DeviceFormats, ExtremeGradientsAsOnTheCpu) {
  SKIP_WITHOUT_DEVICE();
  for (const int32_t kind : {GSC_ADAMW, GSC_LION, GSC_LAMB, GSC_RMSPROP, GSC_RADAM, GSC_ADEMAMIX}) {
    for (const int32_t state : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      SCOPED_TRACE(text("kind ", kind, " state ", state));
      Pair pair({.name = "",
                 .kind = kind,
                 .flags = kind == GSC_RMSPROP ? uint32_t{GSC_OPTIMIZER_CENTERED} : 0,
                 .grad_dtype = GSC_FP32,
                 .state_format = state},
                {33, 1000, 4});
      for (int step = 0; step < 3; ++step) {
        for (Twin &grad : pair.grads) {
          for (int64_t i = 0; i < grad.host().count(); ++i) {
            const double sign = i % 2 == 0 ? 1.0 : -1.0;
            const double x = std::ldexp(pair.random.uniform(1.0, 2.0), static_cast<int>(pair.random.below(277)) - 149);
            grad.host().set(i, sign * std::min(x, 0x1.fffffep127));
          }
          grad.upload();
        }
        pair.step_and_compare();
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

/// A ratio of norms close to 0 is limited, so that the other weights are not moved by inf times 0.
TEST(DeviceFormats, ATinyGradientAsOnTheCpu) {
  SKIP_WITHOUT_DEVICE();
  for (const int32_t kind : {GSC_LAMB, GSC_LARS}) {
    SCOPED_TRACE(text("kind ", kind));
    Pair pair({.name = "", .kind = kind, .grad_dtype = GSC_FP32}, {1000});
    pair.grads[0].host().fill(0.0);
    pair.grads[0].host().set(7, 0x1p-149);
    pair.grads[0].upload();
    pair.step_and_compare();
    for (const double weight : pair.params[0].host().values()) ASSERT_TRUE(std::isfinite(weight));
  }
}

TEST(DeviceStep, EvaluatesAsTheCpuDoes) {
  SKIP_WITHOUT_DEVICE();
  for (const int32_t kind : {GSC_ADAMW_SCHEDULE_FREE, GSC_SGD_SCHEDULE_FREE}) {
    for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_STOCHASTIC}) {
      SCOPED_TRACE(text("kind ", kind, " master ", master));
      Pair pair({.name = "",
                 .kind = kind,
                 .momentum = kind == GSC_SGD_SCHEDULE_FREE ? 0.9 : 0.0,
                 .param_dtype = master == GSC_MASTER_NONE ? GSC_FP32 : GSC_BF16,
                 .copy_dtype = master == GSC_MASTER_NONE ? GSC_FP16 : 0,
                 .groups = 3,
                 .state_format = master == GSC_MASTER_NONE ? GSC_STATE_FULL : GSC_STATE_BITS8,
                 .master_format = master});
      for (int step = 0; step < 4; ++step) {
        set_order(step);
        pair.fill_grads();
        pair.step_and_compare();
        if (testing::Test::HasFailure()) return;
        if (step % 2 == 0) continue;
        if (step == 3) {
          const double special[] = {kNan, kInf, -kInf, -0.0};
          for (int i = 0; i < 4; ++i) pair.params[7].host().set(i, special[i]);
          pair.params[7].upload();
        }
        for (const int32_t evaluating : {1, 0}) {
          for (const auto *side : {&pair.host, &pair.device}) {
            ASSERT_GSC_OK(gsc_optimizer_set_evaluating((*side)->optimizer, evaluating, nullptr));
          }
          ASSERT_TRUE(same(pair.params));
          ASSERT_TRUE(same(pair.copies));
          ASSERT_EQ(saved_image(pair.device->optimizer), saved_image(pair.host->optimizer));
        }
      }
      set_order(0);
    }
  }
}

TEST(DeviceFormats, CheckpointsLoadAsOnTheCpu) {
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
    const Image image = saved_image(source->device->optimizer);
    for (const int32_t to : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      SCOPED_TRACE(text("state ", from, " into ", to));
      const auto target = pair_of(to, GSC_MASTER_SPLIT8);
      for (const auto *side : {&target->host, &target->device}) ASSERT_GSC_OK(load_image((*side)->optimizer, image));
      ASSERT_EQ(saved_image(target->device->optimizer), saved_image(target->host->optimizer));
    }
  }
}

/// With all that restrains what moves.
void restrain(StepCase &c) {
  c.has_range = !is_schedule_free(c.kind);
  c.flags |= kind_of(c.kind).flags & (GSC_OPTIMIZER_CAUTIOUS | GSC_OPTIMIZER_CAUTIOUS_DECAY);
}

/// A case for each formula, of dtypes, addresses, groups and clipping in turn.
std::vector<StepCase> formula_cases() {
  std::vector<StepCase> cases = {
#define GSC_STEP_CASE(enumerator, formula) \
  {.name = #enumerator,                    \
   .kind = gsc::formula::kKind.code,       \
   .flags = gsc::kFlag<gsc::formula>,      \
   .momentum = momentum_of<gsc::formula>()},
      GSC_FOR_EACH_VARIANT(GSC_STEP_CASE)
#undef GSC_STEP_CASE
  };
  constexpr int32_t kGrads[] = {GSC_FP16, GSC_BF16, GSC_FP32};
  constexpr int32_t kCopies[] = {0, GSC_FP16, GSC_BF16, 0};
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].grad_dtype = kGrads[i % 3];
    cases[i].copy_dtype = kCopies[i % 4];
    cases[i].offset = i % 5 == 2 ? 1 : 0;
    cases[i].groups = i % 5 == 3 ? 3 : 1;
    cases[i].clip_norm = i % 2 == 0;
  }
  return cases;
}

TEST(DeviceFormats, EveryFormulaWithEveryFormatOfStateAndMasters) {
  SKIP_WITHOUT_DEVICE();
  const std::vector<int64_t> counts = {1, 31, 33, 0, 300, 64, 520};
  int number = 0;
  for (const StepCase &formula : formula_cases()) {
    for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
        for (const int32_t param : {GSC_FP16, GSC_BF16}) {
          if (state == GSC_STATE_FULL && master == GSC_MASTER_NONE) continue;
          ++number;
          SCOPED_TRACE(text(formula.name, " state ", state, " master ", master, " param ", param));
          StepCase c = formula;
          c.param_dtype = param;
          c.grad_dtype = number % 3 == 0 ? GSC_FP32 : (number % 3 == 1 ? GSC_FP16 : GSC_BF16);
          c.copy_dtype = master == GSC_MASTER_NONE ? GSC_FP16 : 0;
          c.offset = number % 5 == 0 ? 1 : 0;
          c.clip_norm = number % 2 == 0;
          c.state_format = state;
          c.master_format = master;
          c.ema_decay = number % 2 == 0 ? 0.75 : 0.0;
          if (number % 3 == 0) restrain(c);
          Pair pair(c, counts);
          for (int step = 0; step < 3; ++step) {
            set_order(step);
            pair.fill_grads();
            if (step == 1) pair.grads[2].fill(kWithInf, pair.random);
            pair.step_and_compare();
          }
          set_order(0);
          if (testing::Test::HasFailure()) return;
          EXPECT_EQ(applied_steps(pair.device->optimizer), 2);
        }
      }
    }
  }
}

/// Each formula once more, with options, dtypes and formats at random.
std::vector<StepCase> random_cases() {
  std::vector<StepCase> cases = formula_cases();
  Random random(29);
  const auto pick = [&](const std::vector<int32_t> &choices) { return choices[random.below(std::ssize(choices))]; };
  for (StepCase &c : cases) {
    const bool has_codes = random.below(2) == 0;
    c.master_format = has_codes ? pick({GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC})
                                : GSC_MASTER_NONE;
    c.state_format = has_codes ? pick({GSC_STATE_BITS16, GSC_STATE_BITS8}) : GSC_STATE_FULL;
    c.param_dtype = has_codes ? pick({GSC_FP16, GSC_BF16}) : pick(kAllDtypes);
    c.grad_dtype = pick(kAllDtypes);
    const bool splits = c.master_format == GSC_MASTER_SPLIT16 || c.master_format == GSC_MASTER_SPLIT8;
    c.copy_dtype = splits ? 0 : pick({0, GSC_FP16, GSC_BF16, GSC_FP32, GSC_FP64});
    c.flags |= pick({0, GSC_OPTIMIZER_ZERO_GRADS, GSC_OPTIMIZER_WRITE_GRADS, GSC_OPTIMIZER_COUNT_UNCHANGED});
    if (random.below(3) == 0) c.flags |= GSC_OPTIMIZER_MAXIMIZE;
    c.offset = pick({0, 1, 3});
    c.groups = pick({1, 3, 18});
    c.clip_norm = random.below(2) == 0;
    c.clip_value = random.below(3) == 0 ? 0.0003 : 0.0;
    c.has_range = !is_schedule_free(c.kind) && random.below(2) == 0;
    for (const uint32_t flag : {GSC_OPTIMIZER_CAUTIOUS, GSC_OPTIMIZER_CAUTIOUS_DECAY}) {
      if ((kind_of(c.kind).flags & flag) != 0 && random.below(2) == 0) c.flags |= flag;
    }
    // A NaN that reaches the state may have other bits on a device.
    const bool keeps_nan_out = c.kind == GSC_LAMB || c.kind == GSC_LION;
    if (keeps_nan_out && (c.flags & GSC_OPTIMIZER_COUNT_UNCHANGED) == 0) c.params = kWithNan;
  }
  return cases;
}

std::vector<StepCase> step_cases() {
  std::vector<StepCase> cases = {
      {.name = "radam_decoupled", .kind = GSC_RADAM, .flags = GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY, .offset = 3},
      {.name = "lars_nesterov", .kind = GSC_LARS, .flags = GSC_OPTIMIZER_NESTEROV, .momentum = 0.9},
      {.name = "novograd_fp64",
       .kind = GSC_NOVOGRAD,
       .flags = GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY | GSC_OPTIMIZER_BIAS_CORRECTION,
       .param_dtype = GSC_FP64,
       .grad_dtype = GSC_FP64,
       .groups = 18},
      {.name = "many_groups", .kind = GSC_ADAMW, .groups = 18},
      {.name = "many_groups_lamb", .kind = GSC_LAMB, .groups = 18},
      {.name = "counted_16bit_split16",
       .kind = GSC_ADAMW,
       .flags = GSC_OPTIMIZER_COUNT_UNCHANGED,
       .param_dtype = GSC_BF16,
       .offset = 1,
       .state_format = GSC_STATE_BITS16,
       .master_format = GSC_MASTER_SPLIT16},
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
  };
  const std::vector<StepCase> formulas = formula_cases();
  cases.insert(cases.end(), formulas.begin(), formulas.end());
  for (StepCase c : {StepCase{.name = "restrained_adam_fp64", .kind = GSC_ADAM, .param_dtype = GSC_FP64},
                     StepCase{.name = "restrained_adamw", .kind = GSC_ADAMW, .copy_dtype = GSC_FP16, .groups = 18},
                     StepCase{.name = "restrained_lion_16bit", .kind = GSC_LION, .param_dtype = GSC_BF16, .groups = 3},
                     StepCase{.name = "restrained_lamb", .kind = GSC_LAMB, .copy_dtype = GSC_BF16, .offset = 1},
                     StepCase{.name = "restrained_adamw_8bit",
                     .kind = GSC_ADAMW,
                     .param_dtype = GSC_BF16,
                     .grad_dtype = GSC_BF16,
                     .groups = 3,
                     .state_format = GSC_STATE_BITS8,
                     .master_format = GSC_MASTER_STOCHASTIC}}) {
    restrain(c);
    cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, DeviceStep, testing::ValuesIn(step_cases()),
                         [](const auto &info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Random, DeviceStep, testing::ValuesIn(random_cases()),
                         [](const auto &info) { return info.param.name; });

}  // namespace
}  // namespace gsc_test
