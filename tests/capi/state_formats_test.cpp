// SPDX-License-Identifier: Apache-2.0
// Optimizers with state in codes, split masters and stochastic rounding. A step with them is the fp32 step on decoded
// values, encoded by the rules of core/rules: to the bit, on every instruction set, for every kind, format and dtype,
// over steps that overflow and clip. tests/core/state_codes_test.cpp holds the rules to their definitions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/rules/split.h"
#include "tests/support/state_slots.h"

namespace gsc_test {
namespace {

const std::vector<int64_t> kCounts = {1, 31, 33, 1000, 0, 17000, 64};

struct Case {
  int32_t kind, state_format, master_format, param_dtype, grad_dtype, copy_dtype;
  uint32_t flags;
  double beta1 = 0.9, beta2 = 0.999;
  bool has_special = false;  ///< codes and weights of NaN
  std::vector<int64_t> counts = kCounts;
};

gsc_optimizer_options options_of(const Case &c) {
  gsc_optimizer_options o = optimizer_options(c.kind);
  o.state_format = c.state_format;
  o.master_format = c.master_format;
  o.flags = c.flags | GSC_OPTIMIZER_COUNT_UNCHANGED;
  o.lr = 0.01;
  o.weight_decay = 0.1;
  o.seed = 0x123456789abcdef;
  if (o.beta1 != 0.0) o.beta1 = c.beta1;
  if (o.beta2 != 0.0) o.beta2 = c.beta2;
  if (c.kind == GSC_SGD || c.kind == GSC_RMSPROP) o.momentum = 0.9;
  // The average is of the masters, which these formats hold exactly.
  if (c.master_format == GSC_MASTER_SPLIT16 && c.param_dtype == GSC_BF16 && !c.has_special) o.ema_decay = 0.75;
  return o;
}

/// An optimizer with codes and one over fp32 masters and fp32 state, both stepped on the same gradients.
class Pair {
 public:
  Pair(const Context &context, const Case &c)
      : case_(c),
        options_(options_of(c)),
        params_(make_buffers(c.param_dtype, c.counts, 3)),
        grads_(make_buffers(c.grad_dtype, c.counts, 1)),
        copies_(make_buffers(c.copy_dtype != 0 ? c.copy_dtype : GSC_FP16, c.counts)),
        masters_(make_buffers(GSC_FP32, c.counts)),
        same_grads_(make_buffers(c.grad_dtype, c.counts)) {
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
    std::vector<std::vector<unsigned char>> params_before, rests;
    for (Buffer &p : params_) params_before.push_back(p.image());
    for (size_t t = 0; t < params_.size(); ++t) rests.push_back(rest_of(coded, t));
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
    if (case_.has_special) return;
    int64_t unchanged = -1;
    ASSERT_GSC_OK(gsc_optimizer_get_unchanged_sync(coded_, &unchanged, nullptr));
    for (size_t t = 0; t < params_.size(); ++t)
      unchanged_ += elements_alike(params_[t], params_before[t], rests[t], coded, t);
    ASSERT_EQ(unchanged, unchanged_);
  }

 private:
  /// Elements of a tensor whose weight and remainder are what they were.
  int64_t elements_alike(const Buffer &param, const std::vector<unsigned char> &before,
                         const std::vector<unsigned char> &rest_before, const Slots &coded, size_t t) const {
    const std::vector<unsigned char> after = param.image(), rest = rest_of(coded, t);
    const int64_t width = splits() ? dtype_size(coded.slots.back()[t].dtype) : 0;
    int64_t alike = 0;
    for (int64_t i = 0; i < param.count(); ++i) {
      const bool is_alike =
          std::equal(&after[2 * i], &after[2 * i] + 2, &before[2 * i]) &&
          (width == 0 || std::equal(&rest[width * i], &rest[width * i] + width, &rest_before[width * i]));
      alike += is_alike ? 1 : 0;
    }
    return alike;
  }
  std::vector<unsigned char> rest_of(const Slots &coded, size_t t) const {
    if (!splits()) return {};
    const gsc_tensor &rest = coded.slots.back()[t];
    const auto *first = static_cast<const unsigned char *>(rest.data);
    return {first, first + rest.count * dtype_size(rest.dtype)};
  }

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
  int64_t unchanged_ = 0;
};

void run(const Case &c, int32_t target, int32_t threads) {
  SCOPED_TRACE(text("kind ", c.kind, " state ", c.state_format, " master ", c.master_format, " param ", c.param_dtype,
                    " grad ", c.grad_dtype, " flags ", c.flags, " target ", target));
  const Context context = make_context(threads, target);
  Pair pair(context, c);
  Random random(static_cast<uint64_t>(c.kind * 64 + c.state_format * 8 + c.master_format));
  for (int step = 0; step < 5 && !::testing::Test::HasFailure(); ++step) pair.step(random, step == 2);
}

// LAMB is left to tests/oracle: its second sweep reads the moments that the first has stored.
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
    Case averaged{GSC_ADAMW, GSC_STATE_BITS16, GSC_MASTER_SPLIT16, GSC_BF16, GSC_BF16, 0, 0};
    averaged.counts = {70000, 3};  // an average is taken of 65536 elements at a time
    run(averaged, target, 2);
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

/// bf16 weights of 1 do not feel updates of a thousandth; the remainder of a split master does.
TEST(Unchanged, ShowsWhereLearningStops) {
  const Context context = make_context(1);
  for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16}) {
    gsc_optimizer_options o = adamw(GSC_STATE_FULL, master);
    o.flags = GSC_OPTIMIZER_COUNT_UNCHANGED;
    Small small(context, o, GSC_BF16);
    for (Buffer &p : small.params) p.fill(1.0);
    for (Buffer &g : small.grads) g.fill(1.0);
    int64_t unchanged = -1;
    ASSERT_GSC_OK(gsc_optimizer_step(small.optimizer, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_get_unchanged_sync(small.optimizer, &unchanged, nullptr));
    EXPECT_EQ(unchanged, master == GSC_MASTER_NONE ? 107 : 0);
    ASSERT_GSC_OK(gsc_optimizer_set_steps(small.optimizer, 1, 0, nullptr));
    ASSERT_GSC_OK(gsc_optimizer_get_unchanged_sync(small.optimizer, &unchanged, nullptr));
    EXPECT_EQ(unchanged, 0) << "after counts are restored";
  }
}

}  // namespace
}  // namespace gsc_test
