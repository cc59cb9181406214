// SPDX-License-Identifier: Apache-2.0
// Optimizers with state in codes, split masters and stochastic rounding. A step with them is the fp32 step on decoded
// values, encoded by the rules of core/rules: to the bit, on every instruction set, for every kind, format and dtype,
// over steps that overflow and clip. tests/core/state_codes_test.cpp holds the rules to their definitions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/rules/split.h"
#include "tests/support/optimizer_oracle.h"
#include "tests/support/oracle.h"
#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {

const std::vector<int64_t> kCounts = {1, 31, 33, 1000, 0, 17000, 64};

struct Case {
  int32_t kind, state_format, master_format, param_dtype, grad_dtype, copy_dtype;
  uint32_t flags;
  double beta1 = 0.9, beta2 = 0.999;
  bool has_special = false;  ///< codes and weights of NaN
};

gsc_optimizer_options options_of(const Case &c) {
  gsc_optimizer_options o = optimizer_options(c.kind);
  o.state_format = c.state_format;
  o.master_format = c.master_format;
  o.flags = c.flags;
  o.lr = 0.01;
  o.weight_decay = 0.1;
  o.seed = 0x123456789abcdef;
  if (o.beta1 != 0.0) o.beta1 = c.beta1;
  if (o.beta2 != 0.0) o.beta2 = c.beta2;
  if (c.kind == GSC_SGD || c.kind == GSC_RMSPROP) o.momentum = 0.9;
  return o;
}

/// An optimizer with codes and one over fp32 masters and fp32 state, both stepped on the same gradients.
class Pair {
 public:
  Pair(const Context &context, const Case &c)
      : case_(c),
        options_(options_of(c)),
        params_(make_buffers(c.param_dtype, kCounts, 3)),
        grads_(make_buffers(c.grad_dtype, kCounts, 1)),
        copies_(make_buffers(c.copy_dtype != 0 ? c.copy_dtype : GSC_FP16, kCounts)),
        masters_(make_buffers(GSC_FP32, kCounts)),
        same_grads_(make_buffers(c.grad_dtype, kCounts)) {
    Random random(7);
    for (Buffer &p : params_) p.fill_random(random, -1.0, 1.0);
    param_list_ = make_list(context, params_);
    grad_list_ = make_list(context, grads_);
    if (c.copy_dtype != 0) copy_list_ = make_list(context, copies_);
    coded_ = make_optimizer(context, options_, param_list_, grad_list_, copy_list_);
    gsc_optimizer_options plain = options_;
    plain.state_format = GSC_STATE_FULL;
    plain.master_format = GSC_MASTER_NONE;
    master_list_ = make_list(context, masters_);
    same_list_ = make_list(context, same_grads_);
    plain_ = make_optimizer(context, plain, master_list_, same_list_);
    scaler_ = make_scaler(context, 1024.0f);
    same_scaler_ = make_scaler(context, 1024.0f);
    if (c.has_special) make_special();
  }

