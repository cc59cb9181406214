// SPDX-License-Identifier: Apache-2.0
//
// Lists in which some tensors are absent: an absent tensor counts as empty in every pass, and each tensor has its own
// step count. The model is one optimizer per tensor, which steps when that tensor is present: same bits for every kind,
// also where gradients lie one after the other, over skipped steps, checkpoints and counts that are set.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

using Mask = std::vector<uint8_t>;

gsc_status set_present(gsc_tensor_list *list, const Mask &mask, void *const *data = nullptr) {
  return gsc_tensor_list_set_present(list, mask.data(), data, static_cast<int64_t>(mask.size()), nullptr);
}
gsc_status set_present(const List &list, const Mask &mask, void *const *data = nullptr) {
  return set_present(list.get(), mask, data);
}

Mask random_mask(Random &random, size_t count) {
  Mask mask(count);
  for (uint8_t &present : mask) present = random.below(3) == 0 ? 0 : static_cast<uint8_t>(1 + random.below(255));
  return mask;
}

std::vector<int64_t> tensor_steps(const gsc_optimizer *optimizer, size_t count) {
  std::vector<int64_t> steps(count, -1);
  EXPECT_GSC_OK(gsc_optimizer_get_tensor_steps_sync(optimizer, steps.data(), static_cast<int64_t>(count), nullptr));
  return steps;
}

// A tensor of several chunks, one without elements, and small ones.
const std::vector<int64_t> kCounts = {3, 40000, 0, 1, 64, 65, 1000, 64, 5000};

struct Case {
  const char *name;
  int32_t kind;
  uint32_t flags = 0;
  double momentum = 0.0;
  int32_t param_dtype = GSC_FP32;
  int32_t grad_dtype = GSC_FP16;
  int32_t copy_dtype = 0;
};
void PrintTo(const Case &c, std::ostream *stream) { *stream << c.name; }

gsc_optimizer_options options_of(const Case &c, double lr = 0.01) {
  gsc_optimizer_options options = optimizer_options(c.kind);
  options.flags = c.flags;
  options.momentum = c.momentum;
  if (c.momentum > 0.0 && (c.flags & GSC_OPTIMIZER_NESTEROV) == 0) options.dampening = 0.25;
  options.weight_decay = 0.1;
  options.lr = lr;
  if (c.kind == GSC_ADAGRAD) options.lr_decay = 0.3;
  return options;
}

TrainerSpec spec_of(const Case &c, const std::vector<int64_t> &counts, uint64_t seed) {
  return {.options = options_of(c),
          .counts = counts,
          .param_dtype = c.param_dtype,
          .grad_dtypes = {c.grad_dtype},
          .copy_dtype = c.copy_dtype,
          .seed = seed};
}

/// One optimizer over all tensors, and one for each of them, with the same values.
struct Twins {
  Twins(const Context &context, const Case &c) : all(context, spec_of(c, kCounts, 1)) {
    for (size_t i = 0; i < kCounts.size(); ++i) {
      each.push_back(std::make_unique<Trainer>(context, spec_of(c, {kCounts[i]}, 1)));
      each[i]->params()[0].restore(all.params()[i].image());
      if (i != 4) continue;
      all.add_group(4, 1, options_of(c, 0.05));
      each[i]->add_group(0, 1, options_of(c, 0.05));
    }
  }
  void fill_grads(Random &random) {
    all.fill_grads(random, 1.0, 128.0);
    for (size_t i = 0; i < each.size(); ++i) each[i]->grads()[0].restore(all.grads()[i].image());
  }
  void step(const Mask &mask, float found_inf) {
    const float inverse = 1.0F / 128.0F;
    ASSERT_GSC_OK(gsc_optimizer_step_scaled(all.get(), &inverse, &found_inf, nullptr));
    for (size_t i = 0; i < each.size(); ++i) {
      if (mask[i] == 0 && kCounts[i] > 0) continue;
      ASSERT_GSC_OK(gsc_optimizer_step_scaled(each[i]->get(), &inverse, &found_inf, nullptr));
    }
  }
  void expect_same() const {
    const Snapshot together = all.snapshot();
    const size_t count = each.size();
    const std::vector<int64_t> steps = tensor_steps(all.get(), count);
    for (size_t i = 0; i < count; ++i) {
      const Snapshot alone = each[i]->snapshot();
      ASSERT_EQ(together.params[i], alone.params[0]) << i;
      ASSERT_EQ(together.grads[i], alone.grads[0]) << i;
      if (!together.copies.empty()) {
        ASSERT_EQ(together.copies[i], alone.copies[0]) << i;
      }
      for (size_t slot = 0; slot < alone.state.size(); ++slot) {
        ASSERT_EQ(together.state[slot * count + i], alone.state[slot]) << i;
      }
      ASSERT_EQ(steps[i], alone.applied) << i;
    }
  }
  Trainer all;
  std::vector<std::unique_ptr<Trainer>> each;
};

