// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** One update in the history of a {@link GradScaler}. */
public final class HistoryEntry {
  // gen-api: values gsc_history_entry
  private final long update;
  private final double gradNorm;
  private final long nonfiniteCount;
  private final float scale;
  private final boolean overflow;

  HistoryEntry(NativeHistoryEntry from) {
    update = from.getUpdate();
    gradNorm = from.getGradNorm();
    nonfiniteCount = from.getNonfiniteCount();
    scale = from.getScale();
    overflow = from.getOverflow() != 0;
  }

  /**
   * Number of the update, counted from 0, including those of a restored state.
   *
   * @return the value
   */
  public long update() {
    return update;
  }

  /**
   * L2 norm of the unscaled gradients of all its lists.
   *
   * @return the value
   */
  public double gradNorm() {
    return gradNorm;
  }

  /**
   * Number of non-finite gradients in all its lists.
   *
   * @return the value
   */
  public long nonfiniteCount() {
    return nonfiniteCount;
  }

  /**
   * The scale after that update.
   *
   * @return the value
   */
  public float scale() {
    return scale;
  }

  /**
   * Whether that update found an overflow.
   *
   * @return the value
   */
  public boolean overflow() {
    return overflow;
  }
  // gen-api: end
}
