// SPDX-License-Identifier: Apache-2.0
//
// Lists in which some tensors are absent: an absent tensor counts as empty in every pass, also where gradients lie one
// after the other, and each tensor has its own step count. Steps of every kind and checkpoints are in tests/oracle.
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

using Mask = std::vector<uint8_t>;
using Steps = std::vector<int64_t>;

gsc_status set_present(gsc_tensor_list *list, const Mask &mask, void *const *data = nullptr) {
  return gsc_tensor_list_set_present(list, mask.data(), data, std::ssize(mask), nullptr);
}

// A tensor of several chunks, one without elements, and small ones.
const std::vector<int64_t> kCounts = {3, 40000, 0, 1, 64, 65, 1000, 64, 5000};

/// Neighbours in memory are done in one span, which must end where a tensor is absent: also if the gradients that are
/// present lie without a gap.
TEST(AbsentInOneArena, GradientsThatCloseTheGap) {
  const Context context = make_context(1);
  Buffer params(GSC_FP32, 30);
  Buffer grads(GSC_FP32, 30);
  params.fill(1.0);
  for (int64_t i = 0; i < 30; ++i) grads.set(i, i + 1);
  const auto tensor = [](Buffer &buffer, int64_t first) {
    return gsc_tensor GSC_TENSOR_INIT(buffer.as<float>() + first, 10, GSC_FP32);
  };
  const auto list = [&](Buffer &buffer) {
    return make_list(context, {tensor(buffer, 0), tensor(buffer, 10), tensor(buffer, 20)});
  };
  const List p = list(params), g = list(grads);
  const Optimizer optimizer = make_optimizer(context, sgd_options(), p, g);
  void *const data[] = {grads.as<float>(), nullptr, grads.as<float>() + 10};
  ASSERT_GSC_OK(set_present(g, {1, 0, 1}, data));
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
  for (int64_t i = 0; i < 30; ++i) {
    const double want = i < 10 ? 1.0 - (i + 1) : (i < 20 ? 1.0 : 1.0 - (i - 9));
    EXPECT_EQ(params.get(i), want) << i;
  }
  ASSERT_GSC_OK(gsc_optimizer_zero_grads(optimizer, nullptr));
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(grads.get(i), i < 20 ? 0 : i + 1) << i;
}

/// A scaler over a list with absent tensors finds what it finds if those are full of zeros, and does not touch them.
class AbsentInScaler : public ::testing::TestWithParam<double> {
 protected:
  AbsentInScaler() {
    Random random(8);
    for (size_t i = 0; i < kCounts.size(); ++i) {
      zeros[i].fill_random(random, mask[i] * -64.0, mask[i] * 64.0);
      full[i].restore(zeros[i].image());
      if (mask[i] == 0) full[i].fill(i % 2 == 0 ? kNan : kInf);
    }
    for (std::vector<Buffer> *buffers : {&full, &zeros}) (*buffers)[5].set(64, GetParam());
    EXPECT_GSC_OK(set_present(list, mask));
  }
  void expect_same() {
    const gsc_report got = report_of(scaler, list), want = report_of(other, zero_list);
    EXPECT_TRUE(same_bytes(got, want)) << got.grad_norm << ' ' << want.grad_norm;
    EXPECT_EQ(got.first_tensor, GetParam() == kInf ? 5 : -1);
    for (size_t i = 0; i < kCounts.size(); ++i) {
      if (mask[i] == 0) {
        for (const double x : full[i].values()) ASSERT_FALSE(std::isfinite(x)) << i;
      } else {
        ASSERT_EQ(full[i].image(), zeros[i].image()) << i;
      }
    }
  }

  const Mask mask = {1, 0, 1, 1, 0, 1, 0, 1, 1};
  Context context = make_context(2);
  std::vector<Buffer> full = make_buffers(GSC_FP32, kCounts), zeros = make_buffers(GSC_FP32, kCounts);
  List list = make_list(context, full), zero_list = make_list(context, zeros);
  Scaler scaler = make_scaler(context, 64.0F), other = make_scaler(context, 64.0F);
};
INSTANTIATE_TEST_SUITE_P(Planted, AbsentInScaler, ::testing::Values(1.0, kInf));