class Absent : public ::testing::TestWithParam<Case> {};

TEST_P(Absent, StepsAsOneOptimizerPerTensorWould) {
  for (const int32_t threads : {1, 3}) {
    const Context context = make_context(threads);
    Twins twins(context, GetParam());
    Random random(5);
    for (int step = 0; step < 12; ++step) {
      SCOPED_TRACE(step);
      const Mask mask = step == 7 ? Mask(kCounts.size(), 0) : random_mask(random, kCounts.size());
      // The first steps are of all: they count for a tensor that is absent later.
      if (step >= 2) {
        ASSERT_GSC_OK(set_present(twins.all.grad_list(), mask));
      }
      twins.fill_grads(random);
      twins.step(step >= 2 ? mask : Mask(kCounts.size(), 1), step == 5 ? 1.0F : 0.0F);
      twins.expect_same();
      if (HasFailure()) return;
    }
    EXPECT_TRUE(twins.all.guards_intact());
    EXPECT_EQ(applied_steps(twins.all.optimizer()), 11);
    EXPECT_EQ(skipped_steps(twins.all.optimizer()), 1);
    // All present again.
    ASSERT_GSC_OK(gsc_tensor_list_set_present(twins.all.grad_list(), nullptr, nullptr,
                                              static_cast<int64_t>(kCounts.size()), nullptr));
    twins.fill_grads(random);
    twins.step(Mask(kCounts.size(), 1), 0.0F);
    twins.expect_same();
  }
}

TEST_P(Absent, CheckpointsKeepTheCountOfEachTensor) {
  const Context context = make_context(2);
  Twins twins(context, GetParam());
  Twins restored(context, GetParam());
  Random random(6);
  Mask mask(kCounts.size(), 1);
  const int64_t plain = static_cast<int64_t>(saved(twins.all.get()).size());
  for (int step = 0; step < 4; ++step) {
    mask = random_mask(random, kCounts.size());
    ASSERT_GSC_OK(set_present(twins.all.grad_list(), mask));
    twins.fill_grads(random);
    twins.step(mask, 0.0F);
  }
  std::vector<unsigned char> image = saved(twins.all.get());
  EXPECT_EQ(static_cast<int64_t>(image.size()), plain + 8 * static_cast<int64_t>(kCounts.size()));
  ASSERT_GSC_OK(gsc_optimizer_load_sync(restored.all.get(), image.data(), static_cast<int64_t>(image.size()), nullptr));
  EXPECT_EQ(saved(restored.all.get()), image);
  EXPECT_EQ(tensor_steps(restored.all.get(), kCounts.size()), tensor_steps(twins.all.get(), kCounts.size()));
  // What lies in the parameters is the caller's to save.
  for (size_t i = 0; i < kCounts.size(); ++i) {
    restored.all.params()[i].restore(twins.all.params()[i].image());
    restored.all.copies().empty() ? void() : restored.all.copies()[i].restore(twins.all.copies()[i].image());
  }
  std::swap(twins.each, restored.each);
  ASSERT_GSC_OK(set_present(restored.all.grad_list(), mask));
  restored.fill_grads(random);
  restored.step(mask, 0.0F);
  restored.expect_same();
}

