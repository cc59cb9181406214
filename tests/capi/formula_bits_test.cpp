// SPDX-License-Identifier: Apache-2.0
//
// The optimizers as docs/reference/semantics.md writes them, operation by operation, in plain scalar code that shares
// nothing with the library: the same bits after many steps.
#include <array>
#include <cmath>

#include "tests/support/oracle.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

// The build keeps the compiler from fusing what is not written as fma.
float fma_(float a, float b, float c) { return fmaf_rounded_once(a, b, c); }
double fma_(double a, double b, double c) {
  const volatile double product = a * b;
  return product + c;
}

template <typename T>
T lerp(T a, T b, T w) {
  return w < T(0.5) ? fma_(w, b - a, a) : fma_(w - T(1), b - a, b);
}

double power(double x, int64_t t) {
  double r = 1.0;
  for (; t > 0; t /= 2) {
    if (t % 2 == 1) r = r * x;
    x = x * x;
  }
  return r;
}

/// A product that stays one.
template <typename T>
T times(T a, T b) {
  const volatile T product = a * b;
  return product;
}

template <typename T>
struct Page {
  gsc_optimizer_options o;
  int64_t t;

  /// n: the numbers of the tensor.
  void step(T &p, T *s, T g, double *n = nullptr) const {
    const T wd = static_cast<T>(o.weight_decay), b1 = static_cast<T>(o.beta1), b2 = static_cast<T>(o.beta2);
    const T eps = static_cast<T>(o.eps), momentum = static_cast<T>(o.momentum);
    const T B1 = static_cast<T>(1 - o.beta1), B2 = static_cast<T>(1 - o.beta2);
    const T K = static_cast<T>(1 - times(o.lr, o.weight_decay));
    const T eps_root = static_cast<T>(o.eps_root), LR = static_cast<T>(o.lr);
    if ((o.flags & GSC_OPTIMIZER_MAXIMIZE) != 0) g = -g;
    const auto decay = [&] {
      const bool decoupled = (o.flags & GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY) != 0;
      if (decoupled) p = times(p, K);
      if (!decoupled && wd != 0) g = fma_(wd, p, g);
    };
    switch (o.kind) {
      case GSC_SGD: {
        const T W = static_cast<T>(t == 1 || o.momentum == 0 ? 1 : 1 - o.dampening);
        if (wd != 0) g = fma_(wd, p, g);
        T b = g;
        if (o.momentum != 0) b = s[0] = fma_(W, g, times(momentum, s[0]));
        p = fma_(-LR, (o.flags & GSC_OPTIMIZER_NESTEROV) != 0 ? fma_(momentum, b, g) : b, p);
        return;
      }
      case GSC_ADAM:
      case GSC_ADAMW: {
        const T R = static_cast<T>(o.lr / (1 - power(o.beta1, t)));
        const T S = static_cast<T>(std::sqrt(1 - power(o.beta2, t)));
        if (o.kind == GSC_ADAM && wd != 0) g = fma_(wd, p, g);
        if (o.kind == GSC_ADAMW) p = times(p, K);
        s[0] = lerp(s[0], g, B1);
        s[1] = fma_(times(B2, g), g, times(b2, s[1]));
        T w = s[1];
        if ((o.flags & GSC_OPTIMIZER_AMSGRAD) != 0) w = s[2] = s[1] <= s[2] ? s[2] : s[1];
        p = p - times(R, s[0]) / (std::sqrt(w) / S + eps);
        return;
      }
      case GSC_ADAGRAD: {
        const T R = static_cast<T>(o.lr / (1 + times(static_cast<double>(t - 1), o.lr_decay)));
        if (wd != 0) g = fma_(wd, p, g);
        s[0] = fma_(g, g, s[0]);
        p = p - times(R, g) / (std::sqrt(s[0]) + eps);
        return;
      }
      case GSC_LION: {
        const T blend = times(b1, s[0]) + times(B1, g);
        const T d = blend > 0 ? T(1) : blend < 0 ? T(-1) : blend;
        p = times(p, K) - times(LR, d);
        s[0] = times(b2, s[0]) + times(B2, g);
        return;
      }
      case GSC_RMSPROP: {
        const T a = static_cast<T>(o.alpha), A = static_cast<T>(1 - o.alpha);
        decay();
        s[0] = fma_(times(A, g), g, times(a, s[0]));
        T w = s[0];
        if ((o.flags & GSC_OPTIMIZER_CENTERED) != 0) {
          s[2] = lerp(s[2], g, A);
          w = fma_(-s[2], s[2], w);
        }
        const T root = std::sqrt(w + eps_root) + eps;
        if (o.momentum != 0) s[1] = times(momentum, s[1]) + g / root;
        p = o.momentum != 0 ? fma_(-LR, s[1], p) : p - times(LR, g) / root;
        return;
      }
      case GSC_ADADELTA: {
        const T r = static_cast<T>(o.rho), R = static_cast<T>(1 - o.rho);
        decay();
        s[0] = fma_(times(R, g), g, times(r, s[0]));
        const T d = times(std::sqrt(s[1] + eps) / std::sqrt(s[0] + eps), g);
        s[1] = fma_(times(R, d), d, times(r, s[1]));
        p = fma_(-LR, d, p);
        return;
      }
      case GSC_ADAMAX:
      case GSC_NADAM:
      case GSC_RADAM:
      case GSC_ADABELIEF: {
        const double of_mean = o.lr / (1 - power(o.beta1, t)), P = power(o.beta2, t);
        double G = 0, M = of_mean, V = 1, S = 1, E = o.eps;
        if (o.kind == GSC_NADAM) {
          const double D = std::pow(0.96, o.momentum_decay);
          const auto mu = [&](double decayed) { return o.beta1 * (1 - decayed / 2); };
          float product = 1;
          double decayed = 1;
          for (int64_t i = 1; i <= t; ++i)
            product = times(product, static_cast<float>(mu(decayed = times(decayed, D))));
          const double wide = static_cast<double>(product), next = mu(power(D, t + 1));
          G = times(o.lr, 1 - mu(power(D, t))) / (1 - wide);
          M = times(o.lr, next) / (1 - times(wide, next));
          V = 1 - P;
        } else if (o.kind == GSC_RADAM) {
          const double N = 2 / (1 - o.beta2) - 1, n = N - times(2.0 * static_cast<double>(t), P) / (1 - P);
          const double square = times(1 - P, times(times(n - 4, n - 2), N)) / times(times(N - 4, N - 2), n);
          if (n > 5) M = times(of_mean, std::sqrt(square));
          if (n <= 5) S = kInf, E = 1;
        } else if (o.kind == GSC_ADABELIEF) {
          S = std::sqrt(1 - P);
        }
        decay();
        s[0] = lerp(s[0], g, B1);
        const T d = o.kind == GSC_ADABELIEF ? g - s[0] : g;
        if (o.kind == GSC_ADAMAX) {
          s[1] = std::max(times(b2, s[1]), std::fabs(g) + eps);
        } else {
          s[1] = fma_(times(B2, d), d, times(b2, s[1]));
        }
        if (o.kind == GSC_ADABELIEF) s[1] = s[1] + eps_root;
        T q = std::sqrt(s[1] / static_cast<T>(V)) / static_cast<T>(S) + static_cast<T>(E);
        if (o.kind == GSC_ADAMAX) q = s[1];
        p = (p - times(static_cast<T>(G), g) / q) - times(static_cast<T>(M), s[0]) / q;
        return;
      }
      case GSC_ADEMAMIX: {
        const auto way = [&](int64_t steps) {
          return t < steps ? static_cast<double>(t) / static_cast<double>(steps) : 1.0;
        };
        const T A = static_cast<T>(times(way(o.warmup_steps), o.alpha));
        double rest = 1 - o.beta3;
        if (t < o.beta3_warmup) {
          const double a = way(o.beta3_warmup), life1 = std::log(0.5) / std::log(o.beta1);
          const double life3 = std::log(0.5) / std::log(o.beta3);
          double y = times(1 / (times(1 - a, life1) + times(a, life3)), 0.69314718055994530942), r = 0;
          int halved = 0;
          for (; y > 0.5; ++halved) y /= 2;
          for (int n = 16; n > 0; --n) r = times(y / n, 1 - r);
          for (; halved > 0; --halved) r = times(r, 2 - r);
          rest = r;
        }
        p = times(p, K);
        s[0] = lerp(s[0], g, B1);
        s[1] = fma_(times(B2, g), g, times(b2, s[1]));
        s[2] = lerp(s[2], g, static_cast<T>(rest));
        const T sum = fma_(A, s[2], s[0] / static_cast<T>(1 - power(o.beta1, t)));
        p = p - times(LR, sum) / (std::sqrt(s[1]) / static_cast<T>(std::sqrt(1 - power(o.beta2, t))) + eps);
        return;
      }
      case GSC_ADAMW_SCHEDULE_FREE:
      case GSC_SGD_SCHEDULE_FREE: {
        const double warm = times(o.lr, static_cast<double>(t) / static_cast<double>(o.warmup_steps));
        const double lr = t < o.warmup_steps ? warm : o.lr;
        const double beta = o.kind == GSC_ADAMW_SCHEDULE_FREE ? o.beta1 : o.momentum;
        n[0] = std::max(n[0], lr);
        const double weight = times(power(static_cast<double>(t), static_cast<int64_t>(o.weight_step_power)),
                                    power(n[0], static_cast<int64_t>(o.weight_lr_power)));
        n[1] = n[1] + weight;
        const double part = n[1] > 0 ? weight / n[1] : 0;
        const T y = p, z = t == 1 ? p : s[0];
        T d = g;
        if (o.kind == GSC_ADAMW_SCHEDULE_FREE) {
          s[1] = fma_(times(B2, g), g, times(b2, s[1]));
          d = g / (std::sqrt(s[1] / static_cast<T>(1 - power(o.beta2, t))) + eps);
        }
        if (wd != 0) d = fma_(wd, y, d);
        p = fma_(static_cast<T>(times(lr, times(beta, 1 - part) - 1)), d, lerp(y, z, static_cast<T>(part)));
        s[0] = fma_(-static_cast<T>(lr), d, z);
        return;
      }
      case GSC_LARS:
      case GSC_NOVOGRAD: {
        const bool lars = o.kind == GSC_LARS, late = (o.flags & GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY) != 0;
        const T first = lars && wd != 0 ? fma_(wd, p, g) : g;
        const double pp = static_cast<double>(p) * static_cast<double>(p);
        const double dd = static_cast<double>(first) * static_cast<double>(first);
        double ratio = 1, R = o.lr, S = 1;
        if (lars && pp > 0 && dd > 0) ratio = times(o.trust_coefficient, std::sqrt(pp)) / (std::sqrt(dd) + o.eps);
        if (!lars) {
          n[0] = t == 1 ? dd : times(o.beta2, n[0]) + times(1 - o.beta2, dd);
          if ((o.flags & GSC_OPTIMIZER_BIAS_CORRECTION) != 0)
            R = o.lr / (1 - power(o.beta1, t)), S = std::sqrt(1 - power(o.beta2, t));
          const double root = std::sqrt(n[0]) / S + o.eps;
          ratio = root > 0 ? 1 / root : 0;
        }
        const T r = static_cast<T>(ratio), W = static_cast<T>(lars ? o.lr : 1 - o.dampening);
        T scaled = late ? first : times(first, r);
        if (!lars && !late && wd != 0) scaled = scaled + times(wd, p);
        const T added = times(W, scaled), beta = lars ? momentum : b1;
        s[0] = times(beta, s[0]) + added;
        T step = (o.flags & GSC_OPTIMIZER_NESTEROV) != 0 ? added + times(beta, s[0]) : s[0];
        if (late) step = times(step, r);
        p = times(p, late ? K : T(1)) - times(lars ? T(1) : static_cast<T>(R), step);
        return;
      }
      default: {
        const T M = static_cast<T>(1 / (1 - power(o.beta1, t)));
        const T V = static_cast<T>(1 / std::sqrt(1 - power(o.beta2, t)));
        s[0] = times(b1, s[0]) + times(B1, g);
        s[1] = times(b2, s[1]) + times(B2, times(g, g));
        const T d = times(s[0], M) / (times(std::sqrt(s[1]), V) + eps) + times(wd, p);
        // A tensor of one element: nothing is added.
        const double pp = static_cast<double>(p) * static_cast<double>(p);
        const double dd = static_cast<double>(d) * static_cast<double>(d);
        const T r = static_cast<T>(pp > 0 && dd > 0 ? std::sqrt(pp) / std::sqrt(dd) : 1.0);
        p = p - times(times(LR, r), d);
      }
    }
  }
};

