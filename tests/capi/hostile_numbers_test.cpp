// SPDX-License-Identifier: Apache-2.0
//
// Numbers, addresses and names that no careful caller passes: each is refused with a sentence that names the argument,
// before anything is read or changed.
#include <numeric>
#include <random>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

template <typename T>
T *misaligned(T *pointer) {
  return reinterpret_cast<T *>(reinterpret_cast<char *>(pointer) + sizeof(T) / 2);
}

TEST(Misaligned, DeviceScalarsAreRefusedByName) {
  const Context context = make_context();
  gsc_context *const c = context;
  Trainer trainer(context, {.options = optimizer_options(GSC_SGD), .counts = {4}});
  gsc_optimizer *const o = trainer;
  const gsc_tensor t = trainer.grads()[0].tensor();
  float f[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  double d[4] = {};
  int32_t tracker[4] = {};
  const Snapshot before = trainer.snapshot();
  const auto refused = [](gsc_status status, const char *name) { EXPECT_INVALID(status, name, "aligned"); };
  refused(gsc_optimizer_set_device_lr(o, 0, misaligned(f), nullptr), "device_lr is");
  refused(gsc_tensor_list_set_device_norms(trainer.grad_list(), misaligned(d), 1), "device_norms is");
  refused(gsc_tensor_list_set_device_factor(trainer.grad_list(), misaligned(f)), "device_factor is");
  refused(gsc_optimizer_step_scaled(o, misaligned(f), f + 2, nullptr), "inv_scale is");
  refused(gsc_optimizer_step_scaled(o, f, misaligned(f + 1), nullptr), "found_inf is");
  refused(gsc_ops_unscale_check(c, &t, 1, misaligned(f), f + 2, nullptr), "found_inf is");
  refused(gsc_ops_unscale_check(c, &t, 1, f, misaligned(f + 1), nullptr), "inv_scale is");
  refused(gsc_ops_update_scale(c, misaligned(f), tracker, f, 2.0, 0.5, 1, nullptr), "scale is");
  refused(gsc_ops_update_scale(c, f, misaligned(tracker), f + 1, 2.0, 0.5, 1, nullptr), "growth_tracker is");
  refused(gsc_ops_update_scale(c, f, tracker, misaligned(f), 2.0, 0.5, 1, nullptr), "found_inf is");
  refused(gsc_ops_scale(c, &t, &t, 1, misaligned(f), nullptr), "factor is");
  refused(gsc_ops_norm(c, &t, 1, GSC_NORM_L2, misaligned(d), nullptr, nullptr), "out_norm is");
  refused(gsc_ops_norm(c, &t, 1, GSC_NORM_L2, d, misaligned(d + 1), nullptr), "out_tensor_norms is");
  EXPECT_TRUE(trainer.snapshot().same_with_grads(before));
}

/// A count from uninitialised memory: refused by arithmetic, with no tensor or name read.
TEST(AbsurdCounts, AreRefusedBeforeAnythingIsRead) {
  const Context context = make_context();
  Buffer buffer(GSC_FP32, 4);
  const gsc_tensor t = buffer.tensor();
  const char *name = "only one";
  for (const int64_t count : {int64_t{-1}, (int64_t{1} << 24) + 1, int64_t{1} << 32, int64_t{1} << 60, INT64_MAX}) {
    gsc_tensor_list *list = nullptr;
    float word = 1.0f;
    double norm = 0.0;
    EXPECT_INVALID(gsc_tensor_list_create(context, &t, count, nullptr, &list), "count is");
    EXPECT_INVALID(gsc_tensor_list_create(context, &t, count, &name, &list), "count is");
    EXPECT_EQ(list, nullptr);
    EXPECT_INVALID(gsc_ops_norm(context, &t, count, GSC_NORM_L2, &norm, nullptr, nullptr), "count is");
    EXPECT_INVALID(gsc_ops_scale(context, &t, &t, count, &word, nullptr), "count is");
  }
  // Elements that no memory holds, though each tensor could be.
  const gsc_tensor huge = GSC_TENSOR_INIT(buffer.data(), int64_t{1} << 39, GSC_FP16);
  const std::vector<gsc_tensor> many(3, huge);
  double norm = 0.0;
  EXPECT_INVALID(gsc_ops_norm(context, many.data(), 3, GSC_NORM_L2, &norm, nullptr, nullptr), "tensors[2]", "together");
}

TEST(State, WithoutACountIsRefused) {
  const Context context = make_context();
  Buffer params(GSC_FP32, 4), grads(GSC_FP32, 4), state(GSC_FP32, 4);
  const List p = make_list(context, params), g = make_list(context, grads), s = make_list(context, state);
  gsc_tensor_list *lists[] = {s};
  gsc_optimizer_options options = optimizer_options(GSC_SGD);
  options.momentum = 0.9;
  gsc_optimizer *made = nullptr;
  EXPECT_INVALID(gsc_optimizer_create(context, &options, p, g, nullptr, lists, 0, &made), "state is not NULL",
                 "state_count is 0");
  EXPECT_EQ(made, nullptr);
  // Languages whose empty arrays have an address may pass it where there is no state.
  options.momentum = 0.0;
  ASSERT_GSC_OK(gsc_optimizer_create(context, &options, p, g, nullptr, lists, 0, &made));
  gsc_optimizer_destroy(made);
}

using SetPointers = OnCpu;

TEST_F(SetPointers, RefusesTheOverlapThatCreateRefuses) {
  Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {64, 8}, .copy_dtype = GSC_BF16});
  const auto refused = [&](void *first, const char *other) {
    EXPECT_INVALID(set_pointers(trainer.grad_list(), {first, trainer.grads()[1].data()}), "data[0]", other, "overlaps");
    EXPECT_EQ(tensor_at(trainer.grad_list(), 0).data, trainer.grads()[0].data());
  };
  refused(trainer.params()[0].data(), "params[0]");
  refused(trainer.params()[0].as<float>() + 60, "params[0]");
  refused(trainer.copies()[0].data(), "model_copy[0]");
  refused(trainer.state_tensor(0, 0).data, "state[0][0]");
  refused(trainer.state_tensor(1, 0).data, "state[1][0]");
  // The old addresses, and new ones that nothing else has.
  Buffer fresh(GSC_FP32, 64);
  for (void *data : {trainer.grads()[0].data(), fresh.data()}) {
    ASSERT_GSC_OK(set_pointers(trainer.grad_list(), {data, trainer.grads()[1].data()}));
  }
}

