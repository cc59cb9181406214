// SPDX-License-Identifier: Apache-2.0
// Optimizers that divide the gradient by the root of a sum or mean of its squares, as in torch.optim:
//   Adagrad (Duchi et al. 2011) with learning-rate decay;
//   RMSprop (Tieleman and Hinton 2012; centered: Graves 2013, arXiv:1308.0850). `eps_root` stands inside the root, as
//   TensorFlow's and Keras's epsilon, `eps` outside. Without momentum it is Adagrad's formula with a mean in place of the
//   sum: Adagrad's old sum and new square both count once;
//   Adadelta (Zeiler 2012, arXiv:1212.5701).
// Operations stand in PyTorch's order, so that both round alike.
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc::optim {

struct Adagrad {
  static constexpr Kind kKind = kinds::kAdagrad;
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

struct RmspropRule {
  static constexpr Kind kKind = kinds::kRMSprop.with(0, false);

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

/// The root of the mean of squares less the square of the mean. Both means are kept in full: rounded, their difference
/// would often be 0 or below, and the step without bound.
template <typename T>
GSC_HD T deviation_of(T &mean, T square, T g, const Coefficients<T> &c) {
  mean = interpolate(mean, g, c.one_minus_beta2);
  const T variance = multiply_add(-mean, mean, square);
  const T positive = variance < T(0) ? T(0) : variance;  // of rounded means; PyTorch would make NaN of it
  return square_root(positive + c.eps_root) + c.eps;
}

struct RmspropCentered : RmspropRule {
  static constexpr Kind kKind = kinds::kRMSprop.with(GSC_OPTIMIZER_CENTERED, false);
  static constexpr int kStates = 2;
  static constexpr uint32_t kFlag = GSC_OPTIMIZER_CENTERED;

  template <typename T>
  GSC_HD static T rate(int /*slot*/, const Coefficients<T> &c) {
    return c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    g = decay_gradient(g, p, c);
    const T square = multiply_add(c.one_minus_beta2 * g, g, c.beta2 * state[0]);
    state[0] = square;
    p = p - (c.lr * g) / deviation_of(state[1], square, g, c);
  }
};

template <bool Centered>
struct RmspropMomentum : RmspropRule {
  static constexpr Kind kKind = kinds::kRMSprop.with(Centered ? GSC_OPTIMIZER_CENTERED : 0, true);
  static constexpr int kStates = Centered ? 3 : 2;
  static constexpr bool kNeedsMomentum = true;
  static constexpr uint32_t kFlag = Centered ? GSC_OPTIMIZER_CENTERED : 0;

  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return slot == 1 ? T(1) - c.momentum : c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    g = decay_gradient(g, p, c);
    const T square = multiply_add(c.one_minus_beta2 * g, g, c.beta2 * state[0]);
    state[0] = square;
    T root;
    if constexpr (Centered) {
      root = deviation_of(state[2], square, g, c);
    } else {
      root = square_root(square + c.eps_root) + c.eps;
    }
    // Without momentum, PyTorch multiplies by the learning rate before the division, and there is no buffer.
    const bool has_momentum = c.momentum != T(0);
    const T quotient = (has_momentum ? g : c.lr * g) / root;
    const T buffer = c.momentum * state[1] + quotient;
    state[1] = has_momentum ? buffer : state[1];
    p = has_momentum ? multiply_add(-c.lr, buffer, p) : p - quotient;
  }
};

struct Adadelta {
  static constexpr Kind kKind = kinds::kAdadelta;
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

/// X(variant, formula) of this file, from which scripts/gen-api makes the list of all.
#define GSC_ADAGRAD_FORMULAS(X)                             \
  X(kAdagrad, optim::Adagrad)                               \
  X(kRmsprop, optim::Rmsprop)                               \
  X(kRmspropMomentum, optim::RmspropMomentum<false>)        \
  X(kRmspropCentered, optim::RmspropCentered)               \
  X(kRmspropCenteredMomentum, optim::RmspropMomentum<true>) \
  X(kAdadelta, optim::Adadelta)
