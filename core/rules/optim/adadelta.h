// SPDX-License-Identifier: Apache-2.0
// Adadelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta. Operations stand in PyTorch's order, so that both
// round alike.
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kind.h"

namespace gsc::optim {

struct Adadelta {
  static constexpr Kind kKind = {GSC_ADADELTA,
                                 "Adadelta",
                                 {.lr = 1.0, .eps = 1e-6, .rho = 0.9},
                                 {{"square_avg", Slot::kSecondMoment}, {"acc_delta", Slot::kSecondMoment}}};
  static constexpr int kStates = 2;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t /*step*/) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    c.beta2 = h.rho;
    c.one_minus_beta2 = 1.0 - h.rho;
    return c;
  }

  template <typename T>
  GSC_HD static T rate(int /*slot*/, const Coefficients<T> &c) {
    return c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    g = decay_gradient(g, p, c);
    const T square = multiply_add(c.one_minus_beta2 * g, g, c.beta2 * state[0]);
    const T delta = square_root(state[1] + c.eps) / square_root(square + c.eps) * g;
    state[0] = square;
    state[1] = multiply_add(c.one_minus_beta2 * delta, delta, c.beta2 * state[1]);
    p = multiply_add(-c.lr, delta, p);
  }
};

}  // namespace gsc::optim