TEST_P(AbsentInScaler, EveryPass) {
  ASSERT_GSC_OK(gsc_scaler_check(other, zero_list, nullptr));
  ASSERT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
  expect_same();
  EXPECT_BAD_STATE(set_present(list, mask), "list", "update or discard");
  ASSERT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
  for (const int64_t first : {6, 3, 0}) ASSERT_GSC_OK(gsc_scaler_check_range(scaler, list, first, 3, nullptr));
  expect_same();
  for (const auto &[s, l] : {std::pair(&scaler, &list), std::pair(&other, &zero_list)}) {
    ASSERT_GSC_OK(gsc_scaler_unscale(*s, *l, nullptr));
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(*s, *l, 1.0, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_clip_grad_value(*s, *l, 0.01, nullptr));
  }
  expect_same();
}

/// Three gradients of an AdamW.
struct Small {
  Small() : trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {4, 5, 6}}) {}
  void *at(size_t i) { return trainer.grads()[i].data(); }
  Context context = make_context(1);
  Trainer trainer;
};

TEST(SetPresent, AddressesOfTheAbsent) {
  Small s;
  gsc_tensor_list *grads = s.trainer.grad_list();
  Buffer other(GSC_FP32, 6);
  // An absent tensor may have an address or none.
  void *const nowhere[] = {s.at(0), nullptr, other.data()};
  ASSERT_GSC_OK(set_present(grads, {1, 0, 0}, nowhere));
  EXPECT_EQ(tensor_at(grads, 1).data, nullptr);
  EXPECT_EQ(tensor_at(grads, 1).count, 5);
  EXPECT_EQ(tensor_at(grads, 2).data, other.data());
  EXPECT_INVALID(set_present(grads, {1, 1, 1}), "present[1]", "no address");
  EXPECT_INVALID(gsc_tensor_list_set_present(grads, nullptr, nullptr, 3, nullptr), "present[1]", "no address");
  ASSERT_GSC_OK(set_present(grads, {1, 0, 1}));
  // set_pointers takes NULL for an absent tensor.
  ASSERT_GSC_OK(gsc_tensor_list_set_pointers(grads, nowhere, 3, nullptr));
  ASSERT_GSC_OK(set_pointers(grads, {s.at(0), s.at(1), s.at(2)}));
  ASSERT_GSC_OK(gsc_optimizer_step(s.trainer, nullptr));
  EXPECT_EQ(s.trainer.tensor_steps(), (Steps{1, 0, 1}));
  ASSERT_GSC_OK(set_present(grads, {1, 1, 1}));
  EXPECT_INVALID(gsc_tensor_list_set_pointers(grads, nowhere, 3, nullptr), "data[1]", "is NULL");
  ASSERT_GSC_OK(gsc_optimizer_step(s.trainer, nullptr));
  EXPECT_EQ(s.trainer.tensor_steps(), (Steps{2, 1, 2}));
}