template <typename T>
void follow_the_page(const gsc_optimizer_options &options, int32_t dtype, float scale) {
  SCOPED_TRACE(text("kind ", options.kind, " flags ", options.flags, " dtype ", dtype));
  const bool lamb = options.kind == GSC_LAMB || options.kind == GSC_LARS || options.kind == GSC_NOVOGRAD;
  const Context context = make_context();
  Trainer trainer(context, {.options = options,
                            .counts = lamb ? std::vector<int64_t>(200, 1) : std::vector<int64_t>{2000},
                            .param_dtype = dtype,
                            .grad_dtypes = {GSC_FP32}});
  std::vector<std::vector<T>> params, state;
  std::vector<std::array<double, 2>> numbers;  // of tensors that all elements share, a copy for each
  for (Buffer &buffer : trainer.params()) {
    for (int64_t i = 0; i < buffer.count(); ++i) {
      params.push_back({static_cast<T>(buffer.get(i))});
      state.push_back({T(0), T(0), T(0)});
      numbers.push_back({0.0, 0.0});
    }
  }
  Random random(7);
  const float inverse = 1.0f / scale;
  for (int64_t t = 1; t <= 10; ++t) {
    trainer.fill_grads(random, 1.0, scale);
    size_t k = 0;
    for (Buffer &buffer : trainer.grads()) {
      for (int64_t i = 0; i < buffer.count(); ++i, ++k) {
        const float g = static_cast<float>(buffer.get(i)) * inverse;
        Page<T>{options, t}.step(params[k][0], state[k].data(), static_cast<T>(g), numbers[k].data());
      }
    }
    ASSERT_GSC_OK(gsc_optimizer_step_scaled(trainer, &inverse, nullptr, nullptr));
    k = 0;
    for (Buffer &buffer : trainer.params()) {
      for (int64_t i = 0; i < buffer.count(); ++i, ++k) {
        ASSERT_EQ(buffer.template as<T>()[i], params[k][0]) << "step " << t << " element " << k;
      }
    }
  }
}

