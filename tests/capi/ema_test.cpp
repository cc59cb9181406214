// SPDX-License-Identifier: Apache-2.0
// The moving average of the weights in the step: its equation on the parameters as they are stored, to the bit, for every
// kind, format and instruction set, with groups, skipped steps and absent tensors. Keeping it changes nothing else.
#include <cmath>

#include "core/rules/split.h"
#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {

struct Case {
  int32_t kind, param_dtype, state_format = GSC_STATE_FULL, master_format = GSC_MASTER_NONE;
};

constexpr double kDecay = 0.75;

gsc_optimizer_options options_of(const Case &c, double decay) {
  gsc_optimizer_options o = optimizer_options(c.kind);
  o.state_format = c.state_format;
  o.master_format = c.master_format;
  o.ema_decay = decay;
  o.flags = GSC_OPTIMIZER_EMA_WARMUP;
  if (c.kind == GSC_SGD || c.kind == GSC_RMSPROP) o.momentum = 0.9;
  return o;
}

/// The parameters of a tensor as the average sees them.
std::vector<double> weights_of(const Buffer &param, const gsc_tensor *remainder) {
  std::vector<double> result = param.values();
  if (remainder == nullptr) return result;
  const std::vector<unsigned char> image = param.image();
  for (size_t i = 0; i < result.size(); ++i) {
    uint16_t weight;
    std::memcpy(&weight, image.data() + 2 * i, 2);
    const int32_t rest = remainder->dtype == GSC_INT8 ? int32_t{static_cast<const int8_t *>(remainder->data)[i]}
                                                      : int32_t{static_cast<const int16_t *>(remainder->data)[i]};
    const bool is_half = param.dtype() == GSC_FP16;
    if (remainder->dtype == GSC_INT8) {
      result[i] = static_cast<double>(is_half ? gsc::Split<gsc::Fp16, int8_t>::join(weight, rest)
                                              : gsc::Split<gsc::Bf16, int8_t>::join(weight, rest));
    } else {
      result[i] = static_cast<double>(is_half ? gsc::Split<gsc::Fp16, int16_t>::join(weight, rest)
                                              : gsc::Split<gsc::Bf16, int16_t>::join(weight, rest));
    }
  }
  return result;
}

/// The equation of the semantics page; `before` steps have been taken.
double averaged(double average, double weight, double decay, int64_t before, bool wide) {
  if (before == 0) return weight;
  const auto n = static_cast<double>(before);
  const double part = 1.0 - std::min(decay, (1.0 + n) / (10.0 + n));
  if (wide) return part < 0.5 ? average + part * (weight - average) : weight + (part - 1.0) * (weight - average);
  const auto from = static_cast<float>(average), to = static_cast<float>(weight), w = static_cast<float>(part);
  if (w == 1.0f) return weight;
  return w < 0.5f ? std::fma(w, to - from, from) : std::fma(w - 1.0f, to - from, to);
}

/// Two optimizers on the same gradients, of which one averages: in group 1, tensor 2, with a decay of 0.
class Model {
 public:
  Model(const Context &context, const Case &c, const std::vector<int64_t> &counts) : case_(c) {
    Random random(3);
    for (Side *side : {&averaging, &plain}) {
      side->params = make_buffers(c.param_dtype, counts, 1);
      side->grads = make_buffers(c.param_dtype == GSC_FP64 ? GSC_FP64 : GSC_FP16, counts);
      side->param_list = make_list(context, side->params);
      side->grad_list = make_list(context, side->grads);
    }
    for (size_t t = 0; t < counts.size(); ++t) {
      averaging.params[t].fill_random(random, -1.0, 1.0);
      plain.params[t].restore(averaging.params[t].image());
      average.emplace_back(static_cast<size_t>(counts[t]), 0.0);
    }
    for (Side *side : {&averaging, &plain}) {
      gsc_optimizer_options o = options_of(c, side == &averaging ? kDecay : 0.0);
      side->optimizer = make_optimizer(context, o, side->param_list, side->grad_list);
      o.ema_decay = 0.0;
      EXPECT_GSC_OK(gsc_optimizer_add_group(side->optimizer.get(), 2, 1, &o, nullptr));
      side->scaler = make_scaler(context, 1024.0f);
    }
    taken.resize(counts.size());
  }

