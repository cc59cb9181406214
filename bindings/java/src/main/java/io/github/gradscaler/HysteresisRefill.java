// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** When the hysteresis counter is filled up again. */
public enum HysteresisRefill {
  /** When the scale grows (Megatron-LM, DeepSpeed, ColossalAI). */
  ON_GROWTH(NativeCalls.REFILL_ON_GROWTH),
  /** On every step without overflow (Apex). */
  ON_CLEAN_STEP(NativeCalls.REFILL_ON_CLEAN_STEP),
  /** On every step without overflow and after every backoff (Paddle). */
  CONSECUTIVE(NativeCalls.REFILL_CONSECUTIVE);

  private final int code;

  HysteresisRefill(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static HysteresisRefill of(int code) {
    for (HysteresisRefill value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no HysteresisRefill " + code);
  }
}
