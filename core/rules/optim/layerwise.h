// SPDX-License-Identifier: Apache-2.0
// Optimizers that scale the update of a tensor by norms over all of it:
//   LAMB (You et al. 2020, arXiv:1904.00962, algorithm 2, with bias correction): Adam's direction plus weight decay times
//   |p| / |direction| (1 unless both norms are > 0). The direction is computed again from the state instead of being read
//   back, which saves a buffer and its traffic;
//   LARS (You et al. 2017, arXiv:1708.03888), as optax.lars: SGD of g times trust_coefficient |p| / |g|, with momentum,
//   for which there is no state if it is 0;
//   NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286), as optax.novograd: a mean of g / sqrt(v), where v is a mean of |g|^2;
//   decoupled, the mean is of g and divided by sqrt(v) later, as Apex's with reg_inside_moment=False.
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc::optim {

struct Lamb {
  static constexpr Kind kKind = kinds::kLAMB;
  static constexpr int kStates = 2;
  static constexpr bool kNeedsNorms = true;
  enum Own : int32_t {
    kInvBias1,      ///< 1 / (1 - beta1^t)
    kInvSqrtBias2,  ///< 1 / sqrt(1 - beta2^t)
    kOwnCount
  };

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    c.own[kInvBias1] = 1.0 / (1.0 - power(h.beta1, step));
    c.own[kInvSqrtBias2] = 1.0 / square_root(1.0 - power(h.beta2, step));
    return c;
  }

  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return slot == 0 ? c.one_minus_beta1 : c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static T direction(T p, const T *state, const Coefficients<T> &c) {
    const T mean = within_range(state[0] * c.own[kInvBias1], is_finite(state[0]));
    return mean / (square_root(state[1]) * c.own[kInvSqrtBias2] + c.eps) + c.weight_decay * p;
  }

  template <typename T>
  GSC_HD static T moments(T p, T *state, T g, const Coefficients<T> &c) {
    state[0] = c.beta1 * state[0] + c.one_minus_beta1 * g;
    state[1] = c.beta2 * state[1] + c.one_minus_beta2 * (g * g);
    return direction(p, state, c);
  }

  template <typename T>
  GSC_HD static void apply(T &p, const T *state, T ratio, const Coefficients<T> &c) {
    p = p - (c.lr * ratio) * direction(p, state, c);
  }

  /// The trust ratio.
  GSC_HD static double ratio(double param_sum_sq, double direction_sum_sq, const Coefficients<double> & /*c*/,
                             double * /*number*/) {
    if (!(param_sum_sq > 0.0 && direction_sum_sq > 0.0)) return 1.0;
    return square_root(param_sum_sq) / square_root(direction_sum_sq);
  }
};

/// LARS and NovoGrad: momentum of gradients that a tensor's ratio multiplies. The second sweep reads the gradients again.
struct ScaledMomentum {
  static constexpr int kStates = 1;
  static constexpr bool kNeedsNorms = true;
  static constexpr bool kGradientsLast = true;
  enum Own : int32_t {
    kRatioLast,         ///< 1: the ratio multiplies the update (NovoGrad), 0: the gradient
    kLaterDecay,        ///< weight decay that the ratio does not multiply
    kLookAhead,         ///< 1: Nesterov momentum (LARS)
    kTrustCoefficient,  ///< as in the options (LARS)
    kOwnCount
  };

  template <typename T>
  GSC_HD static T rate(int /*slot*/, const Coefficients<T> &c) {
    return T(1) - c.momentum;
  }

  template <typename T>
  GSC_HD static T direction(T p, T g, const Coefficients<T> &c) {
    return decay_gradient(g, p, c);
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c, T ratio) {
    const bool late = c.own[kRatioLast] != T(0);
    const T scaled = direction(p, g, c) * (late ? T(1) : ratio);
    const T added = c.grad_weight * (c.own[kLaterDecay] != T(0) ? scaled + c.own[kLaterDecay] * p : scaled);
    const T buffer = c.momentum * state[0] + added;
    state[0] = buffer;
    const T step = c.own[kLookAhead] != T(0) ? added + c.momentum * buffer : buffer;
    p = p * c.keep - c.lr * (step * (late ? ratio : T(1)));
  }
};

struct LarsRule {
  static constexpr Kind kKind = kinds::kLARS;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t /*step*/) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    decay_once(c, false);
    c.grad_weight = lr;  // in the buffer, as in the paper
    c.lr = 1.0;
    c.own[ScaledMomentum::kLookAhead] = h.nesterov ? 1.0 : 0.0;
    c.own[ScaledMomentum::kTrustCoefficient] = h.trust_coefficient;
    return c;
  }

  GSC_HD static double ratio(double param_sum_sq, double direction_sum_sq, const Coefficients<double> &c,
                             double * /*number*/) {
    if (!(param_sum_sq > 0.0 && direction_sum_sq > 0.0)) return 1.0;
    const double trust = c.own[ScaledMomentum::kTrustCoefficient];
    return trust * square_root(param_sum_sq) / (square_root(direction_sum_sq) + c.eps);
  }
};

struct Lars : LarsRule {
  static constexpr int kStates = 0;
  static constexpr bool kNeedsNorms = true;
  static constexpr bool kGradientsLast = true;

  template <typename T>
  GSC_HD static T direction(T p, T g, const Coefficients<T> &c) {
    return decay_gradient(g, p, c);
  }

  template <typename T>
  GSC_HD static void update(T &p, T * /*state*/, T g, const Coefficients<T> &c, T ratio) {
    p = p - c.grad_weight * (direction(p, g, c) * ratio);
  }
};

struct LarsMomentum : LarsRule, ScaledMomentum {
  static constexpr bool kNeedsMomentum = true;
};

struct Novograd : ScaledMomentum {
  using Sweep = LarsMomentum;
  static constexpr Kind kKind = kinds::kNovoGrad;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    decay_once(c, h.decoupled);
    c.own[kLaterDecay] = c.weight_decay;
    c.weight_decay = 0.0;
    c.momentum = h.beta1;
    c.grad_weight = 1.0 - h.dampening;
    c.own[kRatioLast] = h.decoupled ? 1.0 : 0.0;
    c.first = step == 1 ? 1.0 : 0.0;
    if (h.corrects_bias) {
      c.lr = lr / (1.0 - power(h.beta1, step));
      c.sqrt_bias2 = square_root(1.0 - power(h.beta2, step));
    }
    return c;
  }

  /// `number` is v.
  GSC_HD static double ratio(double /*param_sum_sq*/, double direction_sum_sq, const Coefficients<double> &c,
                             double *number) {
    const double v = c.first != 0.0 ? direction_sum_sq : c.beta2 * *number + c.one_minus_beta2 * direction_sum_sq;
    *number = v;
    const double root = square_root(v) / c.sqrt_bias2 + c.eps;
    return root == 0.0 ? 0.0 : 1.0 / root;  // NaN stays NaN: with 0 the tensor would silently stop
  }
};

}  // namespace gsc::optim

/// X(variant, formula) of this file, from which scripts/gen-api makes the list of all.
#define GSC_LAYERWISE_FORMULAS(X)       \
  X(kLamb, optim::Lamb)                 \
  X(kLars, optim::Lars)                 \
  X(kLarsMomentum, optim::LarsMomentum) \
  X(kNovograd, optim::Novograd)
