// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** What happens when an overflow meets a scale at the minimum. */
public enum FloorAction {
  /** The scale stays at the minimum. */
  CLAMP(NativeCalls.FLOOR_CLAMP),
  /** As CLAMP; after floorPatience consecutive skips the report says so. */
  REPORT(NativeCalls.FLOOR_REPORT),
  /** As REPORT; reading the report then throws {@link ScaleFloorException}. */
  ERROR(NativeCalls.FLOOR_ERROR);

  private final int code;

  FloorAction(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static FloorAction of(int code) {
    for (FloorAction value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no FloorAction " + code);
  }
}
