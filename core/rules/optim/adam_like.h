// SPDX-License-Identifier: Apache-2.0
// Optimizers with a mean of gradients and a measure of their size, as Adam, that share one formula and differ in its
// coefficients, so that kernels are compiled once for all of them:
//   NAdam (Dozat 2016) with momentum decay, as torch.optim.NAdam;
//   RAdam (Liu et al. 2020, arXiv:1908.03265), as torch.optim.RAdam but for rounding;
//   Adamax (Kingma and Ba 2015, arXiv:1412.6980, algorithm 2), as torch.optim.Adamax: eps is added to |g|;
//   AdaBelief (Zhuang et al. 2020, arXiv:2010.07468), as optax.adabelief and, with eps_root = eps, as the package
//   adabelief-pytorch 0.2 with rectify=False: eps_root is added to the second moment in each step.
// Operations stand in PyTorch's order, so that both round alike.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/rules/convert.h"
#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc::optim {

struct AdamLike {
  static constexpr int kStates = 2;
  enum Own : int32_t {
    kSurprise,  ///< 1: the second moment is of g - m (AdaBelief), 0: of g
    kLargest,   ///< 1: of the larger of it and |g| (Adamax), 0: a mean
    kNoRoot,    ///< 1: the divisor is eps, whatever the second moment is, inf and NaN too (RAdam), 0: its root and eps
    kOwnCount
  };

  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return slot == 0 ? c.one_minus_beta1 : c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    const T weight = p * c.keep;
    g = decay_gradient(g, weight, c);
    const T m = interpolate(state[0], g, c.one_minus_beta1);
    const T old = c.beta2 * state[1];
    const T deviation = c.own[kSurprise] != T(0) ? g - m : g;
    const T mean = multiply_add(c.one_minus_beta2 * deviation, deviation, old) + c.eps_root;
    const T magnitude = (g < T(0) ? -g : g) + c.eps;
    const T largest = magnitude <= old ? old : magnitude;
    const T size = c.own[kLargest] != T(0) ? largest : mean;
    // A mask, and no third condition that is the same for all elements: with it compilers vectorise nothing.
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    const T measured = square_root(mean / c.bias2) / c.sqrt_bias2;
    const Bits kept = c.own[kNoRoot] != T(0) ? Bits{0} : ~Bits{0};
    const T root = from_bits(to_bits(measured) & kept) + c.eps;
    const T divisor = c.own[kLargest] != T(0) ? largest : root;
    state[0] = m;
    state[1] = size;
    p = (weight - (c.lr_of_gradient * g) / divisor) - (c.lr * m) / divisor;
  }

 protected:
  GSC_HD static Coefficients<double> start(const Hyper &h, double lr, bool maximize, bool decoupled) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    decay_once(c, decoupled);
    c.eps_root = 0.0;
    return c;
  }
};

struct Nadam : AdamLike {
  static constexpr Kind kKind = kinds::kNAdam;

  /// mu(1) * ... * mu(step), where mu(i) = beta1 (1 - decay^i / 2), which PyTorch keeps as state; rounded to fp32 at
  /// each factor, as there. At most 2300 factors are multiplied: 1 - product does not show a product below 2^-54, and
  /// once decay^i is below that, mu(i) is beta1.
  GSC_HD static double momentum_product(double beta1, double decay, int64_t step) {
    float product = 1.0F;
    double decayed = 1.0;
    for (int64_t i = 1; i <= step && product >= 0x1p-54F; ++i) {
      decayed *= decay;
      if (decayed < 0x1p-54) return static_cast<double>(product) * power(beta1, step + 1 - i);
      product *= static_cast<float>(beta1 * (1.0 - 0.5 * decayed));
    }
    return static_cast<double>(product);
  }

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = start(h, lr, maximize, h.decoupled);
    const double mu = h.beta1 * (1.0 - 0.5 * power(h.mu_decay, step));
    const double next = h.beta1 * (1.0 - 0.5 * power(h.mu_decay, step + 1));
    const double product = momentum_product(h.beta1, h.mu_decay, step);
    c.lr_of_gradient = lr * (1.0 - mu) / (1.0 - product);
    c.lr = lr * next / (1.0 - product * next);
    c.bias2 = 1.0 - power(h.beta2, step);
    return c;
  }
};

struct Radam : AdamLike {
  using Sweep = Nadam;
  static constexpr Kind kKind = kinds::kRAdam;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = start(h, lr, maximize, h.decoupled);
    const double beta2_power = power(h.beta2, step);
    const double bias2 = 1.0 - beta2_power;
    // The length of the moving average: its variance is rectified once it is long enough.
    const double most = 2.0 / (1.0 - h.beta2) - 1.0;
    const double length = most - 2.0 * static_cast<double>(step) * beta2_power / bias2;
    c.lr = lr / (1.0 - power(h.beta1, step));
    if (length > 5.0) {
      c.lr =
          c.lr * square_root(bias2 * ((length - 4.0) * (length - 2.0) * most) / ((most - 4.0) * (most - 2.0) * length));
    } else {  // the divisor is eps
      c.own[kNoRoot] = 1.0;
      c.eps = 1.0;
    }
    return c;
  }
};

struct Adamax : AdamLike {
  using Sweep = Nadam;
  static constexpr Kind kKind = kinds::kAdamax;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = start(h, lr, maximize, false);
    c.lr = lr / (1.0 - power(h.beta1, step));
    c.own[kLargest] = 1.0;
    return c;
  }
};

struct AdaBelief : AdamLike {
  using Sweep = Nadam;
  static constexpr Kind kKind = kinds::kAdaBelief;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = start(h, lr, maximize, h.decoupled);
    c.lr = lr / (1.0 - power(h.beta1, step));
    c.sqrt_bias2 = square_root(1.0 - power(h.beta2, step));
    c.eps_root = h.eps_root;
    c.own[kSurprise] = 1.0;
    return c;
  }
};

}  // namespace gsc::optim

/// X(variant, formula) of this file, from which scripts/gen-api makes the list of all.
#define GSC_ADAM_LIKE_FORMULAS(X) \
  X(kAdamax, optim::Adamax)       \
  X(kNadam, optim::Nadam)         \
  X(kRadam, optim::Radam)         \
  X(kAdaBelief, optim::AdaBelief)
