// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba 2015, arXiv:1412.6980) and AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101), both with
// AMSGrad (Reddi et al. 2018), as torch.optim.Adam and AdamW: the only difference is where weight decay enters.
// Operations stand in PyTorch's order, so that both round alike. Cautious updates and decay are those of Liang et al. 2024
// (arXiv:2411.16085), without its scaling, and Chen et al. 2025 (arXiv:2510.12402).
#pragma once

#include "core/rules/optim/coefficients.h"
#include "core/rules/optim/kinds.h"

namespace gsc::optim {

struct AdamRule {
  GSC_HD static Coefficients<double> coefficients(const Hyper &h, double lr, bool maximize, int64_t step) {
    Coefficients<double> c = common_coefficients(h, lr, maximize);
    c.lr = lr / (1.0 - power(h.beta1, step));
    c.sqrt_bias2 = square_root(1.0 - power(h.beta2, step));
    return c;
  }
  template <typename T>
  GSC_HD static T rate(int slot, const Coefficients<T> &c) {
    return slot == 0 ? c.one_minus_beta1 : (slot == 1 ? c.one_minus_beta2 : T(1));
  }
};

template <bool Decoupled, bool Amsgrad>
struct AdamFamily : AdamRule {
  static constexpr Kind kKind =
      (Decoupled ? kinds::kAdamW : kinds::kAdam).with(Amsgrad ? GSC_OPTIMIZER_AMSGRAD : 0, false);
  static constexpr int kStates = Amsgrad ? 3 : 2;
  static constexpr uint32_t kFlag = Amsgrad ? GSC_OPTIMIZER_AMSGRAD : 0;
  static constexpr bool kInBatches = !Amsgrad;
  template <typename T>
  GSC_HD static void update(T &p, T *state, T g, const Coefficients<T> &c) {
    if constexpr (!Decoupled) g = decay_gradient(g, p, c);
    const T m = interpolate(state[0], g, c.one_minus_beta1);
    T v = multiply_add(c.one_minus_beta2 * g, g, c.beta2 * state[1]);
    state[0] = m;
    state[1] = v;
    if constexpr (Amsgrad) {
      v = v <= state[2] ? state[2] : v;  // a NaN is kept
      state[2] = v;
    }
    const T update = (c.lr * m) / (square_root(v) / c.sqrt_bias2 + c.eps);
    const T weight = Decoupled ? decay_parameter(p, update, c) : p;
    p = weight - cautious_update(update, g, c);
  }
};

using Adam = AdamFamily<false, false>;
using AdamAmsgrad = AdamFamily<false, true>;
using AdamW = AdamFamily<true, false>;
using AdamWAmsgrad = AdamFamily<true, true>;

}  // namespace gsc::optim

/// X(variant, formula) of this file, from which scripts/gen-api makes the list of all.
#define GSC_ADAM_FORMULAS(X)          \
  X(kAdam, optim::Adam)               \
  X(kAdamAmsgrad, optim::AdamAmsgrad) \
  X(kAdamW, optim::AdamW)             \
  X(kAdamWAmsgrad, optim::AdamWAmsgrad)
