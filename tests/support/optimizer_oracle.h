// SPDX-License-Identifier: Apache-2.0
//
// Double-precision reference of one optimizer step, written from the papers and the definitions of torch.optim, which
// also bounds the error that an honest fp32 evaluation can have: every quantity carries its value and a running error
// bound (Wilkinson), where each operation adds one rounding of the arithmetic type. A result is right if it lies
// within that bound. So no tolerance is guessed, and cancellation in a moment is neither punished nor used to hide.
#ifndef GRADSCALER_TESTS_SUPPORT_OPTIMIZER_ORACLE_H
#define GRADSCALER_TESTS_SUPPORT_OPTIMIZER_ORACLE_H
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tests/support/dtypes.h"

namespace gsc_test {

/// A number with a bound on the distance of a value computed in lower precision. `unit` is half an ulp at 1 of the
/// arithmetic type; `tiny` covers results that are subnormal there.
struct Real {
  double v = 0.0;
  double e = 0.0;
};

class Arithmetic {
 public:
  explicit Arithmetic(int32_t dtype)
      : unit_(std::ldexp(1.0, -format_of(dtype).precision)), tiny_(format_of(dtype).min_subnormal()) {}
  Real exact(double value) const { return {value, 0.0}; }
  /// A hyper-parameter or host-side scalar, narrowed once to the arithmetic type.
  Real constant(double value) const { return {value, std::fabs(value) * unit_}; }
  Real add(Real a, Real b) const { return rounded(a.v + b.v, a.e + b.e); }
  Real sub(Real a, Real b) const { return rounded(a.v - b.v, a.e + b.e); }
  Real mul(Real a, Real b) const { return rounded(a.v * b.v, std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e); }
  Real div(Real a, Real b) const {
    const double low = std::max(std::fabs(b.v) - b.e, std::fabs(b.v) * 0.5);
    return rounded(a.v / b.v, (a.e + std::fabs(a.v / b.v) * b.e) / low);
  }
  Real sqrt(Real a) const {
    const double root = std::sqrt(std::max(a.v, 0.0));
    return rounded(root, root > 0.0 ? std::min(a.e / root, std::sqrt(a.e)) : std::sqrt(a.e));
  }
  Real max(Real a, Real b) const { return {std::max(a.v, b.v), std::max(a.e, b.e)}; }
  /// If the sign of `a` is within its error either sign is right.
  Real sign(Real a) const {
    const double s = a.v > 0.0 ? 1.0 : (a.v < 0.0 ? -1.0 : 0.0);
    return {s, a.e > 0.0 && std::fabs(a.v) <= a.e ? 2.0 : 0.0};
  }

 private:
  Real rounded(double value, double error) const { return {value, error + std::fabs(value) * unit_ + tiny_}; }
  double unit_;
  double tiny_;
};

/// What one element is before and after a step.
struct Element {
  Real param;
  std::array<Real, 3> state;  ///< of a slot with numbers per tensor the first
  double weight_sum = 0.0;    ///< the second number of `average`
};

inline bool is_schedule_free(int32_t kind) { return kind == GSC_ADAMW_SCHEDULE_FREE || kind == GSC_SGD_SCHEDULE_FREE; }
/// Numbers per tensor of a slot; 0 for one number per element.
inline int64_t numbers_of(int32_t kind, int32_t slot) {
  if (kind == GSC_NOVOGRAD && slot == 1) return 1;
  return (kind == GSC_ADAMW_SCHEDULE_FREE && slot == 2) || (kind == GSC_SGD_SCHEDULE_FREE && slot == 1) ? 2 : 0;
}
/// Elements of a slot's tensor.
inline int64_t slot_count(int32_t kind, int32_t slot, int64_t count) {
  return numbers_of(kind, slot) > 0 ? numbers_of(kind, slot) : count;
}

/// State slots that a kind with these options has.
inline int state_slots(const gsc_optimizer_options &o) {
  switch (o.kind) {
    case GSC_SGD:
      return o.momentum != 0.0 ? 1 : 0;
    case GSC_ADAM:
    case GSC_ADAMW:
      return (o.flags & GSC_OPTIMIZER_AMSGRAD) != 0 ? 3 : 2;
    case GSC_ADAGRAD:
    case GSC_LION:
    case GSC_LARS:
      return 1;
    case GSC_RMSPROP:
      return (o.flags & GSC_OPTIMIZER_CENTERED) != 0 ? 3 : (o.momentum != 0.0 ? 2 : 1);
    case GSC_ADEMAMIX:
    case GSC_ADAMW_SCHEDULE_FREE:
      return 3;
    default:
      return 2;
  }
}

class OptimizerOracle {
 public:
  /// `step` is the number of the step to be made, counted from 1.
  OptimizerOracle(const gsc_optimizer_options &options, int32_t arithmetic, int64_t step)
      : o_(options), f_(arithmetic), step_(static_cast<double>(step)) {}

