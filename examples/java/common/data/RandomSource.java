// SPDX-License-Identifier: Apache-2.0
package data;

/** splitmix64, and what is derived from it: the same numbers as in the example in C. */
public final class RandomSource {
  private long state;

  public RandomSource(long seed, long stream) {
    state = seed * 0x9E3779B97F4A7C15L + stream;
    state = next();
  }

  private long next() {
    state += 0x9E3779B97F4A7C15L;
    long z = state;
    z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
    z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
    return z ^ (z >>> 31);
  }

  private double unit() {
    return ((next() >>> 11) + 0.5) / 9007199254740992.0;
  }

  public int below(int bound) {
    return (int) Long.remainderUnsigned(next(), bound);
  }

  public float normal() {
    final double radius = Math.sqrt(-2.0 * Math.log(unit()));
    return (float) (radius * Math.cos(2 * Math.PI * unit()));
  }
}
