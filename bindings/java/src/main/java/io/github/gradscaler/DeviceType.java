// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Kinds of device. */
public enum DeviceType {
  /** The host's processors. */
  CPU(NativeCalls.DEVICE_CPU),
  /** An NVIDIA GPU. */
  CUDA(NativeCalls.DEVICE_CUDA);

  private final int code;

  DeviceType(int code) {
    this.code = code;
  }

  int code() {
    return code;
  }

  static DeviceType of(int code) {
    for (DeviceType value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no DeviceType " + code);
  }
}
