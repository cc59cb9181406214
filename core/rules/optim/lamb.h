// SPDX-License-Identifier: Apache-2.0
// LAMB (You et al. 2020, arXiv:1904.00962, algorithm 2, with bias correction): Adam's direction plus weight decay,
// scaled per tensor by |p| / |direction| (1 unless both norms are > 0). The direction is computed again from the state instead
// of being read back, which saves a buffer and its traffic.
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kind.h"

namespace gsc::optim {

struct Lamb {
  static constexpr Kind kKind = {GSC_LAMB,
                                 "LAMB",
                                 {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 1e-2},
                                 {{"exp_avg", Slot::kMoment}, {"exp_avg_sq", Slot::kSecondMoment}}};
  static constexpr int kStates = 2;
  static constexpr bool kNeedsNorms = true;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    c.inv_bias1 = 1.0 / (1.0 - power(h.beta1, step));
    c.inv_sqrt_bias2 = 1.0 / square_root(1.0 - power(h.beta2, step));
    return c;
  }

  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return slot == 0 ? c.one_minus_beta1 : c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static T direction(T p, const T *state, const Coefficients<T> &c) {
    return (state[0] * c.inv_bias1) / (square_root(state[1]) * c.inv_sqrt_bias2 + c.eps) + c.weight_decay * p;
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
  GSC_HD static double ratio(double param_sum_sq, double direction_sum_sq) {
    if (!(param_sum_sq > 0.0 && direction_sum_sq > 0.0)) return 1.0;
    return square_root(param_sum_sq) / square_root(direction_sum_sq);
  }
};

}  // namespace gsc::optim
