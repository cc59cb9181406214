// SPDX-License-Identifier: Apache-2.0
//
// The optimizers as docs/reference/semantics.md writes them, operation by operation, in plain scalar code that shares
// nothing with the library. A step has the library's bits, but for ratios of norms: that page leaves the last bits of a
// sum over a tensor to the code.
#ifndef GRADSCALER_TESTS_SUPPORT_REFERENCE_FORMULAS_H
#define GRADSCALER_TESTS_SUPPORT_REFERENCE_FORMULAS_H
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/kinds.h"
#include "tests/support/oracle.h"

namespace gsc_test {

inline bool has_norms(int32_t kind) { return kind == GSC_LAMB || kind == GSC_LARS || kind == GSC_NOVOGRAD; }
/// Numbers per tensor of a slot; 0 for one number per element.
inline int64_t numbers_of(int32_t kind, int32_t slot) { return gsc::numbers_of(kind_of(kind).slots[slot].holds); }

// The build keeps the compiler from fusing what is not written as fma.
inline float reference_fma(float a, float b, float c) { return fmaf_rounded_once(a, b, c); }
inline double reference_fma(double a, double b, double c) {
  const volatile double product = a * b;
  return product + c;
}
template <typename T>
T lerp(T a, T b, T w) {
  return w < T(0.5) ? reference_fma(w, b - a, a) : reference_fma(w - T(1), b - a, b);
}
inline double power(double x, double t) {
  if (t != std::floor(t)) return std::pow(x, t);  // a series in the library, with an error below 1e-13
  double r = 1.0;
  for (auto n = static_cast<int64_t>(t); n > 0; n /= 2) {
    if (n % 2 == 1) r = r * x;
    x = x * x;
  }
  return r;
}
/// A product that is rounded before anything is added to it.
template <typename T>
T times(T a, T b) {
  const volatile T product = a * b;
  return product;
}

/// inf that was computed from finite numbers as the largest number.
template <typename T>
T within_range(T x, bool of_finite) {
  return of_finite && std::isinf(x) ? std::copysign(std::numeric_limits<T>::max(), x) : x;
}

/// A tensor in the arithmetic type: parameters, state, and the numbers of a slot with numbers per tensor.
template <typename T>
struct ReferenceTensor {
  std::vector<T> p, ema;
  std::array<std::vector<T>, 3> s;
  std::array<double, 2> numbers{};
};

/// Step t of a tensor, counted from 1.
template <typename T>
class ReferenceStep {
 public:
  ReferenceStep(const gsc_optimizer_options &options, int64_t step) : o(options), t(step) {}

  /// `grads`: unscaled and clipped. The new parameters are not yet rounded to the dtype in which they are stored.
  void step(ReferenceTensor<T> &x, std::vector<T> grads) {
    if (has(GSC_OPTIMIZER_MAXIMIZE)) {
      for (T &g : grads) g = -g;
    }
    of_the_tensor(x, grads);
    for (size_t i = 0; i < x.p.size(); ++i) {
      std::array<T, 3> s{};
      for (size_t k = 0; k < 3; ++k) s[k] = x.s[k].empty() ? T(0) : x.s[k][i];
      element(x.p[i], s, grads[i]);
      if (o.param_min != 0 || o.param_max != 0) x.p[i] = in_param_range(x.p[i]);
      for (size_t k = 0; k < 3; ++k) {
        if (!x.s[k].empty()) x.s[k][i] = s[k];
      }
    }
  }
  /// The moving average of parameters as they are stored.
  void average(ReferenceTensor<T> &x) const {
    const double decay = has(GSC_OPTIMIZER_EMA_WARMUP) ? std::min(o.ema_decay, t / (t + 9)) : o.ema_decay;
    const T w = t == 1 ? 1 : 1 - decay;
    for (size_t i = 0; i < x.ema.size(); ++i) x.ema[i] = w == T(1) ? x.p[i] : lerp(x.ema[i], x.p[i], w);
  }

