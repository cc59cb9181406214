// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Which clean step makes the scale grow; G is the growth interval. */
public enum GrowthTiming {
  /** The G-th in a row, then every G (PyTorch and most others). */
  AT_INTERVAL(NativeCalls.GROWTH_AT_INTERVAL),
  /** The (G+1)-th in a row, then every G+1 (Flax). */
  ONE_LATER(NativeCalls.GROWTH_ONE_LATER),
  /** The (G+1)-th in a row, then every G (DeepSpeed). */
  FIRST_ONE_LATER(NativeCalls.GROWTH_FIRST_ONE_LATER);

  private final int code;

  GrowthTiming(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static GrowthTiming of(int code) {
    for (GrowthTiming value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no GrowthTiming " + code);
  }
}