  void step(Random &random, bool overflows) {
    for (size_t t = 0; t < grads_.size(); ++t) {
      for (int64_t i = 0; i < grads_[t].count(); ++i) {
        // Magnitudes from 2^-30 to 2^2 within a group, and zeros.
        const double size = std::ldexp(1.0, static_cast<int>(random.below(32)) - 30);
        grads_[t].set(i, random.below(8) == 0 ? 0.0 : random.uniform(-1.0, 1.0) * size * 1024.0);
      }
      if (overflows && grads_[t].count() > 5) grads_[t].set(5, INFINITY);
      same_grads_[t].restore(grads_[t].image());
    }
    const Slots coded(coded_), plain(plain_);
    const std::vector<unsigned char> before = coded.image();
    std::vector<std::vector<unsigned char>> params_before;
    for (Buffer &p : params_) params_before.push_back(p.image());
    decode_all(coded, plain);
    for (const auto &[scaler, list, optimizer] : {std::tuple(scaler_.get(), grad_list_.get(), coded_.get()),
                                                  std::tuple(same_scaler_.get(), same_list_.get(), plain_.get())}) {
      ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, list, 3.0, GSC_NORM_L2, nullptr));
      ASSERT_GSC_OK(gsc_scaler_step(scaler, optimizer, nullptr));
      ASSERT_GSC_OK(gsc_scaler_update(scaler, nullptr));
    }
    if (overflows) {
      ASSERT_EQ(coded.image(), before) << "a skipped step changed the state";
      for (size_t t = 0; t < params_.size(); ++t) ASSERT_EQ(params_[t].image(), params_before[t]);
      return;
    }
    compare(coded, plain);
  }

 private:
  /// Every 97th element of a tensor is NaN, all of them positive: which sign a NaN of two has is the compiler's choice.
  /// The second group has codes and a scale of 0.
  void make_special() {
    const Slots coded(coded_);
    for (size_t t = 0; t < params_.size(); ++t) {
      for (int64_t i = 0; i < params_[t].count(); i += 97) {
        const auto slot = static_cast<size_t>(i / 97 % 4);
        if (slot >= static_cast<size_t>(states(coded))) {
          if (slot == 3) params_[t].set(i, NAN);
          continue;
        }
        const gsc_tensor &codes = coded.slots[slot][t];
        if (codes.dtype == GSC_FP8_E4M3) static_cast<uint8_t *>(codes.data)[i] = 0x7f;
        if (codes.dtype == GSC_UFP8_E4M4) static_cast<uint8_t *>(codes.data)[i] = 0xff;
        if (codes.dtype == GSC_BF16) static_cast<uint16_t *>(codes.data)[i] = 0x7fc0;
        if (codes.dtype == GSC_UFP16_E5M11) static_cast<uint16_t *>(codes.data)[i] = 0xffff;
      }
      for (int slot = 0; slot < states(coded) && params_[t].count() > 64; ++slot) {
        const gsc_tensor &codes = coded.slots[static_cast<size_t>(slot)][t];
        if (codes.scale == nullptr) continue;
        static_cast<uint8_t *>(const_cast<void *>(codes.scale))[1] = 0;
        std::memset(static_cast<char *>(codes.data) + 32 * gsc::dtype_bytes(codes.dtype), 0x35,
                    static_cast<size_t>(32 * gsc::dtype_bytes(codes.dtype)));
      }
    }
  }

  int states(const Slots &coded) const { return static_cast<int>(coded.slots.size()) - (splits() ? 1 : 0); }
  bool splits() const { return case_.master_format == GSC_MASTER_SPLIT16 || case_.master_format == GSC_MASTER_SPLIT8; }

  /// f(D, R) for the split of this case.
  template <typename F>
  void with_split(const F &f) {
    const auto with_weight = [&](auto remainder) {
      if (case_.param_dtype == GSC_FP16) return f(gsc::Fp16{}, remainder);
      f(gsc::Bf16{}, remainder);
    };
    if (case_.master_format == GSC_MASTER_SPLIT16) return with_weight(int16_t{});
    with_weight(int8_t{});
  }

  void decode_all(const Slots &coded, const Slots &plain) {
    for (size_t t = 0; t < params_.size(); ++t) {
      for (int slot = 0; slot < states(coded); ++slot) {
        const gsc_tensor &from = coded.slots[static_cast<size_t>(slot)][t];
        const gsc_tensor &to = plain.slots[static_cast<size_t>(slot)][t];
        if (from.dtype == GSC_FP32 || from.dtype == GSC_FP64) continue;
        const std::vector<float> values = decode(from);
        std::copy(values.begin(), values.end(), static_cast<float *>(to.data));
      }
      for (int64_t i = 0; i < params_[t].count(); ++i) {
        float master = static_cast<float>(params_[t].get(i));
        if (splits()) {
          with_split([&](auto dtype, auto remainder) {
            using R = decltype(remainder);
            const auto *remainders = static_cast<const R *>(coded.slots.back()[t].data);
            master = gsc::Split<decltype(dtype), R>::join(params_[t].as<uint16_t>()[i], remainders[i]);
          });
        }
        masters_[t].as<float>()[i] = master;
      }
    }
  }

  void compare(const Slots &coded, const Slots &plain) {
    int64_t first = 0;
    const int64_t step = applied_steps(coded_);
    for (size_t t = 0; t < params_.size(); ++t) {
      for (int slot = 0; slot < states(coded); ++slot) {
        const gsc_tensor &from = coded.slots[static_cast<size_t>(slot)][t];
        const auto *x = static_cast<const float *>(plain.slots[static_cast<size_t>(slot)][t].data);
        if (from.dtype == GSC_FP32 || from.dtype == GSC_FP64) {
          ASSERT_EQ(std::memcmp(x, from.data, static_cast<size_t>(from.count * dtype_size(from.dtype))), 0);
        } else {
          expect_encoded(from, x, options_, slot, first, step);
        }
      }
      const float *master = masters_[t].as<float>();
      for (int64_t i = 0; i < params_[t].count(); ++i) {
        ASSERT_EQ(params_[t].as<uint16_t>()[i], weight(coded, t, i, master[i], first, step)) << t << ' ' << i;
        if (case_.copy_dtype == GSC_FP16) {
          ASSERT_EQ(copies_[t].as<uint16_t>()[i], gsc::Fp16::narrow(master[i]));
        }
      }
      ASSERT_TRUE(params_[t].guards_intact() && grads_[t].guards_intact());
      first += gsc::state_groups(params_[t].count()) * 32;
    }
  }

  /// The weight of a master; checks its remainder.
  uint16_t weight(const Slots &coded, size_t t, int64_t i, float master, int64_t first, int64_t step) {
    const bool is_half = case_.param_dtype == GSC_FP16;
    if (case_.master_format == GSC_MASTER_NONE) return is_half ? gsc::Fp16::narrow(master) : gsc::Bf16::narrow(master);
    uint16_t result = 0;
    if (case_.master_format == GSC_MASTER_STOCHASTIC) {
      const uint32_t random = random_bits(options_, first + i, step, gsc::Draw::kParam);
      return static_cast<uint16_t>(is_half ? gsc::round_stochastically<gsc::Fp16>(master, random)
                                           : gsc::round_stochastically<gsc::Bf16>(master, random));
    }
    with_split([&](auto dtype, auto remainder) {
      using R = decltype(remainder);
      const auto parts = gsc::Split<decltype(dtype), R>::divide(master);
      result = static_cast<uint16_t>(parts.weight);
      EXPECT_EQ(static_cast<const R *>(coded.slots.back()[t].data)[i], static_cast<R>(parts.remainder))
          << t << ' ' << i;
    });
    return result;
  }

  Case case_;
  gsc_optimizer_options options_;
  std::vector<Buffer> params_, grads_, copies_, masters_, same_grads_;
  List param_list_, grad_list_, copy_list_, master_list_, same_list_;
  Optimizer coded_, plain_;
  Scaler scaler_, same_scaler_;
};

