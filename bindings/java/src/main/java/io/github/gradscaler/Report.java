// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** What happened in an iteration. From {@link GradScaler#report()}. */
public final class Report {
  // gen-api: values gsc_report
  private final boolean overflow;
  private final boolean atFloor;
  private final boolean scaleUnderflow;
  private final boolean spike;
  private final boolean spikesPersist;
  private final float scale;
  private final int growthTracker;
  private final int hysteresisTracker;
  private final int consecutiveSkips;
  private final long updates;
  private final long skipped;
  private final double gradNorm;
  private final double gradAmax;
  private final long nonfiniteCount;
  private final long infCount;
  private final long nanCount;
  private final long firstTensor;
  private final long firstElement;
  private final long spikes;
  private final double normLimit;
  private final double normAverage;

  Report(NativeReport from) {
    overflow = (from.getFlags() & NativeCalls.REPORT_OVERFLOW) != 0;
    atFloor = (from.getFlags() & NativeCalls.REPORT_AT_FLOOR) != 0;
    scaleUnderflow = (from.getFlags() & NativeCalls.REPORT_SCALE_UNDERFLOW) != 0;
    spike = (from.getFlags() & NativeCalls.REPORT_SPIKE) != 0;
    spikesPersist = (from.getFlags() & NativeCalls.REPORT_SPIKES_PERSIST) != 0;
    scale = from.getScale();
    growthTracker = from.getGrowthTracker();
    hysteresisTracker = from.getHysteresisTracker();
    consecutiveSkips = from.getConsecutiveSkips();
    updates = from.getUpdates();
    skipped = from.getSkipped();
    gradNorm = from.getGradNorm();
    gradAmax = from.getGradAmax();
    nonfiniteCount = from.getNonfiniteCount();
    infCount = from.getInfCount();
    nanCount = from.getNanCount();
    firstTensor = from.getFirstTensor();
    firstElement = from.getFirstElement();
    spikes = from.getSpikes();
    normLimit = from.getNormLimit();
    normAverage = from.getNormAverage();
  }

  /** An inf or NaN was found: the step was, or will be, skipped. */
  public boolean overflow() {
    return overflow;
  }

  /**
   * The scale cannot be lowered further and floorPatience has run out (needs {@link FloorAction#REPORT} or {@link
   * FloorAction#ERROR}).
   */
  public boolean atFloor() {
    return atFloor;
  }

  /**
   * The scale is 0, or so small that 1 / scale is inf in fp32. Every gradient then counts as inf or NaN and every
   * step is skipped, until {@link GradScaler#setScale}. A warning is logged once: at the update on the CPU, by the
   * next call that reads the scale, a report, the history or the state on a GPU. A minScale prevents it.
   */
  public boolean scaleUnderflow() {
    return scaleUnderflow;
  }

  /** All gradients are finite and the norm is above normLimit: the step was, or will be, skipped. */
  public boolean spike() {
    return spike;
  }

  /** As many steps in a row as spikePatience were skipped for their norm (needs {@link SpikeAction#ERROR}). */
  public boolean spikesPersist() {
    return spikesPersist;
  }

  /** The scale now. */
  public float scale() {
    return scale;
  }

  /** Clean steps since the scale last changed. */
  public int growthTracker() {
    return growthTracker;
  }

  /** Overflows left before the scale backs off. */
  public int hysteresisTracker() {
    return hysteresisTracker;
  }

  /** Skipped updates in a row, the last one included; 0 if it was clean. */
  public int consecutiveSkips() {
    return consecutiveSkips;
  }

  /** Updates so far, including those of a restored state. */
  public long updates() {
    return updates;
  }

  /** How many of these found an overflow or a spike. */
  public long skipped() {
    return skipped;
  }

  /**
   * L2 norm of the unscaled gradients before clipping; inf or NaN if they overflowed. With a reducer, over all ranks.
   */
  public double gradNorm() {
    return gradNorm;
  }

  /** Largest magnitude of this rank's unscaled gradients. Gradients stored as inf or NaN do not count. */
  public double gradAmax() {
    return gradAmax;
  }

  /** Number of non-finite gradients; with a reducer, over all ranks. */
  public long nonfiniteCount() {
    return nonfiniteCount;
  }

  /** Of these, on this rank: +inf, -inf, and values that become inf when unscaled. */
  public long infCount() {
    return infCount;
  }

  /** Of these, on this rank: NaN. */
  public long nanCount() {
    return nanCount;
  }

  /** Index in its list of the first tensor with a non-finite gradient on this rank; -1 if none. */
  public long firstTensor() {
    return firstTensor;
  }

  /** Index in that tensor of its first non-finite gradient; -1 if none. */
  public long firstElement() {
    return firstElement;
  }

  /** How many of the skipped updates found a spike and no overflow. */
  public long spikes() {
    return spikes;
  }

  /**
   * The norm above which the step is skipped; inf if there is no limit, or none yet. Of an update: the lowest of its
   * lists with a spike, or of all if there is none.
   */
  public double normLimit() {
    return normLimit;
  }

  /** Geometric mean of the norms of the same list, as spikeFactor has it; 0 if there are none. */
  public double normAverage() {
    return normAverage;
  }
  // gen-api: end

  @Override
  public String toString() {
    return "Report[scale=" + scale + ", overflow=" + overflow + ", gradNorm=" + gradNorm + ", updates=" + updates
        + ", skipped=" + skipped
        + (firstTensor < 0 ? "" : ", nonfiniteCount=" + nonfiniteCount + ", firstTensor=" + firstTensor
            + ", firstElement=" + firstElement) + "]";
  }
}