/// Random tensors of zero or more elements in one block of memory. set_pointers refuses them if and only if a comparison
/// of all pairs finds two that overlap.
TEST_F(SetPointers, FindsEveryOverlapInAnyOrder) {
  constexpr int kTensors = 6, kSlot = 4, kArena = 160;
  std::mt19937 random(7);
  Buffer arena(GSC_FP32, kArena);
  int refused = 0, accepted = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<int> slots(kArena / kSlot);
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), random);
    if (round % 2 != 0) std::sort(slots.begin(), slots.begin() + kTensors);
    std::vector<int64_t> counts(kTensors, kSlot);
    for (int64_t &count : counts) count = round < 20 ? kSlot : random() % (kSlot + 1);
    const auto tensor = [&](int at, int i) -> gsc_tensor {
      return GSC_TENSOR_INIT(arena.as<float>() + at, counts[i], GSC_FP32);
    };
    std::vector<gsc_tensor> params, grads;
    for (int i = 0; i < kTensors; ++i) {
      params.push_back(tensor(kSlot * slots[i], i));
      grads.push_back(tensor(kSlot * slots[kTensors + i], i));
    }
    const List p = make_list(context, params), g = make_list(context, grads);
    const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_SGD), p, g);
    for (int attempt = 0; attempt < 50; ++attempt) {
      std::vector<int> places;
      for (int i = 0; i < kTensors; ++i) places.push_back(random() % (kArena - kSlot + 1));
      if (attempt % 2 != 0) std::sort(places.begin(), places.end());
      std::vector<gsc_tensor> moved;
      std::vector<void *> data;
      for (int i = 0; i < kTensors; ++i) {
        moved.push_back(tensor(places[i], i));
        data.push_back(moved[i].data);
      }
      const auto meets = [](const gsc_tensor &a, const gsc_tensor &b) {
        const auto *x = static_cast<const float *>(a.data), *y = static_cast<const float *>(b.data);
        return a.count > 0 && b.count > 0 && x < y + b.count && y < x + a.count;
      };
      bool overlap = false;
      for (int i = 0; i < kTensors; ++i) {
        for (int j = 0; j < kTensors; ++j) {
          overlap = overlap || meets(moved[i], params[j]) || (i != j && meets(moved[i], moved[j]));
        }
      }
      const gsc_status status = set_pointers(g, data);
      ASSERT_EQ(status, overlap ? GSC_ERROR_INVALID_ARGUMENT : GSC_OK) << round << ' ' << attempt;
      ++(overlap ? refused : accepted);
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 100);
}

