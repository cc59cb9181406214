// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The policy of a {@link GradScaler}. Starts as PyTorch's; the library checks it when a scaler is made of it. */
public final class ScalerOptions {
  private final NativeScalerOptions options = new NativeScalerOptions();

  /** PyTorch's policy. */
  public ScalerOptions() {}

  /**
   * The policy of another system.
   *
   * @param preset which one
   */
  public ScalerOptions(Preset preset) {
    options.preset(Check.notNull(preset, "preset").code());
  }

  NativeScalerOptions handle() {
    return options;
  }

  /**
   * First scale, finite and greater than 0. Default 65536.
   *
   * @return the value
   */
  public float initScale() {
    return options.getInitScale();
  }

  /**
   * Sets initScale.
   *
   * @param value first scale, finite and greater than 0. Default 65536.
   * @return this
   */
  public ScalerOptions initScale(float value) {
    options.setInitScale(value);
    return this;
  }

  /**
   * The scale is not lowered below this; 0: no floor. Default 0.
   *
   * @return the value
   */
  public float minScale() {
    return options.getMinScale();
  }

  /**
   * Sets minScale.
   *
   * @param value the scale is not lowered below this; 0: no floor. Default 0.
   * @return this
   */
  public ScalerOptions minScale(float value) {
    options.setMinScale(value);
    return this;
  }

  /**
   * The scale is not raised above this; 0: no ceiling. Default 0.
   *
   * @return the value
   */
  public float maxScale() {
    return options.getMaxScale();
  }

  /**
   * Sets maxScale.
   *
   * @param value the scale is not raised above this; 0: no ceiling. Default 0.
   * @return this
   */
  public ScalerOptions maxScale(float value) {
    options.setMaxScale(value);
    return this;
  }

  /**
   * Clean steps between growths, at least 1. Default 2000.
   *
   * @return the value
   */
  public int growthInterval() {
    return options.getGrowthInterval();
  }

  /**
   * Sets growthInterval.
   *
   * @param value clean steps between growths, at least 1. Default 2000.
   * @return this
   */
  public ScalerOptions growthInterval(int value) {
    options.setGrowthInterval(value);
    return this;
  }

  /**
   * The scale is multiplied by this to grow, greater than 1. Default 2.
   *
   * @return the value
   */
  public double growthFactor() {
    return options.getGrowthFactor();
  }

  /**
   * Sets growthFactor.
   *
   * @param value the scale is multiplied by this to grow, greater than 1. Default 2.
   * @return this
   */
  public ScalerOptions growthFactor(double value) {
    options.setGrowthFactor(value);
    return this;
  }

  /**
   * The scale is multiplied by this on overflow, in (0, 1). Default 0.5.
   *
   * @return the value
   */
  public double backoffFactor() {
    return options.getBackoffFactor();
  }

  /**
   * Sets backoffFactor.
   *
   * @param value the scale is multiplied by this on overflow, in (0, 1). Default 0.5.
   * @return this
   */
  public ScalerOptions backoffFactor(double value) {
    options.setBackoffFactor(value);
    return this;
  }

  /**
   * If false the scale is 1, nothing is checked and every step is applied. Default true.
   *
   * @return the value
   */
  public boolean enabled() {
    return options.getEnabled() != 0;
  }

  /**
   * Sets enabled.
   *
   * @param value if false the scale is 1, nothing is checked and every step is applied. Default true.
   * @return this
   */
  public ScalerOptions enabled(boolean value) {
    options.setEnabled(value ? 1 : 0);
    return this;
  }

  /**
   * Back off at this overflow, at least 1. Default 1.
   *
   * @return the value
   */
  public int hysteresis() {
    return options.getHysteresis();
  }

  /**
   * Sets hysteresis.
   *
   * @param value back off at this overflow, at least 1. Default 1.
   * @return this
   */
  public ScalerOptions hysteresis(int value) {
    options.setHysteresis(value);
    return this;
  }

  /**
   * When the hysteresis counter is filled up again. Default ON_GROWTH.
   *
   * @return the value
   */
  public HysteresisRefill hysteresisRefill() {
    return HysteresisRefill.of(options.getHysteresisRefill());
  }

  /**
   * Sets hysteresisRefill.
   *
   * @param value when the hysteresis counter is filled up again. Default ON_GROWTH.
   * @return this
   */
  public ScalerOptions hysteresisRefill(HysteresisRefill value) {
    options.setHysteresisRefill(Check.notNull(value, "hysteresisRefill").code());
    return this;
  }

  /**
   * Which clean step makes the scale grow. Default AT_INTERVAL.
   *
   * @return the value
   */
  public GrowthTiming growthTiming() {
    return GrowthTiming.of(options.getGrowthTiming());
  }

  /**
   * Sets growthTiming.
   *
   * @param value which clean step makes the scale grow. Default AT_INTERVAL.
   * @return this
   */
  public ScalerOptions growthTiming(GrowthTiming value) {
    options.setGrowthTiming(Check.notNull(value, "growthTiming").code());
    return this;
  }

  /**
   * Back off only if overflows / updates since the last rescale reach this, in [0, 1]. Default 0.
   *
   * @return the value
   */
  public double overflowTolerance() {
    return options.getOverflowTolerance();
  }

  /**
   * Sets overflowTolerance.
   *
   * @param value back off only if overflows / updates since the last rescale reach this, in [0, 1]. Default 0.
   * @return this
   */
  public ScalerOptions overflowTolerance(double value) {
    options.setOverflowTolerance(value);
    return this;
  }

  /**
   * While the scale is below this, recoveryInterval replaces growthInterval; 0: never. Default 0.
   *
   * @return the value
   */
  public float recoveryThreshold() {
    return options.getRecoveryThreshold();
  }

