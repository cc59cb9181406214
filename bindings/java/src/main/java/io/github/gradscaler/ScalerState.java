// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.ByteBuffer;

/**
 * Everything a checkpoint needs of a {@link GradScaler}: to be written field by field, or as the library's bytes, which
 * every language reads. Checked when it is restored.
 */
public final class ScalerState {
  private final NativeScalerState state;

  /** A state whose fields are all to be set. */
  public ScalerState() {
    state = new NativeScalerState();
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
    return NativeCallsJNI.stateBytes(NativeScalerState.getCPtr(state));
  }

  NativeScalerState handle() {
    return state;
  }

  /**
   * The scale.
   *
   * @return the value
   */
  public float scale() {
    return state.getScale();
  }

  /**
   * Sets scale.
   *
   * @param value the scale.
   * @return this
   */
  public ScalerState scale(float value) {
    state.setScale(value);
    return this;
  }

  /**
   * Factor of growth.
   *
   * @return the value
   */
  public double growthFactor() {
    return state.getGrowthFactor();
  }

  /**
   * Sets growthFactor.
   *
   * @param value factor of growth.
   * @return this
   */
  public ScalerState growthFactor(double value) {
    state.setGrowthFactor(value);
    return this;
  }

  /**
   * Factor of backoff.
   *
   * @return the value
   */
  public double backoffFactor() {
    return state.getBackoffFactor();
  }

  /**
   * Sets backoffFactor.
   *
   * @param value factor of backoff.
   * @return this
   */
  public ScalerState backoffFactor(double value) {
    state.setBackoffFactor(value);
    return this;
  }

  /**
   * Clean steps between growths.
   *
   * @return the value
   */
  public int growthInterval() {
    return state.getGrowthInterval();
  }

  /**
   * Sets growthInterval.
   *
   * @param value clean steps between growths.
   * @return this
   */
  public ScalerState growthInterval(int value) {
    state.setGrowthInterval(value);
    return this;
  }

  /**
   * Clean steps since the scale last changed.
   *
   * @return the value
   */
  public int growthTracker() {
    return state.getGrowthTracker();
  }

  /**
   * Sets growthTracker.
   *
   * @param value clean steps since the scale last changed.
   * @return this
   */
  public ScalerState growthTracker(int value) {
    state.setGrowthTracker(value);
    return this;
  }

  /**
   * Overflows left before the scale backs off.
   *
   * @return the value
   */
  public int hysteresisTracker() {
    return state.getHysteresisTracker();
  }

  /**
   * Sets hysteresisTracker.
   *
   * @param value overflows left before the scale backs off.
   * @return this
   */
  public ScalerState hysteresisTracker(int value) {
    state.setHysteresisTracker(value);
    return this;
  }

  /**
   * Overflows since the scale last changed.
   *
   * @return the value
   */
  public int overflowsSinceRescale() {
    return state.getOverflowsSinceRescale();
  }

  /**
   * Sets overflowsSinceRescale.
   *
   * @param value overflows since the scale last changed.
   * @return this
   */
  public ScalerState overflowsSinceRescale(int value) {
    state.setOverflowsSinceRescale(value);
    return this;
  }

  /**
   * Updates since the scale last changed.
   *
   * @return the value
   */
  public int updatesSinceRescale() {
    return state.getUpdatesSinceRescale();
  }

  /**
   * Sets updatesSinceRescale.
   *
   * @param value updates since the scale last changed.
   * @return this
   */
  public ScalerState updatesSinceRescale(int value) {
    state.setUpdatesSinceRescale(value);
    return this;
  }

  /**
   * Skipped updates in a row.
   *
   * @return the value
   */
  public int consecutiveSkips() {
    return state.getConsecutiveSkips();
  }

  /**
   * Sets consecutiveSkips.
   *
   * @param value skipped updates in a row.
   * @return this
   */
  public ScalerState consecutiveSkips(int value) {
    state.setConsecutiveSkips(value);
    return this;
  }

  /**
   * Consecutive overflows that found the scale unable to go lower.
   *
   * @return the value
   */
  public int skipsAtFloor() {
    return state.getSkipsAtFloor();
  }

  /**
   * Sets skipsAtFloor.
   *
   * @param value consecutive overflows that found the scale unable to go lower.
   * @return this
   */
  public ScalerState skipsAtFloor(int value) {
    state.setSkipsAtFloor(value);
    return this;
  }

  /**
   * Updates since creation.
   *
   * @return the value
   */
  public long updates() {
    return state.getUpdates();
  }

  /**
   * Sets updates.
   *
   * @param value updates since creation.
   * @return this
   */
  public ScalerState updates(long value) {
    state.setUpdates(value);
    return this;
  }

  /**
   * Of these, the skipped ones.
   *
   * @return the value
   */
  public long skipped() {
    return state.getSkipped();
  }

  /**
   * Sets skipped.
   *
   * @param value of these, the skipped ones.
   * @return this
   */
  public ScalerState skipped(long value) {
    state.setSkipped(value);
    return this;
  }
}
