// SPDX-License-Identifier: Apache-2.0
// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675, algorithm 2).
// Cautious updates and decay as those of AdamW (adam.h).
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc::optim {

struct Lion {
  static constexpr Kind kKind = kinds::kLion;
  static constexpr int kStates = 1;
  static constexpr bool kInBatches = true;

  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t /*step*/) {
    return common_coefficients(h, lr, maximize);
  }

  template <typename T>
  GSC_HD static T rate(int /*slot*/, const Coefficients<T> &c) {
    return c.one_minus_beta2;
  }

  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    const T blend = c.beta1 * state[0] + c.one_minus_beta1 * g;
    const T direction = blend > T(0) ? T(1) : (blend < T(0) ? T(-1) : blend);  // sign(0) = 0, sign(NaN) = NaN
    const T update = c.lr * direction;
    p = decay_parameter(p, update, c) - cautious_update(update, g, c);
    state[0] = c.beta2 * state[0] + c.one_minus_beta2 * g;
  }
};

}  // namespace gsc::optim

/// X(variant, formula) of this file, from which scripts/gen-api makes the list of all.
#define GSC_LION_FORMULAS(X) X(kLion, optim::Lion)
