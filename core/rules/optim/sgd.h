// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum, dampening, Nesterov momentum and weight decay, as torch.optim.SGD.
// Without momentum there is no state. Operations stand in PyTorch's order, so that both round alike.
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc::optim {

struct SgdRule {
  static constexpr Kind kKind = kinds::kSGD;
  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    // The first step takes the gradient whole: PyTorch starts the buffer as a copy of it.
    c.grad_weight = step == 1 ? 1.0 : 1.0 - h.dampening;
    return c;
  }
  template <typename T>
  GSC_HD static T rate(int /*slot*/, const Coefficients<T> &c) {
    return T(1) - c.momentum;
  }
};

struct Sgd : SgdRule {
  static constexpr int kStates = 0;
  template <typename T>
  GSC_HD static void update(T &p, T *, T g, const Coefficients<T> &c) {
    g = decay_gradient(g, p, c);
    p = multiply_add(-c.lr, g, p);
  }
};

template <bool Nesterov>
struct SgdMomentum : SgdRule {
  static constexpr int kStates = 1;
  static constexpr bool kNeedsMomentum = true;
  static constexpr uint32_t kFlag = Nesterov ? GSC_OPTIMIZER_NESTEROV : 0;
  static constexpr bool kInBatches = !Nesterov;
  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    g = decay_gradient(g, p, c);
    const T buffer = multiply_add(c.grad_weight, g, c.momentum * state[0]);
    state[0] = buffer;
    p = multiply_add(-c.lr, Nesterov ? multiply_add(c.momentum, buffer, g) : buffer, p);
  }
};

}  // namespace gsc::optim

/// X(variant, formula) of this file, from which scripts/gen-api makes the list of all.
#define GSC_SGD_FORMULAS(X)                  \
  X(kSgd, optim::Sgd)                        \
  X(kSgdMomentum, optim::SgdMomentum<false>) \
  X(kSgdNesterov, optim::SgdMomentum<true>)
