// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.ByteBuffer;

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
   * Reads what {@link #toBytes()} wrote.
   *
   * @param bytes all of it
   * @return a new state
   * @throws InvalidArgumentException if it has another length
   */
  public static ScalerState fromBytes(byte[] bytes) {
    final ScalerState result = new ScalerState();
    final ByteBuffer memory = result.memory();
    if (Check.notNull(bytes, "bytes").length != memory.capacity()) {
      throw new InvalidArgumentException(
          "bytes has length " + bytes.length + ", a state has " + memory.capacity());
    }
    memory.put(bytes);
    java.lang.ref.Reference.reachabilityFence(result);
    return result;
  }

  /**
   * The state as the library lays it out.
   *
   * @return a new array
   */
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
  /**
   * Growth multiplies the scale by this.
   *
   * @return the value
   */
  public double growthFactor() {
    return handle.getGrowthFactor();
  }

  /**
   * Sets {@link #growthFactor()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState growthFactor(double value) {
    handle.setGrowthFactor(value);
    return this;
  }

  /**
   * Backoff multiplies the scale by this.
   *
   * @return the value
   */
  public double backoffFactor() {
    return handle.getBackoffFactor();
  }

  /**
   * Sets {@link #backoffFactor()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState backoffFactor(double value) {
    handle.setBackoffFactor(value);
    return this;
  }

  /**
   * The scale.
   *
   * @return the value
   */
  public float scale() {
    return handle.getScale();
  }

  /**
   * Sets {@link #scale()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState scale(float value) {
    handle.setScale(value);
    return this;
  }

  /**
   * Clean steps between growths.
   *
   * @return the value
   */
  public int growthInterval() {
    return handle.getGrowthInterval();
  }

  /**
   * Sets {@link #growthInterval()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState growthInterval(int value) {
    handle.setGrowthInterval(value);
    return this;
  }

  /**
   * Clean steps since the scale last changed: PyTorch's _growth_tracker.
   *
   * @return the value
   */
  public int growthTracker() {
    return handle.getGrowthTracker();
  }

  /**
   * Sets {@link #growthTracker()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState growthTracker(int value) {
    handle.setGrowthTracker(value);
    return this;
  }

  /**
   * Overflows left before the scale backs off.
   *
   * @return the value
   */
  public int hysteresisTracker() {
    return handle.getHysteresisTracker();
  }

  /**
   * Sets {@link #hysteresisTracker()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState hysteresisTracker(int value) {
    handle.setHysteresisTracker(value);
    return this;
  }

  /**
   * Overflows since the scale last changed.
   *
   * @return the value
   */
  public int overflowsSinceRescale() {
    return handle.getOverflowsSinceRescale();
  }

  /**
   * Sets {@link #overflowsSinceRescale()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState overflowsSinceRescale(int value) {
    handle.setOverflowsSinceRescale(value);
    return this;
  }

  /**
   * Updates since the scale last changed.
   *
   * @return the value
   */
  public int updatesSinceRescale() {
    return handle.getUpdatesSinceRescale();
  }

  /**
   * Sets {@link #updatesSinceRescale()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState updatesSinceRescale(int value) {
    handle.setUpdatesSinceRescale(value);
    return this;
  }

  /**
   * Skipped updates in a row, the last one included; 0 if it was clean.
   *
   * @return the value
   */
  public int consecutiveSkips() {
    return handle.getConsecutiveSkips();
  }

  /**
   * Sets {@link #consecutiveSkips()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState consecutiveSkips(int value) {
    handle.setConsecutiveSkips(value);
    return this;
  }

  /**
   * Consecutive overflows that could not lower the scale.
   *
   * @return the value
   */
  public int skipsAtFloor() {
    return handle.getSkipsAtFloor();
  }

  /**
   * Sets {@link #skipsAtFloor()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState skipsAtFloor(int value) {
    handle.setSkipsAtFloor(value);
    return this;
  }

  /**
   * Updates so far.
   *
   * @return the value
   */
  public long updates() {
    return handle.getUpdates();
  }

  /**
   * Sets {@link #updates()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState updates(long value) {
    handle.setUpdates(value);
    return this;
  }

  /**
   * How many of these found an overflow.
   *
   * @return the value
   */
  public long skipped() {
    return handle.getSkipped();
  }

  /**
   * Sets {@link #skipped()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerState skipped(long value) {
    handle.setSkipped(value);
    return this;
  }

  /**
   * For messages.
   *
   * @return every value by its name
   */
  @Override
  public String toString() {
    return "ScalerState(growthFactor=" + growthFactor() + ", backoffFactor=" + backoffFactor() + ", scale=" + scale()
        + ", growthInterval=" + growthInterval() + ", growthTracker=" + growthTracker()
        + ", hysteresisTracker=" + hysteresisTracker() + ", overflowsSinceRescale=" + overflowsSinceRescale()
        + ", updatesSinceRescale=" + updatesSinceRescale() + ", consecutiveSkips=" + consecutiveSkips()
        + ", skipsAtFloor=" + skipsAtFloor() + ", updates=" + updates() + ", skipped=" + skipped() + ")";
  }
  // gen-api: end
}
