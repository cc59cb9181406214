// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Element types. */
public enum DType {
  /** IEEE binary16. */
  FP16(NativeCalls.FP16, 2),
  /** bfloat16: the upper half of an IEEE binary32. */
  BF16(NativeCalls.BF16, 2),
  /** IEEE binary32. */
  FP32(NativeCalls.FP32, 4),
  /** IEEE binary64. */
  FP64(NativeCalls.FP64, 8);

  private final int code;
  private final int size;

  DType(int code, int size) {
    this.code = code;
    this.size = size;
  }

  /**
   * Bytes of one element.
   *
   * @return 2, 4 or 8
   */
  public int size() {
    return size;
  }

  int code() {
    return code;
  }

  static DType of(int code) {
    for (DType value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no DType " + code);
  }
}