/// Factors that round away: the scale would stand still for ever without a word. option_limits_test.cpp has options.
TEST(Factors, ThatLeaveTheScaleWhereItIsAreRefused) {
  const Context context = make_context();
  const double above = 1.0 + 0x1p-30, below = 1.0 - 0x1p-30;
  const Scaler scaler = make_scaler(context, 4.0f);
  gsc_scaler_state state = state_of(scaler);
  state.growth_factor = above;
  EXPECT_INVALID(gsc_scaler_set_state(scaler, &state, nullptr), "state.growth_factor");
  float scale = 4.0f, found = 0.0f;
  int32_t tracker = 0;
  EXPECT_INVALID(gsc_ops_update_scale(context, &scale, &tracker, &found, above, 0.5, 1, nullptr), "growth_factor");
  EXPECT_INVALID(gsc_ops_update_scale(context, &scale, &tracker, &found, 2.0, below, 1, nullptr), "backoff_factor");
}

/// Without a floor a scale can come down to 0, whose inverse is inf: 0 * inf would be NaN in every parameter. Nothing can
/// overflow in an empty list.
TEST(CollapsedScale, SkipsEveryStepButOfAnEmptyList) {
  const Context context = make_context();
  for (const std::vector<int64_t> &counts : {std::vector<int64_t>{5, 40}, {0, 0}, {}}) {
    for (const double gradient : {0.0, 1.0}) {
      const bool is_empty = counts != std::vector<int64_t>{5, 40};
      Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = counts});
      const Scaler scaler = make_scaler(context, 4.0f);
      gsc_scaler_state state = state_of(scaler);
      state.scale = 0.0f;
      ASSERT_GSC_OK(gsc_scaler_set_state(scaler, &state, nullptr));
      trainer.fill_grads(gradient);
      const Snapshot before = trainer.snapshot();
      ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
      ASSERT_GSC_OK(gsc_scaler_step(scaler, trainer, nullptr));
      EXPECT_EQ(applied_steps(trainer), is_empty ? 2 : 0);
      EXPECT_EQ(skipped_steps(trainer), is_empty ? 0 : 2);
      if (!is_empty) {
        EXPECT_TRUE(trainer.snapshot().same_with_grads(before));
        EXPECT_EQ(scale_of(scaler), 0.0f);
      }
    }
  }
}

TEST(DeviceLearningRate, ThatIsNoneIsRefused) {
  const Context context = make_context();
  Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {4, 4}});
  trainer.add_group(1, 1, optimizer_options(GSC_ADAMW));
  const Scaler scaler = make_scaler(context, 4.0f);
  float lr = 0.0f;
  ASSERT_GSC_OK(gsc_optimizer_set_device_lr(trainer, 1, &lr, nullptr));
  const Snapshot before = trainer.snapshot();
  for (const double bad : {kNan, -1.0, kInf, -kInf}) {
    lr = bad;
    const auto refused = [&](gsc_status status) { EXPECT_INVALID(status, "device_lr[1]"); };
    refused(gsc_optimizer_step(trainer, nullptr));
    refused(gsc_optimizer_step_scaled(trainer, nullptr, nullptr, nullptr));
    refused(gsc_scaler_step(scaler, trainer, nullptr));
    refused(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    EXPECT_BAD_STATE(gsc_scaler_update(scaler, nullptr), "no list");
  }
  EXPECT_TRUE(trainer.snapshot().same_with_grads(before));
  EXPECT_EQ(skipped_steps(trainer), 0);
  lr = -0.0f;
  EXPECT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
}

