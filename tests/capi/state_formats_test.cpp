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
    case GSC_RMSPROP:
      return static_cast<float>(slot == 1 ? 1.0 - o.momentum : 1.0 - o.alpha);
    case GSC_ADADELTA:
      return static_cast<float>(1.0 - o.rho);
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
  if (c.kind == GSC_SGD || c.kind == GSC_RMSPROP) o.momentum = 0.9;
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

/// A few parameters of one dtype with one optimizer, which takes steps on random gradients.
struct Small {
  Small(const Context &context, const gsc_optimizer_options &options, int32_t dtype,
        const std::vector<int64_t> &counts = {100, 7})
      : params(make_buffers(dtype, counts)), grads(make_buffers(GSC_FP32, counts)) {
    Random random(3);
    for (Buffer &p : params) p.fill_random(random, -1.0, 1.0);
    param_list = make_list(context, params);
    grad_list = make_list(context, grads);
    optimizer = make_optimizer(context, options, param_list, grad_list);
  }
  void step(Random &random, double size = 1.0) {
    for (Buffer &g : grads) g.fill_random(random, -size, size);
    ASSERT_GSC_OK(gsc_optimizer_step(optimizer.get(), nullptr));
  }
  std::vector<unsigned char> save() const {
    int64_t size = 0;
    EXPECT_GSC_OK(gsc_optimizer_get_save_size(optimizer.get(), &size));
    std::vector<unsigned char> image(static_cast<size_t>(size));
    EXPECT_GSC_OK(gsc_optimizer_save_sync(optimizer.get(), image.data(), size, nullptr));
    return image;
  }
  gsc_status load(const std::vector<unsigned char> &image) const {
    return gsc_optimizer_load_sync(optimizer.get(), image.data(), static_cast<int64_t>(image.size()), nullptr);
  }

  std::vector<Buffer> params, grads;
  List param_list, grad_list;
  Optimizer optimizer;
};

gsc_optimizer_options adamw(int32_t state_format, int32_t master_format) {
  gsc_optimizer_options o = optimizer_options(GSC_ADAMW);
  o.state_format = state_format;
  o.master_format = master_format;
  return o;
}

TEST(StateFormats, CheckpointsLoadIntoEveryFormat) {
  const Context context = make_context();
  for (const int32_t from : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    for (const int32_t to : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
      Small a(context, adamw(from, GSC_MASTER_SPLIT16), GSC_BF16), b(context, adamw(to, GSC_MASTER_SPLIT16), GSC_BF16);
      Random random(1);
      for (int i = 0; i < 3; ++i) a.step(random);
      ASSERT_GSC_OK(b.load(a.save())) << from << ' ' << to;
      EXPECT_EQ(applied_steps(b.optimizer), 3);
      const Slots source(a.optimizer), target(b.optimizer);
      for (size_t slot = 0; slot < 2; ++slot) {
        for (size_t t = 0; t < a.params.size(); ++t) {
          const gsc_tensor &x = source.slots[slot][t], &y = target.slots[slot][t];
          const auto *full = static_cast<const float *>(x.data);
          const std::vector<float> values =
              from == GSC_STATE_FULL ? std::vector<float>(full, full + x.count) : decode(x);
          if (to == GSC_STATE_FULL) {
            ASSERT_TRUE(std::equal(values.begin(), values.end(), static_cast<const float *>(y.data)));
          } else {
            gsc_optimizer_options nearest = optimizer_options(GSC_ADAMW);
            nearest.beta1 = nearest.beta2 = 0.0;
            expect_encoded(y, values.data(), nearest, static_cast<int>(slot), 0, 0);
          }
        }
      }
      for (size_t t = 0; t < a.params.size(); ++t) {
        EXPECT_EQ(
            std::memcmp(source.slots[2][t].data, target.slots[2][t].data, static_cast<size_t>(a.params[t].bytes())), 0);
      }
      if (from == to) {
        EXPECT_EQ(b.save(), a.save());
      }
    }
  }
}