void run(const Case &c, int32_t target, int32_t threads) {
  SCOPED_TRACE(text("kind ", c.kind, " state ", c.state_format, " master ", c.master_format, " param ", c.param_dtype,
                    " grad ", c.grad_dtype, " flags ", c.flags, " target ", target));
  const Context context = make_context(threads, target);
  Pair pair(context, c);
  Random random(static_cast<uint64_t>(c.kind * 64 + c.state_format * 8 + c.master_format));
  for (int step = 0; step < 5 && !::testing::Test::HasFailure(); ++step) pair.step(random, step == 2);
}

// LAMB has its own test: its second sweep reads the moments that the first has stored.
TEST(StateFormats, AStepIsTheFp32StepOfDecodedValuesEncoded) {
  for (const int32_t target : usable_cpu_targets()) {
    for (const int32_t kind : optimizer_kinds()) {
      if (kind == GSC_LAMB) continue;
      for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
        for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
          for (const int32_t param : {GSC_FP16, GSC_BF16}) {
            const int32_t grad = (kind + state + master) % 2 == 0 ? param : GSC_FP32;
            run({kind, state, master, param, grad, master == GSC_MASTER_NONE ? GSC_FP16 : 0, 0}, target, 2);
          }
        }
      }
    }
    run({GSC_ADAMW, GSC_STATE_BITS8, GSC_MASTER_SPLIT16, GSC_BF16, GSC_BF16, 0, GSC_OPTIMIZER_AMSGRAD}, target, 1);
    run({GSC_ADAM, GSC_STATE_BITS16, GSC_MASTER_SPLIT8, GSC_FP16, GSC_FP32, 0, GSC_OPTIMIZER_AMSGRAD}, target, 1);
    run({GSC_RMSPROP, GSC_STATE_BITS8, GSC_MASTER_SPLIT8, GSC_FP16, GSC_FP16, 0, GSC_OPTIMIZER_CENTERED}, target, 1);
    run({GSC_ADAMW, GSC_STATE_BITS8, GSC_MASTER_STOCHASTIC, GSC_BF16, GSC_FP16, GSC_FP16,
         GSC_OPTIMIZER_MAXIMIZE | GSC_OPTIMIZER_ZERO_GRADS},
        target, 3);
    if (HasFailure()) return;
  }
}

