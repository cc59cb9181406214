// SPDX-License-Identifier: Apache-2.0
// Schedule-Free AdamW and SGD (Defazio et al. 2024, arXiv:2405.15682), as the package schedulefree 1.4. Gradients are
// taken at the parameters y, steps are made from z, which is state, and the weights to evaluate are x, the weighted mean
// of all z. x is on the line through y and z: y = beta x + (1 - beta) z. So a switch to x and back is one interpolation
// towards z, which reads z and writes the parameters alone. The sums of the weights are state of each tensor: then
// checkpoints, state lists and absent tensors need no rule for them. z begins as the parameter at a tensor's first step.
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc::optim {

struct ScheduleFree {
  static constexpr bool kAverages = true;
  enum Own : int32_t {
    kToState,  ///< how far the parameters move towards the state
    kOwnCount
  };

  /// `beta`: the share of x in y.
  GSC_HD static Coefficients<double> average(const Hyper &h, double beta, bool maximize, int64_t step,
                                             const Averaging &a) {
    Coefficients<double> c = common_coefficients(h, a.lr, maximize);
    c.first = step == 1 ? 1.0 : 0.0;
    c.own[kToState] = a.part;
    c.lr_of_gradient = a.lr * (beta * (1.0 - a.part) - 1.0);
    if (a.phase == Phase::kStep) return c;
    c.evaluates = 1.0;
    c.own[kToState] = a.phase == Phase::kToAverage ? 1.0 - 1.0 / beta : 1.0 - beta;
    if (step == 0) c.own[kToState] = 0.0;
    return c;
  }

  /// y as x, or x as y. What has no average stays as it is, for the way back: weights without a step, and those that are
  /// not finite or whose z is not. So does a weight that is z, and with it the sign of 0.
  template <typename T>
  GSC_HD static T evaluated(T p, T z, const Coefficients<T> &c) {
    const T part = c.own[kToState];
    const bool near = (part < T(0) ? -part : part) < T(0.5);  // as torch.lerp
    const T moved = multiply_add(near ? part : part - T(1), z - p, near ? p : z);
    const bool has_average = part != T(0) && z != p && is_finite(p) && is_finite(z);
    return has_average ? moved : p;
  }

  /// z and y after a step in direction d, which is taken from y.
  template <typename T>
  GSC_HD static void move(T &p, T &z, T d, const Coefficients<T> &c) {
    const T from = c.first != T(0) ? p : z;
    const T next = multiply_add(c.lr_of_gradient, d, interpolate(p, from, c.own[kToState]));
    const T moved = multiply_add(-c.lr, d, from);
    p = c.evaluates != T(0) ? evaluated(p, z, c) : next;
    z = c.evaluates != T(0) ? z : moved;
  }
};

struct ScheduleFreeAdamW : ScheduleFree {
  static constexpr Kind kKind = kinds::kAdamWScheduleFree;
  static constexpr int kStates = 2;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double /*lr*/, bool maximize, int64_t step,
                                                  const Averaging &a) {
    Coefficients<double> c = average(h, h.beta1, maximize, step, a);
    c.bias2 = a.phase == Phase::kStep ? 1.0 - power(h.beta2, step) : 1.0;
    return c;
  }

  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return slot == 0 ? T(1) : c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    const T v = multiply_add(c.one_minus_beta2 * g, g, c.beta2 * state[1]);
    state[1] = c.evaluates != T(0) ? state[1] : v;
    move(p, state[0], decay_gradient(g / (square_root(v / c.bias2) + c.eps), p, c), c);
  }
};

struct ScheduleFreeSgd : ScheduleFree {
  static constexpr Kind kKind = kinds::kSGDScheduleFree;
  static constexpr int kStates = 1;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double /*lr*/, bool maximize, int64_t step,
                                                  const Averaging &a) {
    return average(h, h.momentum, maximize, step, a);
  }

  template <typename T>
  GSC_HD static T rate(int /*slot*/, const Coefficients<T> & /*c*/) {
    return T(1);
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    move(p, state[0], decay_gradient(g, p, c), c);
  }
};

}  // namespace gsc::optim

/// X(variant, formula) of this file, from which scripts/gen-api makes the list of all.
#define GSC_SCHEDULE_FREE_FORMULAS(X)             \
  X(kAdamWScheduleFree, optim::ScheduleFreeAdamW) \
  X(kSgdScheduleFree, optim::ScheduleFreeSgd)