INSTANTIATE_TEST_SUITE_P(
    All, Absent,
    ::testing::Values(Case{"sgd", GSC_SGD}, Case{"momentum", GSC_SGD, 0, 0.9},
                      Case{"nesterov", GSC_SGD, GSC_OPTIMIZER_NESTEROV, 0.9, GSC_FP32, GSC_FP32},
                      Case{"adam", GSC_ADAM, GSC_OPTIMIZER_AMSGRAD, 0.0, GSC_FP32, GSC_BF16},
                      Case{"adamw", GSC_ADAMW, 0, 0.0, GSC_FP32, GSC_FP16, GSC_BF16},
                      Case{"adamw_zero", GSC_ADAMW, GSC_OPTIMIZER_ZERO_GRADS},
                      Case{"adamw_write", GSC_ADAMW, GSC_OPTIMIZER_WRITE_GRADS, 0.0, GSC_FP32, GSC_FP32},
                      Case{"adamw_fp64", GSC_ADAMW, 0, 0.0, GSC_FP64, GSC_FP64}, Case{"adagrad", GSC_ADAGRAD},
                      Case{"lion", GSC_LION}, Case{"lamb", GSC_LAMB, 0, 0.0, GSC_FP32, GSC_FP16, GSC_FP16},
                      Case{"lamb_fp64", GSC_LAMB, 0, 0.0, GSC_FP64, GSC_FP32}),
    [](const auto &info) { return std::string(info.param.name); });

/// Neighbours in memory are done in one span, which must end where a tensor is absent: also if the gradients that are
/// present lie without a gap.
TEST(AbsentInOneArena, GradientsThatCloseTheGap) {
  const Context context = make_context(1);
  Buffer params(GSC_FP32, 30);
  Buffer grads(GSC_FP32, 30);
  params.fill(1.0);
  for (int64_t i = 0; i < 30; ++i) grads.set(i, static_cast<double>(i + 1));
  const auto tensor = [](Buffer &buffer, int64_t first) {
    return gsc_tensor GSC_TENSOR_INIT(buffer.as<float>() + first, 10, GSC_FP32);
  };
  const List p = make_list(context, {tensor(params, 0), tensor(params, 10), tensor(params, 20)});
  const List g = make_list(context, {tensor(grads, 0), tensor(grads, 10), tensor(grads, 20)});
  gsc_optimizer_options sgd = optimizer_options(GSC_SGD);
  sgd.lr = 1.0;
  const Optimizer optimizer = make_optimizer(context, sgd, p, g);
  void *const data[] = {grads.as<float>(), nullptr, grads.as<float>() + 10};
  ASSERT_GSC_OK(set_present(g, {1, 0, 1}, data));
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer.get(), nullptr));
  for (int64_t i = 0; i < 30; ++i) {
    const double want = i < 10 ? 1.0 - (i + 1) : (i < 20 ? 1.0 : 1.0 - (i - 9));
    EXPECT_EQ(params.get(i), want) << i;
  }
  ASSERT_GSC_OK(gsc_optimizer_zero_grads(optimizer.get(), nullptr));
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(grads.get(i), i < 20 ? 0.0 : static_cast<double>(i + 1)) << i;
}

/// The passes of a scaler over a list with absent tensors find what they find if those are full of zeros.
class AbsentInScaler : public ::testing::Test {
 protected:
  static constexpr float kScale = 64.0F;
  AbsentInScaler() {
    Random random(8);
    for (size_t i = 0; i < kCounts.size(); ++i) {
      full[i].fill_random(random, -kScale, kScale);
      if (mask[i] == 0) {
        // Nobody looks there.
        full[i].fill(i % 2 == 0 ? kNan : kInf);
      } else {
        zeros[i].restore(full[i].image());
      }
    }
    before = images(full);
    EXPECT_GSC_OK(set_present(list, mask));
  }
  static std::vector<std::vector<unsigned char>> images(const std::vector<Buffer> &buffers) {
    std::vector<std::vector<unsigned char>> result;
    for (const Buffer &buffer : buffers) result.push_back(buffer.image());
    return result;
  }
  void expect_same_values() {
    for (size_t i = 0; i < kCounts.size(); ++i) {
      EXPECT_EQ(full[i].image(), mask[i] == 0 ? before[i] : zeros[i].image()) << i;
    }
  }
  void expect_same_reports() {
    const gsc_report got = report_of(scaler, list.get());
    const gsc_report want = report_of(other, zero_list.get());
    EXPECT_EQ(got.grad_norm, want.grad_norm);
    EXPECT_GT(got.grad_norm, 0.0);
    EXPECT_EQ(got.grad_amax, want.grad_amax);
    EXPECT_EQ(got.nonfinite_count, want.nonfinite_count);
    EXPECT_EQ(got.first_tensor, want.first_tensor);
    EXPECT_EQ(got.first_element, want.first_element);
  }