/// The trust ratio of a tensor of zeros is 1, as documented: it must be able to leave zero.
TEST(FormulaBits, LambMovesZeros) {
  const Context context = make_context();
  gsc_optimizer_options options = optimizer_options(GSC_LAMB);
  options.weight_decay = 0.0;
  Trainer trainer(context, {.options = options, .counts = {10}});
  trainer.params()[0].fill(0.0);
  trainer.grads()[0].fill(2.0);
  ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  for (const double value : trainer.params()[0].values()) EXPECT_NEAR(value, -options.lr, 1e-5 * options.lr);
  // Without gradients no tensor moves.
  Trainer still(context, {.options = options, .counts = {10}});
  still.params()[0].fill(3.0);
  still.grads()[0].fill(0.0);
  ASSERT_GSC_OK(gsc_optimizer_step(still, nullptr));
  for (const double value : still.params()[0].values()) EXPECT_EQ(value, 3.0);
}

/// A NaN among the parameters makes their norm NaN, which is not > 0: the trust ratio is 1, and the others move.
TEST(FormulaBits, LambMovesWhatIsNotNan) {
  const Context context = make_context();
  gsc_optimizer_options options = optimizer_options(GSC_LAMB);
  for (const double weight_decay : {0.0, 0.01}) {  // with decay the direction has a NaN, too
    options.weight_decay = weight_decay;
    Trainer trainer(context, {.options = options, .counts = {3}});
    Buffer &params = trainer.params()[0];
    params.set(0, kNan);
    params.set(1, 1.0);
    params.set(2, -2.0);
    trainer.grads()[0].fill(2.0);
    ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
    EXPECT_TRUE(std::isnan(params.get(0)));
    EXPECT_NEAR(params.get(1), 1.0 - options.lr * (1.0 + weight_decay), 1e-6);
    EXPECT_NEAR(params.get(2), -2.0 - options.lr * (1.0 - 2.0 * weight_decay), 1e-6);
  }
}

