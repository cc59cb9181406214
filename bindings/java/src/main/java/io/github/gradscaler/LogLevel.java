// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** How severe a message is. */
public enum LogLevel {
  /** Something failed. */
  ERROR(NativeCalls.LOG_ERROR),
  /** Something is probably wrong. */
  WARNING(NativeCalls.LOG_WARNING),
  /** Good to know. */
  INFO(NativeCalls.LOG_INFO);

  private final int code;

  LogLevel(int code) {
    this.code = code;
  }

  static LogLevel of(int code) {
    for (LogLevel value : values()) {
      if (value.code == code) {
        return value;
      }
    }
    throw new IllegalStateException("no LogLevel " + code);
  }
}