  void step(uint64_t seed, bool overflows, const std::vector<uint8_t> &present) {
    for (Side *side : {&averaging, &plain}) {
      Random random(seed);
      for (Buffer &g : side->grads) g.fill_random(random, -8.0, 8.0);
      if (overflows) side->grads.back().set(0, INFINITY);
      ASSERT_GSC_OK(gsc_tensor_list_set_present(side->grad_list.get(), present.data(), nullptr,
                                                static_cast<int64_t>(present.size()), nullptr));
      ASSERT_GSC_OK(gsc_scaler_step_and_update(side->scaler.get(), side->optimizer.get(), nullptr));
    }
    const Slots slots(averaging.optimizer), without(plain.optimizer);
    const bool is_split = case_.master_format == GSC_MASTER_SPLIT16 || case_.master_format == GSC_MASTER_SPLIT8;
    const std::vector<gsc_tensor> &ema = slots.slots[slots.slots.size() - (is_split ? 2 : 1)];
    const bool wide = case_.param_dtype == GSC_FP64;
    for (size_t t = 0; t < present.size(); ++t) {
      ASSERT_EQ(averaging.params[t].image(), plain.params[t].image()) << "the average changed a parameter";
      ASSERT_TRUE(averaging.params[t].guards_intact());
      const std::vector<double> weights = weights_of(averaging.params[t], is_split ? &slots.slots.back()[t] : nullptr);
      ASSERT_EQ(ema[t].count, averaging.params[t].count());
      const bool steps = !overflows && present[t] != 0;
      for (size_t i = 0; i < weights.size(); ++i) {
        double &expected = average[t][i];
        if (steps) expected = averaged(expected, weights[i], t == 2 ? 0.0 : kDecay, taken[t], wide);
        const double got = wide ? static_cast<const double *>(ema[t].data)[i]
                                : static_cast<double>(static_cast<const float *>(ema[t].data)[i]);
        ASSERT_EQ(got, expected) << "tensor " << t << " element " << i << " seed " << seed;
      }
      taken[t] += steps ? 1 : 0;
    }
    for (size_t s = 0; s < without.slots.size(); ++s) {
      const size_t own = is_split && s + 1 == without.slots.size() ? s + 1 : s;
      for (size_t t = 0; t < present.size(); ++t) {
        const auto bytes = static_cast<size_t>(ema[t].count > 0 ? without.slots[s][t].count : 0) *
                           static_cast<size_t>(gsc::dtype_bytes(without.slots[s][t].dtype));
        if (bytes == 0) continue;
        ASSERT_EQ(std::memcmp(slots.slots[own][t].data, without.slots[s][t].data, bytes), 0)
            << "the average changed slot " << s;
      }
    }
  }

 private:
  struct Side {
    std::vector<Buffer> params, grads;
    List param_list, grad_list;
    Optimizer optimizer;
    Scaler scaler;
  };
  const Case case_;
  Side averaging, plain;
  std::vector<std::vector<double>> average;
  std::vector<int64_t> taken;
};