/// What a call writes must not be what it reads elsewhere: the answer would depend on which thread came first.
TEST(Aliasing, OfNeighboursAndEmptyTensorsIsNone) {
  const Context context = make_context();
  float words[3] = {0.0F, 8.0F, 0.5F};
  const gsc_tensor between = GSC_TENSOR_INIT(words + 1, 1, GSC_FP32);
  EXPECT_GSC_OK(gsc_ops_unscale_check(context, &between, 1, words, words + 2, nullptr));
  EXPECT_EQ(words[1], 4.0F);
  const gsc_tensor none = GSC_TENSOR_INIT(nullptr, 0, GSC_FP32), narrow_none = GSC_TENSOR_INIT(nullptr, 0, GSC_FP16);
  EXPECT_GSC_OK(gsc_ops_cast(context, &none, &narrow_none, 1, nullptr));
}

TEST(Aliasing, OfBuffersAndScalarsIsRefused) {
  const Context context = make_context(4);
  Buffer buffer(GSC_FP32, 1000), other(GSC_FP32, 1000);
  float *const f = buffer.as<float>();
  float word = 1.0f;
  double norm = 7.0;
  buffer.fill(3.0);
  other.fill(5.0);
  const gsc_tensor left = GSC_TENSOR_INIT(f, 500, GSC_FP32), right = GSC_TENSOR_INIT(f + 499, 500, GSC_FP32);
  const gsc_tensor beside = GSC_TENSOR_INIT(f + 500, 500, GSC_FP32), narrow = GSC_TENSOR_INIT(f + 1, 500, GSC_FP16);
  const gsc_tensor apart = other.tensor();
  const Scaler scaler = make_scaler(context, 4.0f);
  gsc_context *c = context;
  const auto refused = [](gsc_status status, const char *message) { EXPECT_INVALID(status, message); };
  for (const auto &[from, to] : {std::pair(left, right), std::pair(right, left), std::pair(left, narrow)}) {
    refused(gsc_ops_cast(c, &from, &to, 1, nullptr), "src[0] and dst[0] overlap");
    refused(gsc_ops_scale(c, &from, &to, 1, &word, nullptr), "src[0] and dst[0] overlap");
    refused(gsc_ops_axpby(c, 1.0, &from, 1.0, &to, 1, nullptr), "x[0] and y[0] overlap");
    refused(gsc_scaler_scale(scaler, &from, &to, 1, nullptr), "src[0] and dst[0] overlap");
  }
  const gsc_tensor converted = GSC_TENSOR_INIT(f, 500, GSC_BF16);
  refused(gsc_ops_cast(c, &left, &converted, 1, nullptr), "src[0] and dst[0] are the same buffer");
  refused(gsc_ops_axpby(c, 1.0, &converted, 1.0, &left, 1, nullptr), "x[0] and y[0] are the same buffer");
  refused(gsc_ops_scale(c, &left, &left, 1, f + 499, nullptr), "factor overlaps dst[0]");
  refused(gsc_ops_unscale_check(c, &left, 1, f, &word, nullptr), "found_inf overlaps tensors[0]");
  refused(gsc_ops_unscale_check(c, &left, 1, &word, f, nullptr), "inv_scale overlaps tensors[0]");
  refused(gsc_ops_unscale_check(c, &left, 1, &word, &word, nullptr), "found_inf overlaps inv_scale");
  auto *const wide = reinterpret_cast<double *>(f);
  refused(gsc_ops_norm(c, &left, 1, GSC_NORM_L2, wide, nullptr, nullptr), "out_norm overlaps tensors[0]");
  refused(gsc_ops_norm(c, &left, 1, GSC_NORM_L2, &norm, wide + 249, nullptr), "out_tensor_norms overlaps tensors[0]");
  double norms[2] = {7.0, 7.0};
  const gsc_tensor two[] = {left, apart};
  for (double *out : {&norms[0], &norms[1]}) {
    refused(gsc_ops_norm(c, two, 2, GSC_NORM_L2, out, norms, nullptr), "out_norm overlaps out_tensor_norms");
  }
  float words[2] = {4.0f, 0.0f};
  int32_t tracker = 0;
  auto *const as_tracker = reinterpret_cast<int32_t *>(words);
  refused(gsc_ops_update_scale(c, words, as_tracker, words + 1, 2.0, 0.5, 1, nullptr), "scale overlaps growth_tracker");
  refused(gsc_ops_update_scale(c, words, &tracker, words, 2.0, 0.5, 1, nullptr), "scale overlaps found_inf");
  refused(gsc_ops_update_scale(c, words, as_tracker + 1, words + 1, 2.0, 0.5, 1, nullptr),
          "growth_tracker overlaps found_inf");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(f[i], 3.0f);
  EXPECT_EQ(word, 1.0f);
  EXPECT_EQ(norm, 7.0);
  EXPECT_EQ(words[0], 4.0f);

  // Neighbours, the same buffer, and scalars next to it.
  EXPECT_GSC_OK(gsc_ops_axpby(c, 1.0, &left, 1.0, &beside, 1, nullptr));
  EXPECT_GSC_OK(gsc_ops_scale(c, &left, &left, 1, f + 500, nullptr));
  EXPECT_EQ(f[0], 18.0f);
  EXPECT_GSC_OK(gsc_ops_unscale_check(c, &left, 1, other.as<float>(), f + 500, nullptr));
  EXPECT_GSC_OK(gsc_ops_norm(c, &apart, 1, GSC_NORM_L2, wide, wide + 1, nullptr));
  // An empty tensor has no memory, wherever an arena puts it.
  const gsc_tensor with_empty[] = {apart, GSC_TENSOR_INIT(&norms[1], 0, GSC_FP32)};
  EXPECT_GSC_OK(gsc_ops_norm(c, with_empty, 2, GSC_NORM_L2, &norm, norms, nullptr));
  EXPECT_EQ(norms[1], 0.0);
}

