// SPDX-License-Identifier: Apache-2.0
// RMSprop (Tieleman and Hinton 2012; centered: Graves 2013, arXiv:1308.0850), as torch.optim.RMSprop. `eps_root` stands
// inside the root, as TensorFlow's and Keras's epsilon, `eps` outside. Operations stand in PyTorch's order, so that both
// round alike. Centered, there is a momentum buffer in any case: it is rare, and one formula less is compiled.
#pragma once

#include "core/rules/optim/adagrad.h"

namespace gsc::optim {

struct RmspropRule {
  static constexpr Kind kKind = {
      GSC_RMSPROP,
      "RMSprop",
      {.lr = 1e-2, .eps = 1e-8, .alpha = 0.99},
      {{"square_avg", Slot::kSecondMoment}, {"momentum_buffer", Slot::kMoment}, {"grad_avg", Slot::kMoment}}};

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t /*step*/) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    c.beta2 = h.alpha;
    c.one_minus_beta2 = 1.0 - h.alpha;
    return c;
  }
};

struct Rmsprop : RmspropRule {
  using Sweep = Adagrad;
  static constexpr int kStates = 1;

  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return Adagrad::rate(slot, c);
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    Adagrad::update(p, state, g, c);
  }
};

template <bool Centered>
struct RmspropMomentum : RmspropRule {
  static constexpr int kStates = Centered ? 3 : 2;
  static constexpr bool kNeedsMomentum = !Centered;
  static constexpr uint32_t kFlag = Centered ? GSC_OPTIMIZER_CENTERED : 0;

  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return slot == 1 ? T(1) - c.momentum : c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    g = decay_gradient(g, p, c);
    T square = multiply_add(c.one_minus_beta2 * g, g, c.beta2 * state[0]);
    state[0] = square;
    if constexpr (Centered) {
      const T mean = interpolate(state[2], g, c.one_minus_beta2);
      state[2] = mean;
      square = multiply_add(-mean, mean, square);
    }
    const T root = square_root(square + c.eps_root) + c.eps;
    // Without momentum, PyTorch multiplies by the learning rate before the division, and there is no buffer.
    const bool has_momentum = c.momentum != T(0);
    const T quotient = (has_momentum ? g : c.lr * g) / root;
    const T buffer = c.momentum * state[1] + quotient;
    state[1] = has_momentum ? buffer : state[1];
    p = has_momentum ? multiply_add(-c.lr, buffer, p) : p - quotient;
  }
};

}  // namespace gsc::optim
