// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** A recommended loss scale. From {@link Diagnosis#recommend}. */
public final class Recommendation {
  private final float scale;
  private final double flushed;

  Recommendation(NativeRecommendation from) {
    scale = from.getScale();
    flushed = from.getFlushed();
  }

  /** The largest power of two that leaves two binades of room. */
  public float scale() {
    return scale;
  }

  /** Share (0 to 1) of the values that would still be lost at that scale. */
  public double flushed() {
    return flushed;
  }
}