// Weights and gradients of one dtype, for which processors with AVX-512 have kernels of their own.
TEST(StateFormats, SoIsAStepInRegisters) {
  struct Betas {
    double beta1, beta2;
  };
  // Both moments to nearest, the second alone stochastic in 8 bits, both in 8 bits, and the second in 16 bits too.
  constexpr Betas kBetas[] = {{0.5, 0.8}, {0.9, 0.999}, {0.95, 0.999}, {0.9, 0.9999}};
  for (const int32_t target : usable_cpu_targets()) {
    for (const int32_t kind : {GSC_SGD, GSC_ADAM, GSC_ADAMW, GSC_LION}) {
      for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
        for (const int32_t master : {GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
          for (const int32_t dtype : {GSC_FP16, GSC_BF16}) {
            for (const Betas &b : kBetas) {
              run({kind, state, master, dtype, dtype, 0, 0, b.beta1, b.beta2, state != GSC_STATE_FULL}, target, 2);
            }
          }
        }
      }
    }
    run({GSC_ADAMW, GSC_STATE_BITS8, GSC_MASTER_SPLIT16, GSC_BF16, GSC_BF16, 0, GSC_OPTIMIZER_MAXIMIZE}, target, 3);
    if (HasFailure()) return;
  }
}

/// What a code may add to the error of a value, in a group with this largest magnitude.
double code_error(int32_t dtype, bool is_random, double x, double largest) {
  const int top = largest > 0.0 ? std::ilogb(largest * (1.0 + 1e-5)) : -126;
  const double units = is_random ? 1.0 : 0.5;
  switch (dtype) {
    case GSC_BF16:
      return units * std::ldexp(std::fabs(x), -7);
    case GSC_FP8_E4M3:
      return units * std::max(std::ldexp(std::fabs(x), -3), std::ldexp(1.0, top - 16));
    case GSC_UFP16_E5M11:
      return units * std::ldexp(x, -11) + std::ldexp(1.0, top - 29);  // smaller than code 1 becomes code 1
    default:
      return units * std::ldexp(x, -4) + std::ldexp(1.0, top - 13);
  }
}