TEST(StateFormats, CheckpointsWithoutMastersBeginThemAndMastersAreNotDropped) {
  const Context context = make_context();
  Small none(context, adamw(GSC_STATE_BITS8, GSC_MASTER_NONE), GSC_BF16);
  Small split16(context, adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT16), GSC_BF16);
  Small split8(context, adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT8), GSC_BF16);
  Random random(1);
  none.step(random);
  split16.step(random);
  ASSERT_GSC_OK(split8.load(split16.save()));
  const auto remainders = [](const Small &small) { return Slots(small.optimizer).slots[2][0].data; };
  for (int64_t i = 0; i < split8.params[0].count(); ++i) {
    const int exact = static_cast<const int16_t *>(remainders(split16))[i];
    const int kept = static_cast<const int8_t *>(remainders(split8))[i];
    ASSERT_LE(std::abs(exact - kept * 256), kept == 127 ? 255 : 128);
  }
  EXPECT_GSC_ERROR(none.load(split16.save()), GSC_ERROR_INVALID_ARGUMENT, "remainders");
  ASSERT_GSC_OK(split16.load(none.save()));
  for (int64_t i = 0; i < split16.params[0].count(); ++i) {
    ASSERT_EQ(static_cast<const int16_t *>(remainders(split16))[i], 0);
  }
}

TEST(StateFormats, NoDamagedCheckpointLoads) {
  const Context context = make_context();
  Small small(context, adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT8), GSC_FP16, {5, 3});
  Random random(1);
  small.step(random);
  const std::vector<unsigned char> image = small.save();
  for (size_t bit = 0; bit < image.size() * 8; ++bit) {
    std::vector<unsigned char> damaged = image;
    damaged[bit / 8] = static_cast<unsigned char>(damaged[bit / 8] ^ (1u << (bit % 8)));
    ASSERT_EQ(small.load(damaged), GSC_ERROR_INVALID_ARGUMENT) << bit;
  }
  for (size_t size = 0; size < image.size(); ++size) {
    ASSERT_EQ(small.load({image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size)}),
              GSC_ERROR_INVALID_ARGUMENT);
  }
  ASSERT_GSC_OK(small.load(image));
  EXPECT_EQ(small.save(), image);
}

/// sqrt(v) stays near the exact value over 2500 steps, and after gradients have become ten times smaller; no update is
/// much larger than the exact one.
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
        if (step % 500 != 0) continue;
        const Slots now(small.optimizer);
        const std::vector<float> got_m = decode(now.slots[0][0]), got_v = decode(now.slots[1][0]);
        std::vector<double> ratios;
        for (size_t i = 0; i < kElements; ++i) {
          ratios.push_back(std::sqrt(static_cast<double>(got_v[i]) / v[i]));
          largest =
              std::max(largest, std::fabs(static_cast<double>(got_m[i])) / std::sqrt(static_cast<double>(got_v[i])));
          largest_exact = std::max(largest_exact, std::fabs(m[i]) / std::sqrt(v[i]));
        }
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