  const Mask mask = {1, 0, 1, 1, 0, 1, 0, 1, 1};
  Context context = make_context(2);
  std::vector<Buffer> full = make_buffers(GSC_FP32, kCounts), zeros = make_buffers(GSC_FP32, kCounts);
  List list = make_list(context, full), zero_list = make_list(context, zeros);
  Scaler scaler = make_scaler(context, kScale), other = make_scaler(context, kScale);
  std::vector<std::vector<unsigned char>> before;
};

TEST_F(AbsentInScaler, CheckAndCheckRange) {
  ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_check(other.get(), zero_list.get(), nullptr));
  expect_same_reports();
  ASSERT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
  for (const int64_t first : {6, 3, 0}) {
    ASSERT_GSC_OK(gsc_scaler_check_range(scaler.get(), list.get(), first, 3, nullptr));
  }
  expect_same_reports();
  expect_same_values();
}

TEST_F(AbsentInScaler, UnscaleAndBothClips) {
  for (const auto &[s, l] : {std::pair(&scaler, &list), std::pair(&other, &zero_list)}) {
    ASSERT_GSC_OK(gsc_scaler_unscale(s->get(), l->get(), nullptr));
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(s->get(), l->get(), 1.0, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_clip_grad_value(s->get(), l->get(), 0.01, nullptr));
  }
  expect_same_reports();
  expect_same_values();
  ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
  EXPECT_EQ(report_of(scaler).flags, 0U);
}

TEST_F(AbsentInScaler, AnOffenderIsOneThatIsPresent) {
  full[5].set(64, kInf);
  zeros[5].set(64, kInf);
  ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
  ASSERT_GSC_OK(gsc_scaler_check(other.get(), zero_list.get(), nullptr));
  expect_same_reports();
  EXPECT_EQ(report_of(scaler, list.get()).first_tensor, 5);
}

TEST_F(AbsentInScaler, NobodyPresentIsNoOverflow) {
  ASSERT_GSC_OK(set_present(list, Mask(kCounts.size(), 0)));
  int32_t apply = 0;
  ASSERT_GSC_OK(gsc_scaler_should_step_sync(scaler.get(), list.get(), &apply, nullptr));
  EXPECT_EQ(apply, 1);
  ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
  const gsc_report report = report_of(scaler);
  EXPECT_EQ(report.flags, 0U);
  EXPECT_EQ(report.grad_norm, 0.0);
  EXPECT_EQ(report.first_tensor, -1);
  for (size_t i = 0; i < kCounts.size(); ++i) EXPECT_EQ(full[i].image(), before[i]) << i;
}

TEST_F(AbsentInScaler, DiagnosisCountsNothing) {
  std::vector<gsc_tensor_diagnosis> found(kCounts.size());
  std::vector<int64_t> bins(kCounts.size() * GSC_EXPONENT_BINS, -1);
  ASSERT_GSC_OK(gsc_tensor_list_diagnose_sync(list.get(), found.data(), bins.data(),
                                              static_cast<int64_t>(kCounts.size()), nullptr));
  for (size_t i = 0; i < kCounts.size(); ++i) {
    EXPECT_EQ(found[i].count, mask[i] == 0 ? 0 : kCounts[i]) << i;
    EXPECT_EQ(found[i].first_nonfinite, -1) << i;
    EXPECT_EQ(found[i].nan_count + found[i].inf_count, 0) << i;
    int64_t sum = found[i].zero_count;
    for (int64_t b = 0; b < GSC_EXPONENT_BINS; ++b) sum += bins[i * GSC_EXPONENT_BINS + static_cast<size_t>(b)];
    EXPECT_EQ(sum, found[i].count) << i;
  }
}

TEST_F(AbsentInScaler, IsRefusedWhileTheListIsInUse) {
  ASSERT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
  EXPECT_GSC_ERROR(set_present(list, mask), GSC_ERROR_BAD_STATE, "list", "update or discard");
  ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), nullptr));
  EXPECT_GSC_OK(set_present(list, mask));
}

