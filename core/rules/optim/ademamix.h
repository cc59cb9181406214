// SPDX-License-Identifier: Apache-2.0
// AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137): AdamW with a second, slow mean of gradients, which enters with
// the weight alpha and without bias correction. alpha grows linearly from 0 over warmup_steps, and the half-life of the
// slow mean from that of the fast one over beta3_warmup, as in the paper's equations for T_alpha and T_beta3.
// Operations stand in the order of the package pytorch_optimizer 4.1, so that both round alike.
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc::optim {

struct AdEMAMix {
  static constexpr Kind kKind = kinds::kAdEMAMix;
  static constexpr int kStates = 3;
  enum Own : int32_t {
    kBias1,  ///< 1 - beta1^t
    kOneMinusBeta3,
    kAlpha,  ///< weight of the slow mean
    kOwnCount
  };

  /// The part of the way that a warm-up has come.
  GSC_HD static double progress(int64_t step, int64_t warmup) {
    return step < warmup ? static_cast<double>(step) / static_cast<double>(warmup) : 1.0;
  }

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    c.own[kBias1] = 1.0 - power(h.beta1, step);
    c.sqrt_bias2 = square_root(1.0 - power(h.beta2, step));
    c.own[kAlpha] = progress(step, h.warmup_steps) * h.alpha;
    c.own[kOneMinusBeta3] = 1.0 - h.beta3;
    if (step < h.beta3_warmup) {
      const double part = progress(step, h.beta3_warmup);
      const double life = (1.0 - part) * h.half_life1 + part * h.half_life3;
      c.own[kOneMinusBeta3] = life > 0.0 ? one_minus_half_to(1.0 / life) : 1.0;
    }
    return c;
  }

  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return slot == 0 ? c.one_minus_beta1 : (slot == 1 ? c.one_minus_beta2 : c.own[kOneMinusBeta3]);
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    const T weight = p * c.keep;
    const T m = interpolate(state[0], g, c.one_minus_beta1);
    const T v = multiply_add(c.one_minus_beta2 * g, g, c.beta2 * state[1]);
    const T slow = interpolate(state[2], g, c.own[kOneMinusBeta3]);
    state[0] = m;
    state[1] = v;
    state[2] = slow;
    const T mean = within_range(multiply_add(c.own[kAlpha], slow, m / c.own[kBias1]), is_finite(m) && is_finite(slow));
    p = weight - (c.lr * mean) / (square_root(v) / c.sqrt_bias2 + c.eps);
  }
};

}  // namespace gsc::optim

/// X(variant, formula) of this file, from which scripts/gen-api makes the list of all.
#define GSC_ADEMAMIX_FORMULAS(X) X(kAdemamix, optim::AdEMAMix)
