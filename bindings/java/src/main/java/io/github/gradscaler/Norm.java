// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Norms over all elements of all tensors of a list. */
public enum Norm {
  /** Square root of the sum of squares. */
  L2(NativeCalls.NORM_L2),
  /** Largest magnitude. */
  INF(NativeCalls.NORM_INF);

  private final int code;

  Norm(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static Norm of(int code) {
    for (Norm value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no Norm " + code);
  }
}