 private:
  bool has(uint32_t flag) const { return (o.flags & flag) != 0; }
  T decayed(T g, T p) const { return wd != 0 ? reference_fma(wd, p, g) : g; }
  T in_param_range(T p) const {
    const T low = o.param_min, high = o.param_max;
    return p < low ? low : p > high ? high : p;
  }
  /// The update u, by whose sign the gradient and the parameter are judged.
  T updated(T p, T u, T g, bool decays) const {
    const T K = 1 - times(o.lr, o.weight_decay);
    const bool away_from_0 = (u > 0 && p < 0) || (u < 0 && p > 0);
    if (decays && !(has(GSC_OPTIMIZER_CAUTIOUS_DECAY) && away_from_0)) p = times(p, K);
    const bool uphill = (u > 0 && g <= 0) || (u < 0 && g >= 0);
    return p - (has(GSC_OPTIMIZER_CAUTIOUS) && uphill ? 0 : u);
  }
  T lamb_direction(T p, T m, T v) const {
    const T M = 1 / (1 - power(o.beta1, t)), V = 1 / std::sqrt(1 - power(o.beta2, t));
    return within_range(times(m, M), std::isfinite(m)) / (times(std::sqrt(v), V) + eps) + times(wd, p);
  }

  /// What all elements share: numbers of the tensor, and ratios of norms.
  void of_the_tensor(ReferenceTensor<T> &x, const std::vector<T> &grads) {
    std::array<double, 2> &n = x.numbers;
    if (is_schedule_free(o.kind)) {
      const double warmup = o.warmup_steps;
      lr = t < warmup ? times(o.lr, t / warmup) : o.lr;
      n[0] = std::max(n[0], lr);
      const double weight = times(power(t, o.weight_step_power), power(n[0], o.weight_lr_power));
      n[1] = n[1] + weight;
      part = n[1] > 0 ? weight / n[1] : 0;
    }
    if (!has_norms(o.kind)) return;
    double params = 0, directions = 0;
    for (size_t i = 0; i < x.p.size(); ++i) {
      T d = grads[i];
      if (o.kind == GSC_LARS) d = decayed(d, x.p[i]);
      if (o.kind == GSC_LAMB) {
        x.s[0][i] = times(b1, x.s[0][i]) + times(B1, d);
        x.s[1][i] = times(b2, x.s[1][i]) + times(B2, times(d, d));
        d = lamb_direction(x.p[i], x.s[0][i], x.s[1][i]);
      }
      params += static_cast<double>(x.p[i]) * static_cast<double>(x.p[i]);
      directions += static_cast<double>(d) * static_cast<double>(d);
    }
    const bool counts = params > 0 && directions > 0;
    if (o.kind == GSC_LAMB && counts) ratio = std::sqrt(params) / std::sqrt(directions);
    if (o.kind == GSC_LARS && counts) {
      ratio = times(o.trust_coefficient, std::sqrt(params)) / (std::sqrt(directions) + o.eps);
    }
    ratio = limited(ratio, o.kind == GSC_LAMB ? o.lr : 1);
    if (o.kind != GSC_NOVOGRAD) return;
    n[0] = t == 1 ? directions : times(o.beta2, n[0]) + times(1 - o.beta2, directions);
    const bool corrects = has(GSC_OPTIMIZER_BIAS_CORRECTION);
    if (corrects) lr = o.lr / (1 - power(o.beta1, t));
    const double root = std::sqrt(n[0]) / (corrects ? std::sqrt(1 - power(o.beta2, t)) : 1) + o.eps;
    ratio = limited(root > 0 ? 1 / root : 0, lr);
  }
  /// What fp32 holds, and its product with the learning rate too.
  static double limited(double ratio, double rate) {
    return std::isfinite(ratio) ? std::min(ratio, 0x1p127 / std::max(rate, 1.0)) : ratio;
  }