  /// Steps one tensor: `elements` holds params and state, `grads` the unscaled and clipped gradients with their errors.
  void step(std::vector<Element> &elements, const std::vector<Real> &grads) const {
    if (is_schedule_free(o_.kind)) {
      for (size_t i = 0; i < elements.size(); ++i) schedule_free(elements[i], signed_gradient(grads[i]));
      return;
    }
    if (o_.kind == GSC_LARS || o_.kind == GSC_NOVOGRAD) return layerwise(elements, grads);
    std::vector<Real> updates(elements.size());
    for (size_t i = 0; i < elements.size(); ++i) updates[i] = update(elements[i], grads[i]);
    const Real ratio = o_.kind == GSC_LAMB ? trust_ratio(elements, updates) : f_.exact(1.0);
    for (size_t i = 0; i < elements.size(); ++i) {
      Real change = f_.mul(rate(), updates[i]);
      if (o_.kind == GSC_LAMB) change = f_.mul(ratio, change);
      elements[i].param = f_.sub(elements[i].param, change);
    }
  }

 private:
  Real signed_gradient(Real g) const { return has(GSC_OPTIMIZER_MAXIMIZE) ? Real{-g.v, g.e} : g; }
  /// schedulefree's step, from y in `param` and z in state[0].
  void schedule_free(Element &element, Real g) const {
    const bool is_adamw = o_.kind == GSC_ADAMW_SCHEDULE_FREE;
    const double beta = is_adamw ? o_.beta1 : o_.momentum, warmup = static_cast<double>(o_.warmup_steps);
    const double lr = o_.lr * (step_ < warmup ? step_ / warmup : 1.0);
    Real &average = element.state[is_adamw ? 2 : 1];
    average.v = std::max(average.v, lr);
    average.e = average.v * 1e-12;
    const double weight = std::pow(step_, o_.weight_step_power) * std::pow(average.v, o_.weight_lr_power);
    element.weight_sum += weight;
    const double part = element.weight_sum > 0.0 ? weight / element.weight_sum : 0.0;
    const Real z = step_ == 1.0 ? element.param : element.state[0];
    if (is_adamw) {
      element.state[1] = moment(element.state[1], f_.mul(g, g), o_.beta2);
      g = f_.div(g, f_.add(f_.sqrt(corrected(element.state[1], o_.beta2)), f_.constant(o_.eps)));
    }
    const Real direction = decayed(g, element.param);
    const Real moved = f_.add(element.param, f_.mul(f_.constant(part), f_.sub(z, element.param)));
    element.param = f_.add(moved, f_.mul(f_.constant(lr * (beta * (1.0 - part) - 1.0)), direction));
    element.state[0] = f_.sub(z, f_.mul(f_.constant(lr), direction));
  }
  void layerwise(std::vector<Element> &elements, const std::vector<Real> &grads) const {
    const bool is_lars = o_.kind == GSC_LARS, decoupled = has(GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY);
    std::vector<Real> directions(elements.size());
    double params = 0.0, squares = 0.0, error = 0.0;
    for (size_t i = 0; i < elements.size(); ++i) {
      const Real g = signed_gradient(grads[i]);
      directions[i] = is_lars ? decayed(g, elements[i].param) : g;
      params += elements[i].param.v * elements[i].param.v;
      squares += directions[i].v * directions[i].v;
      error += directions[i].e * directions[i].e;
    }
    const double off = (squares > 0.0 ? std::sqrt(error / squares) : 0.0) + 2e-5;
    double ratio = 1.0;
    if (is_lars && params > 0.0 && squares > 0.0) {
      ratio = o_.trust_coefficient * std::sqrt(params) / (std::sqrt(squares) + o_.eps);
    }
    double lr = o_.lr;
    if (!is_lars) {
      double bias2 = 1.0;
      if (has(GSC_OPTIMIZER_BIAS_CORRECTION)) {
        lr /= 1.0 - std::pow(o_.beta1, step_);
        bias2 = 1.0 - std::pow(o_.beta2, step_);
      }
      const double old = elements.empty() ? 0.0 : elements[0].state[1].v;
      const double v = step_ == 1.0 ? squares : o_.beta2 * old + (1.0 - o_.beta2) * squares;
      for (Element &element : elements) element.state[1] = {v, 2.0 * off * v};
      ratio = 1.0 / (std::sqrt(v / bias2) + o_.eps);
    }
    const Real factor = {ratio, ratio * off};
    for (size_t i = 0; i < elements.size(); ++i) {
      Element &element = elements[i];
      Real &buffer = element.state[0];
      if (is_lars) {
        const Real added = f_.mul(f_.constant(lr), f_.mul(factor, directions[i]));
        buffer = f_.add(f_.mul(f_.constant(o_.momentum), buffer), added);
        const bool ahead = has(GSC_OPTIMIZER_NESTEROV);
        element.param = f_.sub(element.param, ahead ? f_.add(added, f_.mul(f_.constant(o_.momentum), buffer)) : buffer);
        continue;
      }
      const Real term = decoupled ? directions[i] : decayed(f_.mul(factor, directions[i]), element.param);
      buffer = f_.add(f_.mul(f_.constant(o_.beta1), buffer), f_.mul(f_.constant(1.0 - o_.dampening), term));
      if (decoupled) element_decay(element);
      const Real step = decoupled ? f_.mul(factor, buffer) : buffer;
      element.param = f_.sub(element.param, f_.mul(f_.constant(lr), step));
    }
  }
  bool has(uint32_t flag) const { return (o_.flags & flag) != 0; }
  Real rate() const {
    if (o_.kind == GSC_ADAGRAD) return f_.constant(o_.lr / (1.0 + (step_ - 1.0) * o_.lr_decay));
    return f_.constant(o_.lr);
  }
  Real moment(Real old, Real now, double beta) const {
    return f_.add(f_.mul(f_.constant(beta), old), f_.mul(f_.constant(1.0 - beta), now));
  }