/// Three gradients of an AdamW.
struct Small {
  Small() : trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {4, 5, 6}}) {}
  void *at(size_t i) { return trainer.grads()[i].data(); }
  gsc_tensor tensor(int64_t i) const {
    gsc_tensor found{};
    EXPECT_GSC_OK(gsc_tensor_list_get_tensor(trainer.grad_list(), i, &found));
    return found;
  }
  Context context = make_context(1);
  Trainer trainer;
};

TEST(SetPresent, AddressesOfTheAbsent) {
  Small s;
  gsc_tensor_list *grads = s.trainer.grad_list();
  Buffer other(GSC_FP32, 6);
  // It may be somewhere, or nowhere.
  void *const nowhere[] = {s.at(0), nullptr, other.data()};
  ASSERT_GSC_OK(set_present(grads, {1, 0, 0}, nowhere));
  EXPECT_EQ(s.tensor(1).data, nullptr);
  EXPECT_EQ(s.tensor(1).count, 5);
  EXPECT_EQ(s.tensor(2).data, other.data());
  EXPECT_GSC_ERROR(set_present(grads, {1, 1, 1}), GSC_ERROR_INVALID_ARGUMENT, "present[1]", "no address");
  EXPECT_GSC_ERROR(gsc_tensor_list_set_present(grads, nullptr, nullptr, 3, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "present[1]", "no address");
  ASSERT_GSC_OK(set_present(grads, {1, 0, 1}));
  // set_pointers takes who is absent for absent.
  ASSERT_GSC_OK(gsc_tensor_list_set_pointers(grads, nowhere, 3, nullptr));
  void *const all[] = {s.at(0), s.at(1), s.at(2)};
  ASSERT_GSC_OK(gsc_tensor_list_set_pointers(grads, all, 3, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step(s.trainer.get(), nullptr));
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{1, 0, 1}));
  ASSERT_GSC_OK(set_present(grads, {1, 1, 1}));
  EXPECT_GSC_ERROR(gsc_tensor_list_set_pointers(grads, nowhere, 3, nullptr), GSC_ERROR_INVALID_ARGUMENT, "data[1]",
                   "is NULL");
  ASSERT_GSC_OK(gsc_optimizer_step(s.trainer.get(), nullptr));
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{2, 1, 2}));
}

TEST(SetPresent, Errors) {
  Small s;
  gsc_tensor_list *grads = s.trainer.grad_list();
  const Snapshot before = s.trainer.snapshot();
  void *const null_of_present[] = {s.at(0), nullptr, s.at(2)};
  void *const overlap[] = {s.at(0), s.trainer.params()[1].data(), s.at(2)};
  const Mask mask = {1, 1, 0};
  EXPECT_GSC_ERROR(gsc_tensor_list_set_present(nullptr, mask.data(), nullptr, 3, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "list");
  EXPECT_GSC_ERROR(gsc_tensor_list_set_present(grads, mask.data(), nullptr, 2, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "count is 2");
  EXPECT_GSC_ERROR(set_present(grads, mask, null_of_present), GSC_ERROR_INVALID_ARGUMENT, "data[1]", "is NULL");
  EXPECT_GSC_ERROR(set_present(grads, mask, overlap), GSC_ERROR_INVALID_ARGUMENT, "overlaps params[1]");
  // An absent tensor that has an address must not lie in another either: it may be present again without a new one.
  EXPECT_GSC_ERROR(set_present(grads, {1, 0, 1}, overlap), GSC_ERROR_INVALID_ARGUMENT, "overlaps params[1]");
  ASSERT_GSC_OK(gsc_optimizer_step(s.trainer.get(), nullptr));
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{1, 1, 1})) << "all are present still";

  gsc_tensor_list *state = nullptr;
  ASSERT_GSC_OK(gsc_optimizer_get_state(s.trainer.get(), 0, &state, nullptr));
  EXPECT_GSC_ERROR(set_present(state, mask), GSC_ERROR_BAD_STATE, "list", "state");
  // Nor can an optimizer begin without them.
  const Context context = make_context(1);
  std::vector<Buffer> p = make_buffers(GSC_FP32, {4, 5, 6});
  std::vector<Buffer> g = make_buffers(GSC_FP32, {4, 5, 6});
  const List params = make_list(context, p);
  const List absent = make_list(context, g);
  ASSERT_GSC_OK(set_present(absent, mask));
  gsc_optimizer *optimizer = nullptr;
  EXPECT_GSC_ERROR(
      gsc_optimizer_create(context.get(), nullptr, params.get(), absent.get(), nullptr, nullptr, 0, &optimizer),
      GSC_ERROR_INVALID_ARGUMENT, "grads[2]", "is absent");
  EXPECT_GSC_ERROR(
      gsc_optimizer_create(context.get(), nullptr, absent.get(), params.get(), nullptr, nullptr, 0, &optimizer),
      GSC_ERROR_INVALID_ARGUMENT, "params[2]", "is absent");
  EXPECT_EQ(before.grads, s.trainer.snapshot().grads);
}

