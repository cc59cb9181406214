// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Numbers for one call, one per tensor. */
final class Numbers {
  private Numbers() {}

  static NativeNumbers of(long[] values) {
    final NativeNumbers numbers = new NativeNumbers(values.length);
    for (int i = 0; i < values.length; i++) {
      numbers.set(i, values[i]);
    }
    return numbers;
  }

  static long[] array(NativeNumbers numbers) {
    final long[] values = new long[Math.toIntExact(numbers.count())];
    for (int i = 0; i < values.length; i++) {
      values[i] = numbers.get(i);
    }
    return values;
  }
}