  /// The direction that the learning rate multiplies; advances the element's state.
  Real update(Element &element, Real g) const {
    if (has(GSC_OPTIMIZER_MAXIMIZE)) g.v = -g.v;
    if (has(GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY)) {
      element_decay(element);
    } else if (o_.kind != GSC_ADAMW && o_.kind != GSC_LION && o_.kind != GSC_LAMB && o_.kind != GSC_ADEMAMIX) {
      g = decayed(g, element.param);
    }
    switch (o_.kind) {
      case GSC_SGD:
        return sgd(element, g);
      case GSC_ADAM:
        return adam(element, g);
      case GSC_ADAMW: {
        element_decay(element);
        return adam(element, g);
      }
      case GSC_ADAGRAD:
        return adagrad(element, g);
      case GSC_LION:
        return lion(element, g);
      case GSC_RMSPROP:
        return rmsprop(element, g);
      case GSC_ADADELTA:
        return adadelta(element, g);
      case GSC_ADAMAX:
        return adamax(element, g);
      case GSC_NADAM:
        return nadam(element, g);
      case GSC_RADAM:
        return radam(element, g);
      case GSC_ADABELIEF:
        return adabelief(element, g);
      case GSC_ADEMAMIX:
        element_decay(element);
        return ademamix(element, g);
      default:
        return decayed(adam(element, g), element.param);
    }
  }