/// The rows of docs/state.md: bytes moved per parameter by AdamW with 16-bit gradients, and memory beside the weights.
TEST(StateFormats, BytesOfAParameter) {
  const Context context = make_context();
  const auto expect = [&](int32_t state, int32_t master, double moved, double memory) {
    const Small small(context, adamw(state, master), GSC_BF16, {3200});
    double bytes = 0.0;
    const Slots slots(small.optimizer);
    for (const std::vector<gsc_tensor> &slot : slots.slots) {
      bytes += static_cast<double>(gsc::dtype_bytes(slot[0].dtype)) + (slot[0].scale != nullptr ? 1.0 / 32 : 0.0);
    }
    EXPECT_NEAR(bytes, memory, 0.005);
    EXPECT_NEAR(2 * 2 + 2 * 2 + 2 * bytes, moved, 0.05);  // the gradient twice, the weight and the state there and back
  };
  expect(GSC_STATE_FULL, GSC_MASTER_SPLIT16, 28, 10);
  expect(GSC_STATE_BITS16, GSC_MASTER_SPLIT16, 20.1, 6.03);
  expect(GSC_STATE_BITS8, GSC_MASTER_SPLIT16, 16.1, 4.06);
  expect(GSC_STATE_BITS8, GSC_MASTER_SPLIT8, 14.1, 3.06);
  expect(GSC_STATE_BITS8, GSC_MASTER_STOCHASTIC, 12.1, 2.06);
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

TEST(StateFormats, AdagradsSumBeginsWhereItIsTold) {
  const Context context = make_context();
  for (const int32_t format : {GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    gsc_optimizer_options o = optimizer_options(GSC_ADAGRAD);
    o.state_format = format;
    o.initial_accumulator_value = 0.5;
    const Small small(context, o, GSC_FP32);
    const Slots slots(small.optimizer);
    for (const gsc_tensor &t : slots.slots[0]) {
      for (const float x : decode(t)) EXPECT_EQ(x, 0.5f);
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

class StateLists : public ::testing::Test {
 protected:
  StateLists() : context_(make_context()), params_(GSC_BF16, 100), grads_(GSC_BF16, 100) {
    params_list_ = make_list(context_, params_);
    grads_list_ = make_list(context_, grads_);
  }
  gsc_tensor grouped(int32_t dtype) {
    gsc_tensor t = GSC_TENSOR_INIT(codes_, 100, dtype);
    t.scale_dtype = GSC_FP8_E8M0;
    t.scale = scales_;
    t.scale_block_rows = 1;
    t.scale_block_columns = 32;
    return t;
  }
  gsc_status create(const gsc_optimizer_options &o, const std::vector<gsc_tensor_list *> &state) {
    gsc_optimizer *optimizer = nullptr;
    const gsc_status status = gsc_optimizer_create(context_.get(), &o, params_list_.get(), grads_list_.get(), nullptr,
                                                   state.data(), static_cast<int32_t>(state.size()), &optimizer);
    optimizer_.reset(optimizer);
    return status;
  }
  Context context_;
  Buffer params_, grads_;
  List params_list_, grads_list_;
  Optimizer optimizer_;
  alignas(64) unsigned char codes_[400] = {};
  alignas(64) unsigned char scales_[64] = {};
  alignas(64) unsigned char more_[400] = {};
};

TEST_F(StateLists, TheCallersOwnSayTheirFormat) {
  const gsc_tensor m = GSC_TENSOR_INIT(more_, 100, GSC_BF16);
  const List first = make_list(context_, {m});
  const List second = make_list(context_, {grouped(GSC_UFP8_E4M4)});
  ASSERT_GSC_OK(create(optimizer_options(GSC_ADAMW), {first.get(), second.get()}));
  grads_.fill(1.0);
  ASSERT_GSC_OK(gsc_optimizer_step(optimizer_.get(), nullptr));
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(reinterpret_cast<const uint16_t *>(more_)[i], 0);
    EXPECT_NE(codes_[i], 0);
  }
  EXPECT_EQ(codes_[100], 0);
  EXPECT_NE(scales_[3], 0);
  EXPECT_EQ(scales_[4], 0);
}

TEST_F(StateLists, WhatDoesNotFitIsRefusedByName) {
  const List moments = make_list(context_, {grouped(GSC_FP8_E4M3)});
  const List squares = make_list(context_, {GSC_TENSOR_INIT(more_, 100, GSC_FP32)});
  const gsc_optimizer_options o = optimizer_options(GSC_ADAMW);
  EXPECT_GSC_ERROR(create(o, {squares.get(), moments.get()}), GSC_ERROR_INVALID_ARGUMENT, "state[1][0]", "fp8_e4m3",
                   "ufp8_e4m4");
  gsc_optimizer_options split = o;
  split.master_format = GSC_MASTER_SPLIT8;
  EXPECT_GSC_ERROR(create(split, {moments.get(), squares.get()}), GSC_ERROR_INVALID_ARGUMENT, "state_count");
  // In the place of parameters, gradients, and by a scaler.
  const Scaler scaler = make_scaler(context_, 1.0f);
  EXPECT_GSC_ERROR(gsc_scaler_unscale(scaler.get(), moments.get(), nullptr), GSC_ERROR_INVALID_ARGUMENT, "grads[0]",
                   "fp8_e4m3");
  gsc_tensor_diagnosis diagnosis;
  EXPECT_GSC_ERROR(gsc_tensor_list_diagnose_sync(moments.get(), &diagnosis, nullptr, 1, nullptr),
                   GSC_ERROR_INVALID_ARGUMENT, "list[0]");
  for (const bool as_params : {true, false}) {
    gsc_optimizer *optimizer = nullptr;
    EXPECT_GSC_ERROR(
        gsc_optimizer_create(context_.get(), &o, as_params ? moments.get() : params_list_.get(),
                             as_params ? grads_list_.get() : moments.get(), nullptr, nullptr, 0, &optimizer),
        GSC_ERROR_INVALID_ARGUMENT, as_params ? "params[0]" : "grads[0]");
  }
}

TEST_F(StateLists, ScalesAreChecked) {
  const auto expect_refused = [&](auto edit, const char *field) {
    gsc_tensor t = grouped(GSC_FP8_E4M3);
    edit(t);
    gsc_tensor_list *list = nullptr;
    EXPECT_GSC_ERROR(gsc_tensor_list_create(context_.get(), &t, 1, nullptr, &list), GSC_ERROR_INVALID_ARGUMENT,
                     "tensors[0]", field);
  };
  expect_refused([](gsc_tensor &t) { t.scale = nullptr; }, "scale");
  expect_refused([](gsc_tensor &t) { t.scale_dtype = GSC_FP32; }, "scale_dtype");
  expect_refused([](gsc_tensor &t) { t.scale_block_rows = 2; }, "scale_block_rows");
  expect_refused([](gsc_tensor &t) { t.scale_block_columns = 64; }, "scale_block_columns");
  expect_refused([](gsc_tensor &t) { t.dtype = GSC_BF16; }, "scale");
  expect_refused([](gsc_tensor &t) { t.scale = static_cast<const char *>(t.data) + 98; }, "overlaps");
}

TEST_F(StateLists, FormatsNeedTheirParameters) {
  Buffer wide(GSC_FP64, 100), full(GSC_FP32, 100);
  const List wide_list = make_list(context_, wide), full_list = make_list(context_, full);
  gsc_optimizer *optimizer = nullptr;
  gsc_optimizer_options o = adamw(GSC_STATE_BITS8, GSC_MASTER_NONE);
  EXPECT_GSC_ERROR(
      gsc_optimizer_create(context_.get(), &o, wide_list.get(), grads_list_.get(), nullptr, nullptr, 0, &optimizer),
      GSC_ERROR_INVALID_ARGUMENT, "state_format", "params[0]", "fp64");
  o = adamw(GSC_STATE_FULL, GSC_MASTER_SPLIT16);
  EXPECT_GSC_ERROR(
      gsc_optimizer_create(context_.get(), &o, full_list.get(), grads_list_.get(), nullptr, nullptr, 0, &optimizer),
      GSC_ERROR_INVALID_ARGUMENT, "master_format", "params[0]", "fp32");
  ASSERT_GSC_OK(create(adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT16), {}));
  for (const auto &[edit, field] :
       {std::pair<void (*)(gsc_optimizer_options &), const char *>{[](auto &g) { g.state_format = 0; }, "state_format"},
        {[](auto &g) { g.master_format = 0; }, "master_format"},
        {[](auto &g) { g.seed = 1; }, "seed"}}) {
    gsc_optimizer_options group = adamw(GSC_STATE_BITS8, GSC_MASTER_SPLIT16);
    edit(group);
    EXPECT_GSC_ERROR(gsc_optimizer_add_group(optimizer_.get(), 0, 1, &group, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                     field);
    EXPECT_GSC_ERROR(gsc_optimizer_set_options(optimizer_.get(), 0, &group, nullptr), GSC_ERROR_INVALID_ARGUMENT,
                     field);
  }
}

}  // namespace
}  // namespace gsc_test
