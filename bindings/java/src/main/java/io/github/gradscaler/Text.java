// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Strings as C has them: UTF-8 with a zero at the end. JNI's own strings are neither. */
final class Text {
  private Text() {}

  static byte[] toNative(String text) {
    if (text == null) {
      return null;
    }
    if (text.indexOf('\0') >= 0) {
      throw new InvalidArgumentException("a name has a zero character in it");
    }
    final byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return Arrays.copyOf(bytes, bytes.length + 1);
  }

  static String fromNative(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
