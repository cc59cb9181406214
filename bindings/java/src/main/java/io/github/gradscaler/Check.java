// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Checks that must happen before native code sees an argument. */
final class Check {
  private Check() {}

  static <T> T notNull(T value, String name) {
    if (value == null) {
      throw new InvalidArgumentException(name + " is null");
    }
    return value;
  }

  /** The proxy behind a public object, null after close. */
  static <T> T open(T handle, Class<?> type) {
    if (handle == null) {
      throw new BadStateException(type.getSimpleName() + " is closed");
    }
    return handle;
  }
}