/// A step by the oracle in double, from decoded state: the codes and masters are within what each of them may add.
TEST(StateFormats, AStepIsWithinTheErrorOfItsFormat) {
  const Context context = make_context();
  for (const int32_t kind : {GSC_SGD, GSC_ADAMW, GSC_ADAGRAD, GSC_LION, GSC_RMSPROP}) {
    for (const int32_t state : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      for (const int32_t master : {GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
        const Case c{kind, state, master, (kind + state) % 2 == 0 ? GSC_FP16 : GSC_BF16, GSC_FP32, 0, 0};
        SCOPED_TRACE(text("kind ", kind, " state ", state, " master ", master));
        const gsc_optimizer_options o = options_of(c);
        Small small(context, o, c.param_dtype, {1000});
        const Slots slots(small.optimizer);
        const size_t states = slots.slots.size() - (master == GSC_MASTER_STOCHASTIC ? 0 : 1);
        const auto master_of = [&](int64_t i) {
          if (master == GSC_MASTER_STOCHASTIC) return small.params[0].get(i);
          const auto weight = small.params[0].as<uint16_t>()[i];
          const void *rest = slots.slots.back()[0].data;
          const auto join = [&](auto dtype) {
            using D = decltype(dtype);
            return static_cast<double>(master == GSC_MASTER_SPLIT16
                                           ? gsc::Split<D, int16_t>::join(weight, static_cast<const int16_t *>(rest)[i])
                                           : gsc::Split<D, int8_t>::join(weight, static_cast<const int8_t *>(rest)[i]));
          };
          return c.param_dtype == GSC_FP16 ? join(gsc::Fp16{}) : join(gsc::Bf16{});
        };
        Random random(4);
        for (int step = 1; step <= 4; ++step) {
          std::vector<Element> elements(1000);
          for (size_t i = 0; i < 1000; ++i) elements[i].param.v = master_of(static_cast<int64_t>(i));
          for (size_t slot = 0; slot < states; ++slot) {
            const std::vector<float> values = decode(slots.slots[slot][0]);
            for (size_t i = 0; i < 1000; ++i) elements[i].state[slot].v = static_cast<double>(values[i]);
          }
          small.step(random);
          std::vector<Real> grads(1000);
          for (size_t i = 0; i < 1000; ++i) grads[i].v = small.grads[0].get(static_cast<int64_t>(i));
          OptimizerOracle(o, GSC_FP32, step).step(elements, grads);
          for (size_t slot = 0; slot < states; ++slot) {
            const gsc_tensor &t = slots.slots[slot][0];
            const std::vector<float> values = decode(t);
            const bool is_random = gsc::rounds_stochastically(t.dtype, rate_of(o, static_cast<int>(slot)));
            for (size_t i = 0; i < 1000; ++i) {
              double largest = 0.0;
              for (size_t k = i / 32 * 32; k < std::min<size_t>(i / 32 * 32 + 32, 1000); ++k) {
                largest = std::max(largest, std::fabs(elements[k].state[slot].v));
              }
              const Real &x = elements[i].state[slot];
              ASSERT_NEAR(static_cast<double>(values[i]), x.v,
                          2.0 * x.e + code_error(t.dtype, is_random, std::fabs(x.v) + 2.0 * x.e, largest))
                  << "slot " << slot << " element " << i << " step " << step;
            }
          }
          for (size_t i = 0; i < 1000; ++i) {
            const Real &x = elements[i].param;
            const double spacing = ulp(std::fabs(x.v) + 2.0 * x.e, c.param_dtype);
            const double kept = master == GSC_MASTER_STOCHASTIC ? spacing
                                : master == GSC_MASTER_SPLIT8   ? std::ldexp(spacing, -9) + 0x1p-41
                                                                : 0x1p-41;
            ASSERT_NEAR(master_of(static_cast<int64_t>(i)), x.v, 2.0 * x.e + kept) << i << " step " << step;
          }
        }
      }
    }
  }
}

/// sqrt(v) stays near the exact value over 2500 steps, and after gradients have become ten times smaller; no update of
/// any step is much larger than the exact one.
TEST(StateFormats, SecondMomentsDoNotFreeze) {
  const Context context = make_context();
  constexpr int64_t kElements = 1024;
  for (const int32_t format : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    for (const double beta2 : {0.95, 0.99, 0.999, 0.9999}) {
      gsc_optimizer_options o = adamw(format, GSC_MASTER_SPLIT16);
      o.beta2 = beta2;
      o.weight_decay = 0.0;
      Small small(context, o, GSC_BF16, {kElements});
      Random random(5);
      std::vector<double> size(kElements), m(kElements), v(kElements);
      for (double &s : size) s = std::exp(random.uniform(-2.0, 2.0));
      double largest = 0.0, largest_exact = 0.0;
      for (int step = 1; step <= 5000; ++step) {
        const double fall = step > 2500 ? 0.1 : 1.0;
        for (size_t i = 0; i < kElements; ++i) {
          const double g = (random.uniform(-1.0, 1.0) + random.uniform(-1.0, 1.0)) * size[i] * fall;
          small.grads[0].set(static_cast<int64_t>(i), g);
          m[i] = 0.9 * m[i] + 0.1 * g;
          v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
        }
        ASSERT_GSC_OK(gsc_optimizer_step(small.optimizer.get(), nullptr));
        const Slots now(small.optimizer);
        const std::vector<float> got_m = decode(now.slots[0][0]), got_v = decode(now.slots[1][0]);
        std::vector<double> ratios;
        for (size_t i = 0; i < kElements; ++i) {
          ratios.push_back(std::sqrt(static_cast<double>(got_v[i]) / v[i]));
          largest =
              std::max(largest, std::fabs(static_cast<double>(got_m[i])) / std::sqrt(static_cast<double>(got_v[i])));
          largest_exact = std::max(largest_exact, std::fabs(m[i]) / std::sqrt(v[i]));
        }
        if (step % 500 != 0) continue;
        std::nth_element(ratios.begin(), ratios.begin() + kElements / 2, ratios.end());
        const double median = ratios[kElements / 2];
        EXPECT_NEAR(median, 1.0, step <= 2500 ? 0.05 : 0.25) << format << ' ' << beta2 << " step " << step;
      }
      EXPECT_LE(largest, 1.5 * largest_exact) << format << ' ' << beta2;
    }
  }
}

/// NaN and inf in moments stay where they are, groups of zeros stay zero, and the largest of a group may change by 2^40.
TEST(StateFormats, HostileGroups) {
  const Context context = make_context();
  for (const int32_t format : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    Small small(context, adamw(format, GSC_MASTER_SPLIT16), GSC_BF16, {96});
    const auto step_with = [&](float first, float others) {
      for (int64_t i = 0; i < 96; ++i) small.grads[0].as<float>()[i] = i < 64 ? others : 0.0f;
      small.grads[0].as<float>()[0] = first;
      ASSERT_GSC_OK(gsc_optimizer_step(small.optimizer.get(), nullptr));
    };
    for (const float size : {1.0f, 0x1p40f, 1.0f, 0x1p-60f, 0x1p-100f, 1e-42f}) step_with(size, size);
    step_with(INFINITY, 1.0f);  // a step without a scaler does not check
    const Slots slots(small.optimizer);
    for (size_t slot = 0; slot < 2; ++slot) {
      const std::vector<float> values = decode(slots.slots[slot][0]);
      EXPECT_FALSE(std::isfinite(values[0])) << slot;
      for (size_t i = 1; i < 64; ++i) EXPECT_TRUE(std::isfinite(values[i])) << slot << ' ' << i;
      for (size_t i = 64; i < 96; ++i) EXPECT_EQ(values[i], 0.0f) << slot << ' ' << i;
      for (size_t i = 1; slot == 1 && i < 64; ++i) EXPECT_GT(values[i], 0.0f) << i;
    }
    for (int64_t i = 1; i < 96; ++i) EXPECT_TRUE(std::isfinite(small.params[0].get(i))) << i;
  }
}

/// LAMB takes its ratio from the new moments and its step from the stored ones.
TEST(StateFormats, LambStepsOnStoredMoments) {
  const Context context = make_context(2);
  for (const int32_t format : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    gsc_optimizer_options o = optimizer_options(GSC_LAMB);
    o.state_format = format;
    o.master_format = GSC_MASTER_SPLIT16;
    Small small(context, o, GSC_BF16, {40000, 33});
    Random random(9);
    for (int step = 1; step <= 3; ++step) {
      const Slots slots(small.optimizer);
      const auto values = [&](size_t slot, size_t t) {
        const gsc_tensor &x = slots.slots[slot][t];
        const auto *full = static_cast<const float *>(x.data);
        return format == GSC_STATE_FULL ? std::vector<float>(full, full + x.count) : decode(x);
      };
      const auto masters = [&](size_t t) {
        std::vector<double> result;
        for (int64_t i = 0; i < small.params[t].count(); ++i) {
          const auto *remainders = static_cast<const int16_t *>(slots.slots[2][t].data);
          result.push_back(static_cast<double>(
              gsc::Split<gsc::Bf16, int16_t>::join(small.params[t].as<uint16_t>()[i], remainders[i])));
        }
        return result;
      };
      std::vector<std::vector<float>> m, v;
      std::vector<std::vector<double>> p;
      for (size_t t = 0; t < 2; ++t) {
        m.push_back(values(0, t));
        v.push_back(values(1, t));
        p.push_back(masters(t));
      }
      small.step(random);
      for (size_t t = 0; t < 2; ++t) {
        const std::vector<float> stored_m = values(0, t), stored_v = values(1, t);
        const std::vector<double> now = masters(t);
        const auto direction = [&](double mean, double square, double param) {
          const double bias1 = 1.0 - std::pow(o.beta1, step), bias2 = 1.0 - std::pow(o.beta2, step);
          return mean / bias1 / (std::sqrt(square / bias2) + o.eps) + o.weight_decay * param;
        };
        double param_sum = 0.0, direction_sum = 0.0;
        for (size_t i = 0; i < p[t].size(); ++i) {
          const double g = small.grads[t].get(static_cast<int64_t>(i));
          const double mean = o.beta1 * static_cast<double>(m[t][i]) + (1.0 - o.beta1) * g;
          const double square = o.beta2 * static_cast<double>(v[t][i]) + (1.0 - o.beta2) * g * g;
          param_sum += p[t][i] * p[t][i];
          direction_sum += std::pow(direction(mean, square, p[t][i]), 2);
        }
        const double factor = o.lr * std::sqrt(param_sum / direction_sum);
        for (size_t i = 0; i < p[t].size(); ++i) {
          const double expected =
              p[t][i] - factor * direction(static_cast<double>(stored_m[i]), static_cast<double>(stored_v[i]), p[t][i]);
          ASSERT_NEAR(now[i], expected, 1e-5 * factor + 2e-7 * std::fabs(expected))
              << format << ' ' << step << ' ' << i;
        }
      }
    }
  }
}

TEST(StateFormats, MastersMoveByLessThanTheWeightsSpacing) {
  const Context context = make_context();
  for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
    gsc_optimizer_options o = optimizer_options(GSC_SGD);
    o.master_format = master;
    o.lr = 1e-4;
    Small small(context, o, GSC_BF16, {1000});
    small.params[0].fill(1.0);
    small.grads[0].fill(1.0);
    for (int i = 0; i < 1000; ++i) ASSERT_GSC_OK(gsc_optimizer_step(small.optimizer.get(), nullptr));
    double mean = 0.0;
    for (const double w : small.params[0].values()) mean += w / 1000;
    // 1000 steps of 1e-4, each far below half of bf16's spacing at 1. SPLIT8 rounds each to 7 of its units of 2^-16.
    EXPECT_NEAR(mean, master == GSC_MASTER_NONE ? 1.0 : 0.9, master == GSC_MASTER_SPLIT8 ? 0.008 : 0.004) << master;
  }
}

}  // namespace
}  // namespace gsc_test