  void element(T &p, std::array<T, 3> &s, T g) const {
    const T K = 1 - times(o.lr, o.weight_decay), eps_root = o.eps_root;
    const T LR = lr, momentum = o.momentum, r = ratio;
    const bool decoupled = has(GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY), nesterov = has(GSC_OPTIMIZER_NESTEROV);
    switch (o.kind) {
      case GSC_SGD: {
        const T W = t == 1 || o.momentum == 0 ? 1 : 1 - o.dampening;
        g = decayed(g, p);
        T b = g;
        if (o.momentum != 0) b = s[0] = reference_fma(W, g, times(momentum, s[0]));
        p = reference_fma(-LR, nesterov ? reference_fma(momentum, b, g) : b, p);
        return;
      }
      case GSC_ADAM:
      case GSC_ADAMW: {
        const T R = o.lr / (1 - power(o.beta1, t));
        const T S = std::sqrt(1 - power(o.beta2, t));
        if (o.kind == GSC_ADAM) g = decayed(g, p);
        s[0] = lerp(s[0], g, B1);
        s[1] = reference_fma(times(B2, g), g, times(b2, s[1]));
        T w = s[1];
        if (has(GSC_OPTIMIZER_AMSGRAD)) w = s[2] = s[1] <= s[2] ? s[2] : s[1];
        p = updated(p, times(R, s[0]) / (std::sqrt(w) / S + eps), g, o.kind == GSC_ADAMW);
        return;
      }
      case GSC_ADAGRAD: {
        const T R = o.lr / (1 + times(t - 1, o.lr_decay));
        g = decayed(g, p);
        s[0] = reference_fma(g, g, s[0]);
        p = p - times(R, g) / (std::sqrt(s[0]) + eps);
        return;
      }
      case GSC_LION: {
        const T blend = times(b1, s[0]) + times(B1, g);
        const T d = blend > 0 ? T(1) : blend < 0 ? T(-1) : blend;
        p = updated(p, times(LR, d), g, true);
        s[0] = times(b2, s[0]) + times(B2, g);
        return;
      }
      case GSC_RMSPROP: {
        const T a = o.alpha, A = 1 - o.alpha;
        g = decayed(g, p);
        s[0] = reference_fma(times(A, g), g, times(a, s[0]));
        T w = s[0];
        if (has(GSC_OPTIMIZER_CENTERED)) {
          T &mean = o.momentum != 0 ? s[2] : s[1];
          mean = lerp(mean, g, A);
          w = reference_fma(-mean, mean, w);
          if (w < 0) w = 0;
        }
        const T root = std::sqrt(w + eps_root) + eps;
        if (o.momentum != 0) s[1] = times(momentum, s[1]) + g / root;
        p = o.momentum != 0 ? reference_fma(-LR, s[1], p) : p - times(LR, g) / root;
        return;
      }
      case GSC_ADADELTA: {
        const T rho = o.rho, R = 1 - o.rho;
        g = decayed(g, p);
        s[0] = reference_fma(times(R, g), g, times(rho, s[0]));
        const T d = times(std::sqrt(s[1] + eps) / std::sqrt(s[0] + eps), g);
        s[1] = reference_fma(times(R, d), d, times(rho, s[1]));
        p = reference_fma(-LR, d, p);
        return;
      }
      case GSC_ADAMAX:
      case GSC_NADAM:
      case GSC_RADAM:
      case GSC_ADABELIEF:
        return adam_like(p, s, g, K);
      case GSC_ADEMAMIX: {
        const auto way = [&](int64_t steps) { return steps > 0 ? std::min(t / steps, 1.0) : 1.0; };
        const T A = times(way(o.warmup_steps), o.alpha);
        p = times(p, K);
        s[0] = lerp(s[0], g, B1);
        s[1] = reference_fma(times(B2, g), g, times(b2, s[1]));
        s[2] = lerp(s[2], g, static_cast<T>(way(o.beta3_warmup) < 1 ? slow_rate(way(o.beta3_warmup)) : 1 - o.beta3));
        const T sum = within_range(reference_fma(A, s[2], s[0] / static_cast<T>(1 - power(o.beta1, t))),
                                   std::isfinite(s[0]) && std::isfinite(s[2]));
        p = p - times(LR, sum) / (std::sqrt(s[1]) / static_cast<T>(std::sqrt(1 - power(o.beta2, t))) + eps);
        return;
      }
      case GSC_ADAMW_SCHEDULE_FREE:
      case GSC_SGD_SCHEDULE_FREE: {
        const double beta = o.kind == GSC_ADAMW_SCHEDULE_FREE ? o.beta1 : o.momentum;
        const T y = p, z = t == 1 ? p : s[0];
        T d = g;
        if (o.kind == GSC_ADAMW_SCHEDULE_FREE) {
          s[1] = reference_fma(times(B2, g), g, times(b2, s[1]));
          d = g / (std::sqrt(s[1] / static_cast<T>(1 - power(o.beta2, t))) + eps);
        }
        d = decayed(d, y);
        p = reference_fma(static_cast<T>(times(lr, times(beta, 1 - part) - 1)), d, lerp(y, z, static_cast<T>(part)));
        s[0] = reference_fma(-LR, d, z);
        return;
      }
      case GSC_LARS: {
        const T added = times(LR, times(decayed(g, p), r));
        s[0] = times(momentum, s[0]) + added;
        p = p - (nesterov ? added + times(momentum, s[0]) : s[0]);
        return;
      }
      case GSC_NOVOGRAD: {
        T scaled = decoupled ? g : times(g, r);
        if (!decoupled && wd != 0) scaled = scaled + times(wd, p);
        s[0] = times(b1, s[0]) + times(static_cast<T>(1 - o.dampening), scaled);
        if (decoupled) p = times(p, K);
        p = p - times(LR, decoupled ? times(s[0], r) : s[0]);
        return;
      }
      case GSC_LAMB:  // whose moments are there
        p = p - times(times(LR, r), lamb_direction(p, s[0], s[1]));
        return;
      default:
        throw std::logic_error(
            "element() of tests/support/reference_formulas.h has no equations for the optimizer kind " +
            std::to_string(o.kind));
    }
  }

