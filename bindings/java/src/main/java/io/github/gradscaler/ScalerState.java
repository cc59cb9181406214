// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Everything a checkpoint needs of a {@link GradScaler}: to be written field by field, or as the library's bytes, which
 * every language reads. Checked when it is restored.
 */
public final class ScalerState {
  private final NativeScalerState handle;

  /** A state whose fields are all to be set. */
  public ScalerState() {
    handle = new NativeScalerState();
  }

  /**
   * Reads what {@link #toBytes()} wrote, also that of an older version, which may be shorter. Errors:
   * InvalidArgumentException for other data, and for a longer state of a newer version.
   */
  public static ScalerState fromBytes(byte[] bytes) {
    final ScalerState result = new ScalerState();
    final ByteBuffer memory = result.memory().order(ByteOrder.nativeOrder());
    final int length = Check.notNull(bytes, "bytes").length;
    // A state begins with its length. What is not in it stays 0.
    if (length < 4 || length > memory.capacity() || memory.put(bytes).getInt(0) != length) {
      throw new InvalidArgumentException(
          "bytes has length " + length + "; it is not a state, or not one of this version, which has "
              + memory.capacity());
    }
    memory.putInt(0, memory.capacity());
    java.lang.ref.Reference.reachabilityFence(result);
    return result;
  }

  /** The state as the library lays it out. */
  public byte[] toBytes() {
    final ByteBuffer memory = memory();
    final byte[] bytes = new byte[memory.capacity()];
    memory.get(bytes);
    java.lang.ref.Reference.reachabilityFence(this);
    return bytes;
  }

  private ByteBuffer memory() {
    return NativeCallsJNI.stateBytes(NativeScalerState.getCPtr(handle));
  }

  NativeScalerState handle() {
    return handle;
  }

  // gen-api: accessors gsc_scaler_state
  /** Growth multiplies the scale by this. */
  public double growthFactor() {
    return handle.getGrowthFactor();
  }

  /** Sets {@link #growthFactor()}; returns this. */
  public ScalerState growthFactor(double value) {
    handle.setGrowthFactor(value);
    return this;
  }

  /** Backoff multiplies the scale by this. */
  public double backoffFactor() {
    return handle.getBackoffFactor();
  }

  /** Sets {@link #backoffFactor()}; returns this. */
  public ScalerState backoffFactor(double value) {
    handle.setBackoffFactor(value);
    return this;
  }

  /** The scale. */
  public float scale() {
    return handle.getScale();
  }

  /** Sets {@link #scale()}; returns this. */
  public ScalerState scale(float value) {
    handle.setScale(value);
    return this;
  }

  /** Clean steps between growths. */
  public int growthInterval() {
    return handle.getGrowthInterval();
  }

  /** Sets {@link #growthInterval()}; returns this. */
  public ScalerState growthInterval(int value) {
    handle.setGrowthInterval(value);
    return this;
  }

  /** Clean steps since the scale last changed: PyTorch's _growth_tracker. */
  public int growthTracker() {
    return handle.getGrowthTracker();
  }

  /** Sets {@link #growthTracker()}; returns this. */
  public ScalerState growthTracker(int value) {
    handle.setGrowthTracker(value);
    return this;
  }

  /** Overflows left before the scale backs off. */
  public int hysteresisTracker() {
    return handle.getHysteresisTracker();
  }

  /** Sets {@link #hysteresisTracker()}; returns this. */
  public ScalerState hysteresisTracker(int value) {
    handle.setHysteresisTracker(value);
    return this;
  }

  /** Overflows since the scale last changed. */
  public int overflowsSinceRescale() {
    return handle.getOverflowsSinceRescale();
  }

  /** Sets {@link #overflowsSinceRescale()}; returns this. */
  public ScalerState overflowsSinceRescale(int value) {
    handle.setOverflowsSinceRescale(value);
    return this;
  }

  /** Updates since the scale last changed. */
  public int updatesSinceRescale() {
    return handle.getUpdatesSinceRescale();
  }

  /** Sets {@link #updatesSinceRescale()}; returns this. */
  public ScalerState updatesSinceRescale(int value) {
    handle.setUpdatesSinceRescale(value);
    return this;
  }

  /** Skipped updates in a row, the last one included; 0 if it was clean. */
  public int consecutiveSkips() {
    return handle.getConsecutiveSkips();
  }

  /** Sets {@link #consecutiveSkips()}; returns this. */
  public ScalerState consecutiveSkips(int value) {
    handle.setConsecutiveSkips(value);
    return this;
  }

  /** Consecutive overflows that could not lower the scale. */
  public int skipsAtFloor() {
    return handle.getSkipsAtFloor();
  }

  /** Sets {@link #skipsAtFloor()}; returns this. */
  public ScalerState skipsAtFloor(int value) {
    handle.setSkipsAtFloor(value);
    return this;
  }

  /** Updates so far. */
  public long updates() {
    return handle.getUpdates();
  }

  /** Sets {@link #updates()}; returns this. */
  public ScalerState updates(long value) {
    handle.setUpdates(value);
    return this;
  }

  /** How many of these found an overflow or a spike. */
  public long skipped() {
    return handle.getSkipped();
  }

  /** Sets {@link #skipped()}; returns this. */
  public ScalerState skipped(long value) {
    handle.setSkipped(value);
    return this;
  }

  /** How many of these found a spike and no overflow. */
  public long spikes() {
    return handle.getSpikes();
  }

  /** Sets {@link #spikes()}; returns this. */
  public ScalerState spikes(long value) {
    handle.setSpikes(value);
    return this;
  }

  /** Every value by its name, for messages. */
  @Override
  public String toString() {
    return "ScalerState(growthFactor=" + growthFactor() + ", backoffFactor=" + backoffFactor() + ", scale=" + scale()
        + ", growthInterval=" + growthInterval() + ", growthTracker=" + growthTracker()
        + ", hysteresisTracker=" + hysteresisTracker() + ", overflowsSinceRescale=" + overflowsSinceRescale()
        + ", updatesSinceRescale=" + updatesSinceRescale() + ", consecutiveSkips=" + consecutiveSkips()
        + ", skipsAtFloor=" + skipsAtFloor() + ", updates=" + updates() + ", skipped=" + skipped()
        + ", spikes=" + spikes() + ")";
  }
  // gen-api: end
}
