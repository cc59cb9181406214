// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Kinds of optimizer. */
public enum OptimizerKind {
  /** Stochastic gradient descent, with momentum if that is not 0. */
  SGD(NativeCalls.SGD),
  /** Adam; weight decay is added to the gradient. */
  ADAM(NativeCalls.ADAM),
  /** Adam with decoupled weight decay. */
  ADAMW(NativeCalls.ADAMW),
  /** Adagrad. */
  ADAGRAD(NativeCalls.ADAGRAD),
  /** Lion (Chen et al. 2023). */
  LION(NativeCalls.LION),
  /** LAMB (You et al. 2020). */
  LAMB(NativeCalls.LAMB);

  private final int code;

  OptimizerKind(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static OptimizerKind of(int code) {
    for (OptimizerKind value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no OptimizerKind " + code);
  }
}
