// SPDX-License-Identifier: Apache-2.0
// Adagrad (Duchi et al. 2011) with learning-rate decay, as torch.optim.Adagrad.
// Operations stand in PyTorch's order, so that both round alike. RMSprop without momentum (rmsprop.h) is the same
// formula with a mean in place of the sum: Adagrad's old sum and new square both count once.
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kind.h"

namespace gsc::optim {

struct Adagrad {
  static constexpr Kind kKind = {GSC_ADAGRAD, "Adagrad", {.lr = 1e-2, .eps = 1e-10}, {{"sum", Slot::kSecondMoment}}};
  static constexpr int kStates = 1;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    c.lr = lr / (1.0 + static_cast<double>(step - 1) * h.lr_decay);
    c.beta2 = 1.0;
    c.one_minus_beta2 = 1.0;
    c.eps_root = 0.0;
    return c;
  }

  template <typename T>
  GSC_HD static T rate(int /*slot*/, const Coefficients<T> &c) {
    return T(1) - c.beta2;
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    g = decay_gradient(g, p, c);
    const T sum = multiply_add(c.one_minus_beta2 * g, g, c.beta2 * state[0]);
    state[0] = sum;
    p = p - (c.lr * g) / (square_root(sum + c.eps_root) + c.eps);
  }
};

}  // namespace gsc::optim