void run(const Case &c, int32_t target, int32_t threads, const std::vector<int64_t> &counts) {
  SCOPED_TRACE(text("kind ", c.kind, " param ", c.param_dtype, " state ", c.state_format, " master ", c.master_format,
                    " target ", target));
  const Context context = make_context(threads, target);
  Model model(context, c, counts);
  for (uint64_t step = 0; step < 5; ++step) {
    std::vector<uint8_t> present(counts.size(), 1);
    if (step == 0 || step == 3) present[3] = 0;
    model.step(step, step == 1, present);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Ema, IsTheAverageOfTheStoredWeights) {
  const std::vector<int64_t> small = {1, 33, 9, 130, 0, 300};
  for (const int32_t target : usable_cpu_targets()) {
    for (const int32_t kind : optimizer_kinds()) {
      run({kind, GSC_FP32}, target, 3, small);
      run({kind, GSC_FP16}, target, 1, small);
      run({kind, GSC_BF16, GSC_STATE_BITS8, GSC_MASTER_SPLIT8}, target, 1, small);
    }
    const std::vector<int64_t> large = {17000, 3, 8192, 8193, 70000};
    run({GSC_ADAMW, GSC_FP32}, target, 3, large);
    run({GSC_LAMB, GSC_BF16}, target, 3, large);
    run({GSC_ADAMW, GSC_FP64}, target, 2, large);
    run({GSC_ADAMW, GSC_FP16, GSC_STATE_BITS16, GSC_MASTER_SPLIT16}, target, 2, large);
    run({GSC_ADAMW, GSC_BF16, GSC_STATE_FULL, GSC_MASTER_STOCHASTIC}, target, 2, large);
    if (HasFailure()) return;
  }
}

TEST(Ema, IsSavedAndLoaded) {
  const Context context = make_context(1);
  gsc_optimizer_options o = adamw(GSC_STATE_BITS16, GSC_MASTER_SPLIT16);
  o.ema_decay = 0.99;
  Small first(context, o, GSC_BF16), second(context, o, GSC_BF16);
  Random random(1), again(2), once_more(2);
  for (int step = 0; step < 3; ++step) first.step(random);
  ASSERT_GSC_OK(second.load(first.save()));
  for (size_t t = 0; t < first.params.size(); ++t) second.params[t].restore(first.params[t].image());
  first.step(again);
  second.step(once_more);
  EXPECT_EQ(first.save(), second.save());
  // Who has none does not take one, nor the other way round.
  o.ema_decay = 0.0;
  const Small without(context, o, GSC_BF16);
  EXPECT_GSC_ERROR(without.load(first.save()), GSC_ERROR_INVALID_ARGUMENT, "average of the weights");
  EXPECT_GSC_ERROR(first.load(without.save()), GSC_ERROR_INVALID_ARGUMENT, "average of the weights");
}

TEST(Ema, ThatEvaluatingDoesNotTouch) {
  const Context context = make_context(1);
  gsc_optimizer_options o = optimizer_options(GSC_SGD_SCHEDULE_FREE);
  o.ema_decay = 0.5;
  Small small(context, o, GSC_FP32);
  Random random(1);
  for (int step = 0; step < 3; ++step) small.step(random);
  const auto ema = [&] {
    const gsc_tensor t = Slots(small.optimizer).slots.back()[0];
    const auto *values = static_cast<const float *>(t.data);
    return std::vector<float>(values, values + t.count);
  };
  const std::vector<float> before = ema();
  ASSERT_GSC_OK(gsc_optimizer_set_evaluating(small.optimizer.get(), 1, nullptr));
  EXPECT_EQ(ema(), before);
  ASSERT_GSC_OK(gsc_optimizer_set_evaluating(small.optimizer.get(), 0, nullptr));
  EXPECT_EQ(ema(), before);
}

/// The caller's list goes on from what is in it, if the tensors have taken steps. 16 bits would not feel 1 - decay.
TEST(Ema, ListsOfTheCallers) {
  const Context context = make_context(1);
  std::vector<Buffer> params = make_buffers(GSC_BF16, {5}), grads = make_buffers(GSC_FP32, {5});
  params[0].fill(3.0);
  const List param_list = make_list(context, params), grad_list = make_list(context, grads);
  gsc_optimizer_options o = optimizer_options(GSC_SGD);
  o.ema_decay = 0.75;
  const auto make = [&](const List &state, gsc_optimizer **optimizer) {
    gsc_tensor_list *slots[] = {state.get()};
    return gsc_optimizer_create(context.get(), &o, param_list.get(), grad_list.get(), nullptr, slots, 1, optimizer);
  };
  gsc_optimizer *made = nullptr;
  for (const int32_t dtype : {GSC_FP16, GSC_BF16, GSC_FP64}) {
    Buffer buffer(dtype, 5);
    EXPECT_GSC_ERROR(make(make_list(context, buffer), &made), GSC_ERROR_INVALID_ARGUMENT, "state[0][0] is");
  }
  Buffer average(GSC_FP32, 5);
  average.fill(1.0);
  ASSERT_GSC_OK(make(make_list(context, average), &made));
  const Optimizer optimizer(made);
  const char *name = nullptr;
  ASSERT_GSC_OK(gsc_optimizer_get_state(made, 0, nullptr, &name));
  EXPECT_STREQ(name, "ema");
  ASSERT_GSC_OK(gsc_optimizer_set_steps(made, 1, 0, nullptr));
  ASSERT_GSC_OK(gsc_optimizer_step(made, nullptr));
  EXPECT_EQ(average.get(4), 1.5);
}

TEST(Ema, WhetherThereIsOneStays) {
  const Context context = make_context(1);
  for (const double decay : {0.0, 0.5}) {
    gsc_optimizer_options o = optimizer_options(GSC_SGD);
    o.ema_decay = decay;
    const Small small(context, o, GSC_FP32);
    o.ema_decay = 0.5 - decay;
    const char *message = "options.ema_decay is";
    EXPECT_GSC_ERROR(gsc_optimizer_set_options(small.optimizer.get(), 0, &o, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                     message);
    if (decay > 0.0) continue;
    EXPECT_GSC_ERROR(gsc_optimizer_add_group(small.optimizer.get(), 0, 1, &o, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                     message);
  }
}

}  // namespace
}  // namespace gsc_test