TEST(SetPresent, Errors) {
  Small s;
  gsc_tensor_list *grads = s.trainer.grad_list();
  const Snapshot before = s.trainer.snapshot();
  void *const null_of_present[] = {s.at(0), nullptr, s.at(2)};
  void *const overlap[] = {s.at(0), s.trainer.params()[1].data(), s.at(2)};
  const Mask mask = {1, 1, 0};
  EXPECT_INVALID(gsc_tensor_list_set_present(nullptr, mask.data(), nullptr, 3, nullptr), "list");
  EXPECT_INVALID(gsc_tensor_list_set_present(grads, mask.data(), nullptr, 2, nullptr), "count is 2");
  EXPECT_INVALID(set_present(grads, mask, null_of_present), "data[1]", "is NULL");
  EXPECT_INVALID(set_present(grads, mask, overlap), "overlaps params[1]");
  // An absent tensor that has an address must not lie in another either: it may be present again without a new one.
  EXPECT_INVALID(set_present(grads, {1, 0, 1}, overlap), "overlaps params[1]");
  ASSERT_GSC_OK(gsc_optimizer_step(s.trainer, nullptr));
  EXPECT_EQ(s.trainer.tensor_steps(), (Steps{1, 1, 1})) << "all are present still";

  gsc_tensor_list *state = nullptr;
  ASSERT_GSC_OK(gsc_optimizer_get_state(s.trainer, 0, &state, nullptr));
  EXPECT_BAD_STATE(set_present(state, mask), "list", "state");
  // Nor can an optimizer begin without them.
  const Context context = make_context(1);
  std::vector<Buffer> p = make_buffers(GSC_FP32, {4, 5, 6}), g = make_buffers(GSC_FP32, {4, 5, 6});
  const List params = make_list(context, p), absent = make_list(context, g);
  ASSERT_GSC_OK(set_present(absent, mask));
  EXPECT_INVALID(status_of_optimizer(context, nullptr, params, absent), "grads[2]", "is absent");
  EXPECT_INVALID(status_of_optimizer(context, nullptr, absent, params), "params[2]", "is absent");
  EXPECT_EQ(before.grads, s.trainer.snapshot().grads);
}

TEST(TensorSteps, Errors) {
  Small s;
  int64_t steps[] = {1, -1, 1};
  EXPECT_INVALID(gsc_optimizer_set_tensor_steps(s.trainer, steps, 3, nullptr), "steps[1]", "is -1");
  steps[1] = (int64_t{1} << 53) + 1;
  EXPECT_INVALID(gsc_optimizer_set_tensor_steps(s.trainer, steps, 3, nullptr), "steps[1]", "2^53");
  EXPECT_INVALID(gsc_optimizer_set_tensor_steps(s.trainer, steps, 2, nullptr), "count is 2");
  EXPECT_INVALID(gsc_optimizer_set_tensor_steps(s.trainer, nullptr, 3, nullptr), "steps");
  EXPECT_INVALID(gsc_optimizer_get_tensor_steps_sync(s.trainer, steps, 4, nullptr), "count is 4");
  EXPECT_INVALID(gsc_optimizer_get_tensor_steps_sync(s.trainer, nullptr, 3, nullptr), "out_steps");
  EXPECT_EQ(s.trainer.tensor_steps(), (Steps{0, 0, 0}));
  // One number is enough to need an array.
  Trainer one(s.context, {.options = optimizer_options(GSC_ADAMW), .counts = {4}});
  EXPECT_INVALID(gsc_optimizer_set_tensor_steps(one, nullptr, 1, nullptr), "steps");
  EXPECT_INVALID(gsc_optimizer_get_tensor_steps_sync(one, nullptr, 1, nullptr), "out_steps");
  EXPECT_INVALID(gsc_optimizer_set_offsets(one, nullptr, 1, nullptr), "offsets");
}

TEST(TensorSteps, OfCheckpointsWithAndWithoutThem) {
  Small s;
  const Image plain = saved_image(s.trainer);
  const int64_t steps[] = {7, 0, 3};
  ASSERT_GSC_OK(gsc_optimizer_set_tensor_steps(s.trainer, steps, 3, nullptr));
  const Image counted = saved_image(s.trainer);
  EXPECT_EQ(counted.size(), plain.size() + 3 * sizeof(int64_t));
  ASSERT_GSC_OK(load_image(s.trainer, plain));
  EXPECT_EQ(s.trainer.tensor_steps(), (Steps{0, 0, 0}));
  ASSERT_GSC_OK(load_image(s.trainer, counted));
  EXPECT_EQ(s.trainer.tensor_steps(), (Steps{7, 0, 3}));
  EXPECT_EQ(applied_steps(s.trainer), 7);
}

}  // namespace
}  // namespace gsc_test