  void adam_like(T &p, std::array<T, 3> &s, T g, T K) const {
    const double P = power(o.beta2, t);
    double G = 0, M = o.lr / (1 - power(o.beta1, t)), V = 1, S = 1, E = o.eps;
    if (o.kind == GSC_NADAM) {
      const double D = std::pow(0.96, o.momentum_decay);
      const auto mu = [&](double decayed) { return o.beta1 * (1 - decayed / 2); };
      float product = 1;
      double decayed = 1;
      for (int i = 1; i <= t; ++i) product = times(product, static_cast<float>(mu(decayed = times(decayed, D))));
      const double wide = product, next = mu(power(D, t + 1));
      G = times(o.lr, 1 - mu(power(D, t))) / (1 - wide);
      M = times(o.lr, next) / (1 - times(wide, next));
      V = 1 - P;
    } else if (o.kind == GSC_RADAM) {
      const double N = 2 / (1 - o.beta2) - 1, n = N - times(2 * t, P) / (1 - P);
      const double square = times(1 - P, times(times(n - 4, n - 2), N)) / times(times(N - 4, N - 2), n);
      if (n > 5) M = times(M, std::sqrt(square));
      if (n <= 5) S = kInf, E = 1;
    } else if (o.kind == GSC_ADABELIEF) {
      S = std::sqrt(1 - P);
    }
    const bool decoupled = has(GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY);
    if (decoupled) p = times(p, K);
    if (!decoupled) g = decayed(g, p);
    s[0] = lerp(s[0], g, B1);
    const T d = o.kind == GSC_ADABELIEF ? g - s[0] : g;
    if (o.kind == GSC_ADAMAX) {
      s[1] = std::max(times(b2, s[1]), std::fabs(g) + eps);
    } else {
      s[1] = reference_fma(times(B2, d), d, times(b2, s[1]));
    }
    if (o.kind == GSC_ADABELIEF) s[1] = s[1] + static_cast<T>(o.eps_root);
    T q = E;
    if (S <= 1) q = std::sqrt(s[1] / static_cast<T>(V)) / static_cast<T>(S) + static_cast<T>(E);
    if (o.kind == GSC_ADAMAX) q = s[1];
    p = (p - times(static_cast<T>(G), g) / q) - times(static_cast<T>(M), s[0]) / q;
  }

  /// B3 of AdEMAMix on the way to beta3.
  double slow_rate(double way) const {
    const double life1 = std::log(0.5) / std::log(o.beta1), life3 = std::log(0.5) / std::log(o.beta3);
    double y = times(1 / (times(1 - way, life1) + times(way, life3)), 0.69314718055994530942), r = 0;
    int halved = 0;
    for (; y > 0.5; ++halved) y /= 2;
    for (int n = 16; n > 0; --n) r = times(y / n, 1 - r);
    for (; halved > 0; --halved) r = times(r, 2 - r);
    return r;
  }

  gsc_optimizer_options o;
  double t, lr = o.lr, part = 0, ratio = 1;
  T wd = o.weight_decay, eps = o.eps;
  T b1 = o.beta1, b2 = o.beta2;
  T B1 = 1 - o.beta1, B2 = 1 - o.beta2;
};

}  // namespace gsc_test
#endif