  Real decayed(Real g, Real param) const {
    return o_.weight_decay == 0.0 ? g : f_.add(g, f_.mul(f_.constant(o_.weight_decay), param));
  }
  void element_decay(Element &element) const {
    element.param = f_.mul(element.param, f_.constant(1.0 - o_.lr * o_.weight_decay));
  }
  Real sgd(Element &element, Real g) const {
    if (o_.momentum == 0.0) return g;
    Real &buffer = element.state[0];
    const Real momentum = f_.constant(o_.momentum);
    // torch.optim.SGD: the first gradient enters the buffer without dampening.
    buffer = step_ == 1.0 ? g : f_.add(f_.mul(momentum, buffer), f_.mul(f_.constant(1.0 - o_.dampening), g));
    return has(GSC_OPTIMIZER_NESTEROV) ? f_.add(g, f_.mul(momentum, buffer)) : buffer;
  }
  Real adam(Element &element, Real g) const {
    Real &m = element.state[0];
    Real &v = element.state[1];
    m = moment(m, g, o_.beta1);
    v = moment(v, f_.mul(g, g), o_.beta2);
    Real square = v;
    if (has(GSC_OPTIMIZER_AMSGRAD)) square = element.state[2] = f_.max(element.state[2], v);
    const Real m_hat = f_.div(m, f_.constant(1.0 - std::pow(o_.beta1, step_)));
    const Real v_hat = f_.div(square, f_.constant(1.0 - std::pow(o_.beta2, step_)));
    return f_.div(m_hat, f_.add(f_.sqrt(v_hat), f_.constant(o_.eps)));
  }
  Real adagrad(Element &element, Real g) const {
    Real &sum = element.state[0];
    sum = f_.add(sum, f_.mul(g, g));
    return f_.div(g, f_.add(f_.sqrt(sum), f_.constant(o_.eps)));
  }
  Real lion(Element &element, Real g) const {
    Real &m = element.state[0];
    const Real direction = f_.sign(moment(m, g, o_.beta1));
    m = moment(m, g, o_.beta2);
    return decayed(direction, element.param);
  }
  Real rmsprop(Element &element, Real g) const {
    Real &square = element.state[0];
    square = moment(square, f_.mul(g, g), o_.alpha);
    Real variance = square;
    if (has(GSC_OPTIMIZER_CENTERED)) {
      Real &mean = element.state[2];
      mean = moment(mean, g, o_.alpha);
      variance = f_.sub(square, f_.mul(mean, mean));
    }
    const Real root = f_.add(f_.sqrt(f_.add(variance, f_.constant(o_.eps_root))), f_.constant(o_.eps));
    const Real direction = f_.div(g, root);
    if (o_.momentum == 0.0) return direction;
    Real &buffer = element.state[1];
    return buffer = f_.add(f_.mul(f_.constant(o_.momentum), buffer), direction);
  }
  Real adadelta(Element &element, Real g) const {
    const Real eps = f_.constant(o_.eps);
    element.state[0] = moment(element.state[0], f_.mul(g, g), o_.rho);
    const Real step = f_.sqrt(f_.add(element.state[1], eps));
    const Real delta = f_.mul(f_.div(step, f_.sqrt(f_.add(element.state[0], eps))), g);
    element.state[1] = moment(element.state[1], f_.mul(delta, delta), o_.rho);
    return delta;
  }
  Real adamax(Element &element, Real g) const {
    element.state[0] = moment(element.state[0], g, o_.beta1);
    const Real magnitude = f_.add({std::fabs(g.v), g.e}, f_.constant(o_.eps));
    element.state[1] = f_.max(f_.mul(f_.constant(o_.beta2), element.state[1]), magnitude);
    return f_.div(corrected(element.state[0], o_.beta1), element.state[1]);
  }
  Real nadam(Element &element, Real g) const {
    const auto momentum = [&](double step) {
      return o_.beta1 * (1.0 - 0.5 * std::pow(0.96, step * o_.momentum_decay));
    };
    double product = 1.0;
    for (double i = 1.0; i <= step_; ++i) product *= momentum(i);
    const double next = momentum(step_ + 1.0);
    const Real root = second_root(element, g);
    // PyTorch rounds the product to fp32 at each step.
    const double single = product * step_ * 0x1p-24;
    const auto weight = [&](double numerator, double complement, double error) {
      Real found = f_.constant(numerator / complement);
      found.e += std::fabs(found.v) * error / complement;
      return found;
    };
    const Real of_gradient = weight(1.0 - momentum(step_), 1.0 - product, single);
    const Real of_moment = weight(next, 1.0 - product * next, single * next);
    return f_.add(f_.div(f_.mul(of_gradient, g), root), f_.div(f_.mul(of_moment, element.state[0]), root));
  }
  Real radam(Element &element, Real g) const {
    const double power = std::pow(o_.beta2, step_);
    const double most = 2.0 / (1.0 - o_.beta2) - 1.0;
    const double length = most - 2.0 * step_ * power / (1.0 - power);
    element.state[0] = moment(element.state[0], g, o_.beta1);
    element.state[1] = moment(element.state[1], f_.mul(g, g), o_.beta2);
    const Real mean = corrected(element.state[0], o_.beta1);
    if (length <= 5.0) return mean;
    const double r = std::sqrt((length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length));
    const Real root = f_.add(f_.sqrt(element.state[1]), f_.constant(o_.eps));
    return f_.mul(f_.mul(mean, f_.div(f_.constant(std::sqrt(1.0 - power)), root)), f_.constant(r));
  }
  Real adabelief(Element &element, Real g) const {
    element.state[0] = moment(element.state[0], g, o_.beta1);
    const Real surprise = f_.sub(g, element.state[0]);
    element.state[1] = f_.add(moment(element.state[1], f_.mul(surprise, surprise), o_.beta2), f_.constant(o_.eps_root));
    return f_.div(corrected(element.state[0], o_.beta1),
                  f_.add(f_.sqrt(corrected(element.state[1], o_.beta2)), f_.constant(o_.eps)));
  }
  Real ademamix(Element &element, Real g) const {
    const auto part = [&](int64_t warmup) {
      return static_cast<double>(warmup) > step_ ? step_ / static_cast<double>(warmup) : 1.0;
    };
    const double alpha = o_.alpha * part(o_.warmup_steps);
    const double fast = std::log(o_.beta1), slow = std::log(o_.beta3), way = part(o_.beta3_warmup);
    const double log_beta3 =
        way < 1.0 ? fast * slow / ((1.0 - way) * slow + way * fast) : slow;  // the paper's equation
    const Real root = second_root(element, g);
    element.state[2] = f_.add(f_.mul(f_.constant(std::exp(log_beta3)), element.state[2]),
                              f_.mul(f_.constant(-std::expm1(log_beta3)), g));
    return f_.div(f_.add(corrected(element.state[0], o_.beta1), f_.mul(f_.constant(alpha), element.state[2])), root);
  }
  /// Advances both moments; sqrt(v / (1 - beta2^t)) + eps.
  Real second_root(Element &element, Real g) const {
    element.state[0] = moment(element.state[0], g, o_.beta1);
    element.state[1] = moment(element.state[1], f_.mul(g, g), o_.beta2);
    return f_.add(f_.sqrt(corrected(element.state[1], o_.beta2)), f_.constant(o_.eps));
  }
  Real corrected(Real mean, double beta) const { return f_.div(mean, f_.constant(1.0 - std::pow(beta, step_))); }
  /// |param| / |update| over the tensor, 1 if either is 0. The sums may go on in a wider type, but each term has its
  /// element's error, and a tile of them may be added in fp32 (see kNormTolerance).
  Real trust_ratio(const std::vector<Element> &elements, const std::vector<Real> &updates) const {
    double params = 0.0, steps = 0.0, error = 0.0;
    for (size_t i = 0; i < elements.size(); ++i) {
      params += elements[i].param.v * elements[i].param.v;
      steps += updates[i].v * updates[i].v;
      error += updates[i].e * updates[i].e;
    }
    if (params == 0.0 || steps == 0.0) return f_.exact(1.0);
    const double ratio = std::sqrt(params / steps);
    return {ratio, ratio * (std::sqrt(error / steps) + 2e-5)};
  }

  gsc_optimizer_options o_;
  Arithmetic f_;
  double step_;
};

}  // namespace gsc_test
#endif
