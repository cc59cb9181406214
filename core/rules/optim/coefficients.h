// SPDX-License-Identifier: Apache-2.0
// The numbers that an update formula needs, one set per parameter group and step, worked out once in double and then
// narrowed to the arithmetic type T. The file of an optimizer shows which fields it uses, and names its own.
#pragma once

#include <cstdint>

#include "core/rules/elementary.h"
#include "core/rules/hd.h"

namespace gsc {

/// Hyper-parameters of one group as the caller gave them (see gsc_optimizer_options).
struct Hyper {
  double lr, beta1, beta2, eps, weight_decay, momentum, dampening, lr_decay, alpha, rho;
  double mu_decay;  ///< 0.96^momentum_decay
  double eps_root;
  double beta3;
  double half_life1, half_life3;  ///< of means that decay by beta1 and beta3, in steps
  int64_t warmup_steps, beta3_warmup;
  double weight_step_power, weight_lr_power;
  double trust_coefficient;
  double ema_decay;
  double param_min, param_max;  ///< both 0: no range
  bool decoupled;               ///< GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY
  bool nesterov;                ///< GSC_OPTIMIZER_NESTEROV
  bool corrects_bias;           ///< GSC_OPTIMIZER_BIAS_CORRECTION
  bool warms_up_ema;            ///< GSC_OPTIMIZER_EMA_WARMUP
  bool cautious;                ///< GSC_OPTIMIZER_CAUTIOUS
  bool decays_cautiously;       ///< GSC_OPTIMIZER_CAUTIOUS_DECAY
};

/// What a step does. The others take parameters to the average of their iterates, and back.
enum class Phase : int32_t { kStep, kToAverage, kToTraining };

/// The state of a tensor whose iterates are averaged.
struct Average {
  double lr_max;
  double weight_sum;
};

/// A step of such a tensor.
struct Averaging {
  Phase phase = Phase::kStep;
  double lr = 0.0;    ///< warmed up
  double part = 0.0;  ///< the share of the new iterate in the average
};

/// The largest `kOwnCount` of a formula.
inline constexpr int kMaxOwn = 4;

/// All of type T, which `narrow` relies on.
template <typename T>
struct Coefficients {
  T sign;  ///< -1 to maximize, else 1
  T lr;    ///< learning rate, decayed or bias-corrected where the optimizer does that
  T beta1, beta2;
  T one_minus_beta1, one_minus_beta2;
  T bias2;       ///< 1 - beta2^t
  T sqrt_bias2;  ///< sqrt(1 - beta2^t)
  T eps;
  T eps_root;
  T weight_decay;
  T keep;  ///< 1 - lr * weight_decay
  T momentum;
  T grad_weight;           ///< 1 - dampening; 1 at the first step
  T lr_of_gradient;        ///< where `lr` is that of the mean alone
  T first;                 ///< 1 at a tensor's first step, else 0
  T evaluates;             ///< 1: no step, the parameters alone move, between training and evaluation; else 0
  T ema_weight;            ///< of the new parameter in the average of the weights
  T is_restrained;         ///< 1: those below count; 0: they change nothing, and loops leave them out
  T param_min, param_max;  ///< the range of new parameters; without one -inf and inf
  T cautious_from;         ///< 0: updates that the gradient goes against are left out; inf: none is
  T cautious_decay_from;   ///< 0: so is the decay of parameters that go against the update; inf: none is
  T own[kMaxOwn];          ///< those that only the formula's file has, by the names in its `Own`
};

/// Every field, rounded once.
template <typename To, typename From>
GSC_HD Coefficients<To> narrow(const Coefficients<From> &c) {
  constexpr int kFields = sizeof c / sizeof(From);
  struct FromFields {
    From field[kFields];
  };
  struct ToFields {
    To field[kFields];
  };
  const auto from = __builtin_bit_cast(FromFields, c);
  ToFields to{};
  for (int i = 0; i < kFields; ++i) to.field[i] = static_cast<To>(from.field[i]);
  return __builtin_bit_cast(Coefficients<To>, to);
}

/// a * b + c. In fp32 rounded once, as PyTorch's vector code does; in fp64 twice, because x86-64 processors without the
/// instruction would need a slow routine for it.
GSC_HD double multiply_add(double a, double b, double c) { return a * b + c; }
GSC_HD float multiply_add(float a, float b, float c) {
#if defined(__x86_64__) && !defined(__FMA__) && !defined(__CUDA_ARCH__)
  // The product is exact in double. The sum is rounded to odd, so that narrowing it does not round a second time: where
  // something was lost, its magnitude is cut off and the last bit set. Without branches, so that it is vectorised.
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (addend - part);
  const auto bits = __builtin_bit_cast(uint64_t, sum);
  const uint64_t too_large = (bits ^ __builtin_bit_cast(uint64_t, lost)) >> 63;
  const uint64_t odd = (bits - too_large) | 1;
  return static_cast<float>(__builtin_bit_cast(double, __builtin_fabs(lost) > 0.0 ? odd : bits));  // not if lost is NaN
#else
  return __builtin_fmaf(a, b, c);
#endif
}

GSC_HD float largest_number(float /*like*/) { return 0x1.fffffep127F; }
GSC_HD double largest_number(double /*like*/) { return 0x1.fffffffffffffp1023; }
template <typename T>
GSC_HD bool is_finite(T x) {
  return x <= largest_number(x) && x >= -largest_number(x);
}
/// x, which was computed from finite numbers alone if `of_finite`: then an inf becomes the largest number. A quotient of
/// two inf would be NaN, where the divisor has outgrown its range first and the weight should stand still.
template <typename T>
GSC_HD T within_range(T x, bool of_finite) {
  const T largest = x > T(0) ? largest_number(x) : -largest_number(x);
  return of_finite && !is_finite(x) ? largest : x;
}

/// from + weight * (to - from), exact at both ends: the formula of torch.lerp.
template <typename T>
GSC_HD T interpolate(T from, T to, T weight) {
  const bool near = weight < T(0.5);
  return multiply_add(near ? weight : weight - T(1), to - from, near ? from : to);
}

/// The weight of the parameter in its average at a tensor's step `step`, counted from 1: the first step copies, as
/// torch.optim.swa_utils.AveragedModel, Keras and timm do. The warm-up is that of TensorFlow's ExponentialMovingAverage.
GSC_HD double ema_weight(const Hyper &h, int64_t step) {
  if (step <= 1 || h.ema_decay == 0.0) return 1.0;
  const auto before = static_cast<double>(step - 1);
  const double limit = (1.0 + before) / (10.0 + before);
  return 1.0 - (h.warms_up_ema && limit < h.ema_decay ? limit : h.ema_decay);
}

/// The average of the weights after a step. A weight of 1 copies, whatever the average was.
template <typename T>
GSC_HD T average_weight(T average, T param, T weight) {
  const T next = interpolate(average, param, weight);
  return weight == T(1) ? param : next;
}

/// The gradient with weight decay in it. A decay of 0 changes nothing: 0 times a parameter of inf would be NaN.
template <typename T>
GSC_HD T decay_gradient(T g, T param, const Coefficients<T> &c) {
  const T decayed = multiply_add(c.weight_decay, param, g);
  return c.weight_decay != T(0) ? decayed : g;
}

/// Whether a number goes against an update: they have opposite signs, or, with `AtZero`, the number is 0. `from` is 0, or inf:
/// then nothing does. Nothing goes against NaN.
template <bool AtZero, typename T>
GSC_HD bool goes_against(T update, T x, T from) {
  const bool below = AtZero ? x <= T(0) : x < T(0);
  const bool above = AtZero ? x >= T(0) : x > T(0);
  return (update > from && below) || (update < -from && above);
}

/// An update, which is subtracted, or 0 where the gradient goes against it (GSC_OPTIMIZER_CAUTIOUS).
template <typename T>
GSC_HD T cautious_update(T update, T g, const Coefficients<T> &c) {
  const bool is_left_out = c.is_restrained != T(0) && goes_against<true>(update, g, c.cautious_from);
  return is_left_out ? T(0) : update;
}

/// A parameter after decoupled weight decay, without it where the parameter goes against the update
/// (GSC_OPTIMIZER_CAUTIOUS_DECAY).
template <typename T>
GSC_HD T decay_parameter(T p, T update, const Coefficients<T> &c) {
  const bool is_left_out = c.is_restrained != T(0) && goes_against<false>(update, p, c.cautious_decay_from);
  const T decayed = p * c.keep;
  return is_left_out ? p : decayed;
}

/// A new parameter, within the range of its group. NaN stays.
template <typename T>
GSC_HD T within_param_range(T p, const Coefficients<T> &c) {
  const T from = c.param_min > p ? c.param_min : p;
  const T clamped = c.param_max < from ? c.param_max : from;
  return c.is_restrained != T(0) ? clamped : p;
}

/// Adds the iterate of step `step` to an average, as the package schedulefree does.
GSC_HD Averaging advance_average(const Hyper &h, double lr, int64_t step, Average &average) {
  if (step < h.warmup_steps) lr = lr * (static_cast<double>(step) / static_cast<double>(h.warmup_steps));
  if (lr > average.lr_max) average.lr_max = lr;
  const double weight =
      real_power(static_cast<double>(step), h.weight_step_power) * real_power(average.lr_max, h.weight_lr_power);
  average.weight_sum += weight;
  return {Phase::kStep, lr, average.weight_sum > 0.0 ? weight / average.weight_sum : 0.0};
}

/// Fills in what restrains a step, which is the same for all formulas.
template <typename T>
GSC_HD void restrain(const Hyper &h, Coefficients<T> &c) {
  constexpr T kInf = __builtin_inf();
  const bool has_range = h.param_min != 0.0 || h.param_max != 0.0;
  c.is_restrained = has_range || h.cautious || h.decays_cautiously ? T(1) : T(0);
  c.param_min = has_range ? static_cast<T>(h.param_min) : -kInf;
  c.param_max = has_range ? static_cast<T>(h.param_max) : kInf;
  c.cautious_from = h.cautious ? T(0) : kInf;
  c.cautious_decay_from = h.decays_cautiously ? T(0) : kInf;
}

/// The fields every optimizer shares; `step` counts from 1.
GSC_HD Coefficients<double> common_coefficients(const Hyper &h, double lr, bool maximize) {
  Coefficients<double> c{};
  c.sign = maximize ? -1.0 : 1.0;
  c.lr = lr;
  c.beta1 = h.beta1;
  c.beta2 = h.beta2;
  c.one_minus_beta1 = 1.0 - h.beta1;
  c.one_minus_beta2 = 1.0 - h.beta2;
  c.bias2 = 1.0;
  c.sqrt_bias2 = 1.0;
  c.eps = h.eps;
  c.eps_root = h.eps_root;
  c.weight_decay = h.weight_decay;
  c.keep = 1.0 - lr * h.weight_decay;
  c.momentum = h.momentum;
  c.grad_weight = 1.0;
  return c;
}

/// For an optimizer that decays either the parameter (`decoupled`) or the gradient: the other decay changes no bits.
GSC_HD void decay_once(Coefficients<double> &c, bool decoupled) {
  if (decoupled) {
    c.weight_decay = 0.0;
  } else {
    c.keep = 1.0;
  }
}

}  // namespace gsc