TEST(TensorSteps, SetAndGet) {
  Small s;
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{0, 0, 0}));
  const int64_t steps[] = {7, 0, 3};
  ASSERT_GSC_OK(gsc_optimizer_set_steps(s.trainer.get(), 1, 9, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_set_tensor_steps(s.trainer.get(), steps, 3, nullptr));
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{7, 0, 3}));
  EXPECT_EQ(applied_steps(s.trainer.optimizer()), 7);
  EXPECT_EQ(skipped_steps(s.trainer.optimizer()), 9);

  // The same step as of three optimizers with one count each.
  Random random(4);
  s.trainer.fill_grads(random, 1.0);
  std::vector<std::vector<unsigned char>> want;
  for (size_t i = 0; i < 3; ++i) {
    Small alone;
    for (size_t k = 0; k < 3; ++k) alone.trainer.grads()[k].restore(s.trainer.grads()[k].image());
    ASSERT_GSC_OK(gsc_optimizer_set_steps(alone.trainer.get(), steps[i], 0, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_step(alone.trainer.get(), nullptr));
    want.push_back(alone.trainer.params()[i].image());
  }
  ASSERT_GSC_OK(gsc_optimizer_step(s.trainer.get(), nullptr));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(s.trainer.params()[i].image(), want[i]) << i;
  EXPECT_NE(want[0], want[1]);

  // One count again.
  ASSERT_GSC_OK(gsc_optimizer_set_steps(s.trainer.get(), 2, 0, nullptr));
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{2, 2, 2}));
}

TEST(TensorSteps, Errors) {
  Small s;
  int64_t steps[] = {1, -1, 1};
  EXPECT_GSC_ERROR(gsc_optimizer_set_tensor_steps(s.trainer.get(), steps, 3, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "steps[1]", "is -1");
  steps[1] = (int64_t{1} << 53) + 1;
  EXPECT_GSC_ERROR(gsc_optimizer_set_tensor_steps(s.trainer.get(), steps, 3, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "steps[1]", "2^53");
  EXPECT_GSC_ERROR(gsc_optimizer_set_tensor_steps(s.trainer.get(), steps, 2, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "count is 2");
  EXPECT_GSC_ERROR(gsc_optimizer_set_tensor_steps(s.trainer.get(), nullptr, 3, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "steps");
  EXPECT_GSC_ERROR(gsc_optimizer_get_tensor_steps_sync(s.trainer.get(), steps, 4, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                   "count is 4");
  EXPECT_GSC_ERROR(gsc_optimizer_get_tensor_steps_sync(s.trainer.get(), nullptr, 3, nullptr),
                   GSC_ERROR_INVALID_ARGUMENT, "out_steps");
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{0, 0, 0}));
}

TEST(TensorSteps, OfCheckpointsWithAndWithoutThem) {
  Small s;
  const std::vector<unsigned char> plain = saved(s.trainer.get());
  const int64_t steps[] = {7, 0, 3};
  ASSERT_GSC_OK(gsc_optimizer_set_tensor_steps(s.trainer.get(), steps, 3, nullptr));
  const std::vector<unsigned char> counted = saved(s.trainer.get());
  ASSERT_GSC_OK(gsc_optimizer_load_sync(s.trainer.get(), plain.data(), static_cast<int64_t>(plain.size()), nullptr));
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{0, 0, 0}));
  ASSERT_GSC_OK(
      gsc_optimizer_load_sync(s.trainer.get(), counted.data(), static_cast<int64_t>(counted.size()), nullptr));
  EXPECT_EQ(tensor_steps(s.trainer.get(), 3), (std::vector<int64_t>{7, 0, 3}));
  EXPECT_EQ(applied_steps(s.trainer.optimizer()), 7);
}

}  // namespace
}  // namespace gsc_test
