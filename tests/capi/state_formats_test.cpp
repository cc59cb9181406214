// SPDX-License-Identifier: Apache-2.0
// Optimizers with state in codes, split masters and stochastic rounding. A step with them is the fp32 step on decoded
// values, encoded by the rules of core/rules: to the bit, on every instruction set, for every kind, format and dtype,
// over steps that overflow and clip. tests/core/state_codes_test.cpp holds the rules to their definitions.
#include <algorithm>
#include <cmath>

#include "core/rules/random.h"
#include "core/rules/split.h"
#include "core/rules/state_codes.h"
#include "tests/support/objects.h"
#include "tests/support/oracle.h"

namespace gsc_test {
namespace {

const std::vector<int64_t> kCounts = {1, 31, 33, 1000, 0, 17000, 64};

/// The slots of an optimizer, as its lists describe them.
struct Slots {
  std::vector<std::vector<gsc_tensor>> slots;
  explicit Slots(const Optimizer &optimizer) {
    int32_t count = 0;
    EXPECT_GSC_OK(gsc_optimizer_get_state_count(optimizer.get(), &count));
    for (int32_t slot = 0; slot < count; ++slot) {
      gsc_tensor_list *list = nullptr;
      EXPECT_GSC_OK(gsc_optimizer_get_state(optimizer.get(), slot, &list, nullptr));
      int64_t tensors = 0;
      EXPECT_GSC_OK(gsc_tensor_list_get_count(list, &tensors));
      slots.emplace_back(static_cast<size_t>(tensors));
      for (int64_t i = 0; i < tensors; ++i) {
        EXPECT_GSC_OK(gsc_tensor_list_get_tensor(list, i, &slots.back()[static_cast<size_t>(i)]));
      }
    }
  }
  /// All bytes, of codes and scales.
  std::vector<unsigned char> image() const {
    std::vector<unsigned char> bytes;
    const auto append = [&](const void *from, int64_t size) {
      const auto *first = static_cast<const unsigned char *>(from);
      bytes.insert(bytes.end(), first, first + size);
    };
    for (const std::vector<gsc_tensor> &slot : slots) {
      for (const gsc_tensor &t : slot) {
        append(t.data, t.count * gsc::dtype_bytes(t.dtype));
        if (t.scale != nullptr) append(t.scale, gsc::state_groups(t.count));
      }
    }
    return bytes;
  }
};

/// 1 minus the factor of a slot's old value, from the equations of the semantics page.
float rate_of(const gsc_optimizer_options &o, int slot) {
  switch (o.kind) {
    case GSC_SGD:
      return 1.0f - static_cast<float>(o.momentum);
    case GSC_ADAGRAD:
      return 0.0f;
    case GSC_LION:
      return static_cast<float>(1.0 - o.beta2);
    default:
      return slot == 0 ? static_cast<float>(1.0 - o.beta1) : (slot == 1 ? static_cast<float>(1.0 - o.beta2) : 1.0f);
  }
}

uint32_t random_bits(const gsc_optimizer_options &o, int64_t element, int64_t step, gsc::Draw draw) {
  return gsc::philox(static_cast<uint64_t>(o.seed), element / 8, step, draw).half(static_cast<int>(element % 8));
}

std::vector<float> decode(const gsc_tensor &t) {
  std::vector<float> values(static_cast<size_t>(t.count));
  gsc::with_state_code(t.dtype, [&](auto code) {
    using C = decltype(code);
    for (int64_t i = 0; i < t.count; ++i) {
      const uint32_t scale = C::kGrouped ? static_cast<const uint8_t *>(t.scale)[i / 32] : 0;
      values[static_cast<size_t>(i)] = C::decode(static_cast<const typename C::Stored *>(t.data)[i], scale);
    }
  });
  return values;
}

/// Expects the codes and scales of `t` to be those of `x`; `first` is the index of its first element.
void expect_encoded(const gsc_tensor &t, const float *x, const gsc_optimizer_options &o, int slot, int64_t first,
                    int64_t step) {
  const bool is_random = gsc::rounds_stochastically(t.dtype, rate_of(o, slot));
  gsc::with_state_code(t.dtype, [&](auto code) {
    using C = decltype(code);
    for (int64_t group = 0; group < t.count; group += 32) {
      const int64_t end = std::min<int64_t>(group + 32, t.count);
      uint32_t largest = 0;
      for (int64_t i = group; i < end; ++i) {
        if (std::isfinite(x[i])) largest = std::max(largest, gsc::to_bits(std::fabs(x[i])));
      }
      uint32_t scale = 0;
      if constexpr (C::kGrouped) {
        scale = C::scale_for(largest);
        ASSERT_EQ(static_cast<const uint8_t *>(t.scale)[group / 32], scale)
            << "slot " << slot << " group " << group / 32;
      }
      for (int64_t i = group; i < end; ++i) {
        uint32_t bias = gsc::kToNearest;
        if (is_random) bias = gsc::bias_of<C>(random_bits(o, first + i, step, gsc::Draw::kState));
        ASSERT_EQ(static_cast<const typename C::Stored *>(t.data)[i], C::encode(x[i], scale, bias))
            << "slot " << slot << " element " << i << " of " << t.count << " step " << step;
      }
    }
  });
}

struct Case {
  int32_t kind, state_format, master_format, param_dtype, grad_dtype, copy_dtype;
  uint32_t flags;
};

gsc_optimizer_options options_of(const Case &c) {
  gsc_optimizer_options o = optimizer_options(c.kind);
  o.state_format = c.state_format;
  o.master_format = c.master_format;
  o.flags = c.flags;
  o.lr = 0.01;
  o.weight_decay = 0.1;
  o.seed = 0x123456789abcdef;
  if (c.kind == GSC_SGD) o.momentum = 0.9;
  return o;
}

/// An optimizer with codes beside one over fp32 masters and fp32 state, both stepped on the same gradients.
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
        if (from.dtype == GSC_FP32) continue;
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
        if (from.dtype == GSC_FP32) {
          ASSERT_TRUE(std::equal(x, x + from.count, static_cast<const float *>(from.data)));
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
      return is_half ? gsc::round_stochastically<gsc::Fp16>(master, random)
                     : gsc::round_stochastically<gsc::Bf16>(master, random);
    }
    with_split([&](auto dtype, auto remainder) {
      using R = decltype(remainder);
      gsc::Split<decltype(dtype), R>::divide(master, result, remainder);
      EXPECT_EQ(static_cast<const R *>(coded.slots.back()[t].data)[i], remainder) << t << ' ' << i;
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
    for (const int32_t kind : {GSC_SGD, GSC_ADAM, GSC_ADAMW, GSC_ADAGRAD, GSC_LION}) {
      for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_16BIT, GSC_STATE_8BIT}) {
        for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
          for (const int32_t param : {GSC_FP16, GSC_BF16}) {
            const int32_t grad = (kind + state + master) % 2 == 0 ? param : GSC_FP32;
            run({kind, state, master, param, grad, master == GSC_MASTER_NONE ? GSC_FP16 : 0, 0}, target, 2);
          }
        }
      }
    }
    run({GSC_ADAMW, GSC_STATE_8BIT, GSC_MASTER_SPLIT16, GSC_BF16, GSC_BF16, 0, GSC_OPTIMIZER_AMSGRAD}, target, 1);
    run({GSC_ADAM, GSC_STATE_16BIT, GSC_MASTER_SPLIT8, GSC_FP16, GSC_FP32, 0, GSC_OPTIMIZER_AMSGRAD}, target, 1);
    run({GSC_ADAMW, GSC_STATE_8BIT, GSC_MASTER_STOCHASTIC, GSC_BF16, GSC_FP16, GSC_FP16,
         GSC_OPTIMIZER_MAXIMIZE | GSC_OPTIMIZER_ZERO_GRADS},
        target, 3);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace gsc_test