/// A direction of -0 takes -0 to +0, as the page has it.
TEST(FormulaBits, LionKeepsTheSignOfZero) {
  const Context context = make_context();
  gsc_optimizer_options options = optimizer_options(GSC_LION);
  options.beta1 = 0.0;
  Trainer trainer(context, {.options = options, .counts = {20}});
  float state = 0.0f;
  for (const double g : {-1.0, -0.0}) {  // the first makes the state negative, and 0 times it -0
    float param = -0.0f;
    trainer.params()[0].fill(-0.0);
    trainer.grads()[0].fill(g);
    ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
    Page<float>{options, 1}.step(param, &state, static_cast<float>(g));
    for (const double value : trainer.params()[0].values()) {
      EXPECT_EQ(value, static_cast<double>(param));
      EXPECT_EQ(std::signbit(value), std::signbit(param)) << g;
    }
  }
}

TEST(FormulaBits, AreThoseOfThePage) {
  std::vector<gsc_optimizer_options> all;
  for (const int32_t kind : optimizer_kinds()) {
    gsc_optimizer_options o = optimizer_options(kind);
    o.lr = 0.013;
    o.weight_decay = 0.07;
    if (kind == GSC_ADAGRAD) o.lr_decay = 0.03;
    all.push_back(o);
    o.flags = GSC_OPTIMIZER_MAXIMIZE;
    all.push_back(o);
    o.flags = GSC_OPTIMIZER_AMSGRAD;
    if (kind == GSC_ADAM || kind == GSC_ADAMW) all.push_back(o);
    o.flags = 0;
    o.beta1 = 0.4;  // the other half of lerp
    if (kind != GSC_SGD && kind != GSC_ADAGRAD) all.push_back(o);
    o.flags = GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY;
    if (kind == GSC_NADAM || kind == GSC_RADAM || kind == GSC_ADABELIEF) all.push_back(o);
    o.flags = 0;
    if (is_schedule_free(kind)) {
      o.warmup_steps = 4;
      o.weight_step_power = 2.0;
      all.push_back(o);
    }
    if (kind == GSC_LARS) {
      o.flags = GSC_OPTIMIZER_NESTEROV;
      o.eps = 1e-3;
      all.push_back(o);
    }
    if (kind == GSC_NOVOGRAD) {
      o.dampening = 0.4;
      all.push_back(o);
      o.flags = GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY | GSC_OPTIMIZER_BIAS_CORRECTION;
      all.push_back(o);
    }
    if (kind == GSC_ADEMAMIX) {
      o.warmup_steps = 7;
      o.beta3_warmup = 9;
      all.push_back(o);
    }
    if (kind == GSC_RMSPROP) {
      o.alpha = 0.4;
      o.eps_root = 1e-3;
      for (const uint32_t flags : {uint32_t{0}, uint32_t{GSC_OPTIMIZER_CENTERED}}) {
        o.flags = flags;
        all.push_back(o);
        o.momentum = 0.9;
        all.push_back(o);
        o.momentum = 0.0;
        o.alpha = 0.95;  // the other half of lerp
      }
    }
    if (kind != GSC_SGD) continue;
    o.momentum = 0.9;
    o.dampening = 0.3;
    all.push_back(o);
    o.dampening = 0.0;
    o.flags = GSC_OPTIMIZER_NESTEROV;
    all.push_back(o);
  }
  for (const gsc_optimizer_options &o : all) {
    follow_the_page<float>(o, GSC_FP32, 1024.0f);
    follow_the_page<double>(o, GSC_FP64, 3.0f);
  }
}

}  // namespace
}  // namespace gsc_test