  /**
   * Sets recoveryThreshold.
   *
   * @param value while the scale is below this, recoveryInterval replaces growthInterval; 0: never. Default 0.
   * @return this
   */
  public ScalerOptions recoveryThreshold(float value) {
    options.setRecoveryThreshold(value);
    return this;
  }

  /**
   * See recoveryThreshold; at least 1 if that is set. Default 0.
   *
   * @return the value
   */
  public int recoveryInterval() {
    return options.getRecoveryInterval();
  }

  /**
   * Sets recoveryInterval.
   *
   * @param value see recoveryThreshold; at least 1 if that is set. Default 0.
   * @return this
   */
  public ScalerOptions recoveryInterval(int value) {
    options.setRecoveryInterval(value);
    return this;
  }

  /**
   * What an overflow at minScale does. Default CLAMP.
   *
   * @return the value
   */
  public FloorAction floorAction() {
    return FloorAction.of(options.getFloorAction());
  }

  /**
   * Sets floorAction.
   *
   * @param value what an overflow at minScale does. Default CLAMP.
   * @return this
   */
  public ScalerOptions floorAction(FloorAction value) {
    options.setFloorAction(Check.notNull(value, "floorAction").code());
    return this;
  }

  /**
   * Consecutive skipped updates at the floor before it is reported, at least 1. Default 1.
   *
   * @return the value
   */
  public int floorPatience() {
    return options.getFloorPatience();
  }

  /**
   * Sets floorPatience.
   *
   * @param value consecutive skipped updates at the floor before it is reported, at least 1. Default 1.
   * @return this
   */
  public ScalerOptions floorPatience(int value) {
    options.setFloorPatience(value);
    return this;
  }

  /**
   * Updates kept in the history, 0 to 2^20; 32 bytes each. Default 16.
   *
   * @return the value
   */
  public int historyCapacity() {
    return options.getHistoryCapacity();
  }

  /**
   * Sets historyCapacity.
   *
   * @param value updates kept in the history, 0 to 2^20; 32 bytes each. Default 16.
   * @return this
   */
  public ScalerOptions historyCapacity(int value) {
    options.setHistoryCapacity(value);
    return this;
  }

  /**
   * Grow when the tracker equals the interval, not when it has reached it: PyTorch's exact rule.
   *
   * @return the value
   */
  public boolean growOnEqual() {
    return has(NativeCalls.SCALER_GROW_ON_EQUAL);
  }

  /**
   * Sets growOnEqual.
   *
   * @param value grow when the tracker equals the interval, not when it has reached it: PyTorch's exact rule.
   * @return this
   */
  public ScalerOptions growOnEqual(boolean value) {
    set(NativeCalls.SCALER_GROW_ON_EQUAL, value);
    return this;
  }

  /**
   * Store a grown scale even if it is infinite (Keras 3, Megatron-LM, DeepSpeed).
   *
   * @return the value
   */
  public boolean noFiniteGuard() {
    return has(NativeCalls.SCALER_NO_FINITE_GUARD);
  }

  /**
   * Sets noFiniteGuard.
   *
   * @param value store a grown scale even if it is infinite (Keras 3, Megatron-LM, DeepSpeed).
   * @return this
   */
  public ScalerOptions noFiniteGuard(boolean value) {
    set(NativeCalls.SCALER_NO_FINITE_GUARD, value);
    return this;
  }

  /**
   * A backoff to minScale or below keeps the old scale and counts as being at the floor (fairseq).
   *
   * @return the value
   */
  public boolean floorExclusive() {
    return has(NativeCalls.SCALER_FLOOR_EXCLUSIVE);
  }

  /**
   * Sets floorExclusive.
   *
   * @param value a backoff to minScale or below keeps the old scale and counts as being at the floor (fairseq).
   * @return this
   */
  public ScalerOptions floorExclusive(boolean value) {
    set(NativeCalls.SCALER_FLOOR_EXCLUSIVE, value);
    return this;
  }

  /**
   * Multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp, Keras 3), not in fp64.
   *
   * @return the value
   */
  public boolean fp32Products() {
    return has(NativeCalls.SCALER_FP32_PRODUCTS);
  }

  /**
   * Sets fp32Products.
   *
   * @param value multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp, Keras 3), not in fp64.
   * @return this
   */
  public ScalerOptions fp32Products(boolean value) {
    set(NativeCalls.SCALER_FP32_PRODUCTS, value);
    return this;
  }

  private boolean has(int bit) {
    return (options.getFlags() & bit) != 0;
  }

  private void set(int bit, boolean value) {
    options.setFlags(value ? options.getFlags() | bit : options.getFlags() & ~bit);
  }

  /**
   * For messages of your own.
   *
   * @return every value by its name
   */
  @Override
  public String toString() {
    return "ScalerOptions(" + "initScale=" + initScale() + ", minScale=" + minScale() + ", maxScale=" + maxScale()
        + ", growthInterval=" + growthInterval() + ", growthFactor=" + growthFactor()
        + ", backoffFactor=" + backoffFactor() + ", enabled=" + enabled() + ", hysteresis=" + hysteresis()
        + ", hysteresisRefill=" + hysteresisRefill() + ", growthTiming=" + growthTiming()
        + ", overflowTolerance=" + overflowTolerance() + ", recoveryThreshold=" + recoveryThreshold()
        + ", recoveryInterval=" + recoveryInterval() + ", floorAction=" + floorAction()
        + ", floorPatience=" + floorPatience() + ", historyCapacity=" + historyCapacity()
        + ", growOnEqual=" + growOnEqual() + ", noFiniteGuard=" + noFiniteGuard()
        + ", floorExclusive=" + floorExclusive() + ", fp32Products=" + fp32Products() + ")";
  }
}