/// Messages are UTF-8 in one line, whatever tensors are called.
TEST(Messages, EscapeWhatIsInNames) {
  const Context context = make_context();
  const struct {
    const char *name, *shown;
  } kNames[] = {
      {"layer.0", "(\"layer.0\")"},
      {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "(\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\")"},
      {"a\nERROR: b", "(\"a\\x0aERROR: b\")"},
      {"\r\t\x1b[31m\x7f", "(\"\\x0d\\x09\\x1b[31m\\x7f\")"},
      {"a\") b (\"\\", "(\"a\\x22) b (\\x22\\x5c\")"},
      {"\xf4\x8f\xbf\xbf", "(\"\xf4\x8f\xbf\xbf\")"},
      // Overlong, a surrogate, beyond Unicode, cut off, without a beginning.
      {"\xc0\xaf", "(\"\\xc0\\xaf\")"},
      {"\xed\xa0\x80", "(\"\\xed\\xa0\\x80\")"},
      {"\xf5\x80\x80\x80", "(\"\\xf5\\x80\\x80\\x80\")"},
      {"\xe2\x82", "(\"\\xe2\\x82\")"},
      {"\x80x\xff", "(\"\\x80x\\xff\")"},
      // Breaks, right to left, isolated.
      {"\xc2\x85\xe2\x80\xa8\xe2\x80\xae", "(\"\\xc2\\x85\\xe2\\x80\\xa8\\xe2\\x80\\xae\")"},
      {"\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9", "(\"\xe2\x81\xa5\\xe2\\x81\\xa6\\xe2\\x81\\xa9\")"},
  };
  for (const auto &[name, shown] : kNames) {
    const gsc_tensor bad = GSC_TENSOR_INIT(nullptr, 4, GSC_FP32);
    EXPECT_INVALID(status_of_list(context, {bad}, &name), shown);
    Buffer buffer(GSC_FP32, 4);
    const gsc_tensor good = buffer.tensor();
    gsc_tensor_list *list = nullptr;
    ASSERT_GSC_OK(gsc_tensor_list_create(context, &good, 1, &name, &list));
    const List kept(list);
    const char *got = nullptr;
    ASSERT_GSC_OK(gsc_tensor_list_get_name(kept, 0, &got));
    EXPECT_STREQ(got, name) << "the name itself is not touched";
  }
  // However long, one line.
  const std::string longest = "x" + std::string(1000, '\n');
  const char *name = longest.c_str();
  std::string shown = "(\"x";
  while (shown.size() < 111) shown += "\\x0a";
  const gsc_tensor bad = GSC_TENSOR_INIT(nullptr, 4, GSC_FP32);
  EXPECT_INVALID(status_of_list(context, {bad}, &name), (shown + "...\")").c_str());
  EXPECT_EQ(std::string(gsc_error_get_message()).find('\n'), std::string::npos);
}

}  // namespace
}  // namespace gsc_test
