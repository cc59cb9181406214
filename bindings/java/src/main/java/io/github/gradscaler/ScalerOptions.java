// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The policy of a {@link GradScaler}. Starts as PyTorch's; the library checks it when a scaler is made of it. */
public final class ScalerOptions {
  private final NativeScalerOptions handle = new NativeScalerOptions();

  /** PyTorch's policy. */
  public ScalerOptions() {}

  /**
   * The policy of another system.
   *
   * @param preset which one
   */
  public ScalerOptions(Preset preset) {
    handle.preset(Check.notNull(preset, "preset").code());
  }

  NativeScalerOptions handle() {
    return handle;
  }

  // gen-api: accessors gsc_scaler_options
  /**
   * First scale, finite and &gt; 0, within minScale and maxScale. Default 65536.
   *
   * @return the value
   */
  public float initScale() {
    return handle.getInitScale();
  }

  /**
   * Sets {@link #initScale()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions initScale(float value) {
    handle.setInitScale(value);
    return this;
  }

  /**
   * Floor of the scale; 0: none. Default 0. A scale that {@link GradScaler#setScale} sets below it stays until it
   * grows.
   *
   * @return the value
   */
  public float minScale() {
    return handle.getMinScale();
  }

  /**
   * Sets {@link #minScale()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions minScale(float value) {
    handle.setMinScale(value);
    return this;
  }

  /**
   * Ceiling of the scale; 0: none. Default 0.
   *
   * @return the value
   */
  public float maxScale() {
    return handle.getMaxScale();
  }

  /**
   * Sets {@link #maxScale()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions maxScale(float value) {
    handle.setMaxScale(value);
    return this;
  }

  /**
   * Clean steps between growths, &gt;= 1. Default 2000.
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
  public ScalerOptions growthInterval(int value) {
    handle.setGrowthInterval(value);
    return this;
  }

  /**
   * Growth multiplies the scale by this, &gt; 1. Refused if initScale rounds back to itself. Default 2.
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
  public ScalerOptions growthFactor(double value) {
    handle.setGrowthFactor(value);
    return this;
  }

  /**
   * Backoff multiplies the scale by this, in (0, 1). Refused if initScale rounds back to itself. Default 0.5.
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
  public ScalerOptions backoffFactor(double value) {
    handle.setBackoffFactor(value);
    return this;
  }

  /**
   * False: disabled. The scale is 1, gradients are not checked, every step is applied. Default true.
   *
   * @return the value
   */
  public boolean enabled() {
    return handle.getEnabled() != 0;
  }

  /**
   * Sets {@link #enabled()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions enabled(boolean value) {
    handle.setEnabled(value ? 1 : 0);
    return this;
  }

  /**
   * Overflows until the scale backs off, &gt;= 1. Default 1: each overflow.
   *
   * @return the value
   */
  public int hysteresis() {
    return handle.getHysteresis();
  }

  /**
   * Sets {@link #hysteresis()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions hysteresis(int value) {
    handle.setHysteresis(value);
    return this;
  }

  /**
   * When the count of overflows starts again: HysteresisRefill. Default {@link HysteresisRefill#ON_GROWTH}.
   *
   * @return the value
   */
  public HysteresisRefill hysteresisRefill() {
    return HysteresisRefill.of(handle.getHysteresisRefill());
  }

  /**
   * Sets {@link #hysteresisRefill()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions hysteresisRefill(HysteresisRefill value) {
    handle.setHysteresisRefill(Check.notNull(value, "hysteresisRefill").code());
    return this;
  }

  /**
   * The clean step that grows: GrowthTiming. Default {@link GrowthTiming#AT_INTERVAL}.
   *
   * @return the value
   */
  public GrowthTiming growthTiming() {
    return GrowthTiming.of(handle.getGrowthTiming());
  }

  /**
   * Sets {@link #growthTiming()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions growthTiming(GrowthTiming value) {
    handle.setGrowthTiming(Check.notNull(value, "growthTiming").code());
    return this;
  }

  /**
   * Back off only if overflows / updates since the last rescale &gt;= this, in [0, 1] (fairseq). Default 0.
   *
   * @return the value
   */
  public double overflowTolerance() {
    return handle.getOverflowTolerance();
  }

  /**
   * Sets {@link #overflowTolerance()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions overflowTolerance(double value) {
    handle.setOverflowTolerance(value);
    return this;
  }

  /**
   * While the scale is below this, recoveryInterval replaces growthInterval (NVIDIA Modulus); 0: never. Default 0.
   *
   * @return the value
   */
  public float recoveryThreshold() {
    return handle.getRecoveryThreshold();
  }

  /**
   * Sets {@link #recoveryThreshold()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions recoveryThreshold(float value) {
    handle.setRecoveryThreshold(value);
    return this;
  }

  /**
   * See recoveryThreshold; &gt;= 1 if that is set. Default 0.
   *
   * @return the value
   */
  public int recoveryInterval() {
    return handle.getRecoveryInterval();
  }

  /**
   * Sets {@link #recoveryInterval()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions recoveryInterval(int value) {
    handle.setRecoveryInterval(value);
    return this;
  }

  /**
   * What happens at the floor: FloorAction. Default {@link FloorAction#CLAMP}.
   *
   * @return the value
   */
  public FloorAction floorAction() {
    return FloorAction.of(handle.getFloorAction());
  }

  /**
   * Sets {@link #floorAction()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions floorAction(FloorAction value) {
    handle.setFloorAction(Check.notNull(value, "floorAction").code());
    return this;
  }

  /**
   * Consecutive skipped updates at the floor until it is reported, &gt;= 1. Default 1.
   *
   * @return the value
   */
  public int floorPatience() {
    return handle.getFloorPatience();
  }

  /**
   * Sets {@link #floorPatience()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions floorPatience(int value) {
    handle.setFloorPatience(value);
    return this;
  }

  /**
   * Updates kept in the history ring, 0..2^20. Creation allocates 32 bytes of device memory for each. Default 16,
   * which shows what led to a skip. To plot the scale, give the number of steps between two reads.
   *
   * @return the value
   */
  public int historyCapacity() {
    return handle.getHistoryCapacity();
  }

  /**
   * Sets {@link #historyCapacity()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions historyCapacity(int value) {
    handle.setHistoryCapacity(value);
    return this;
  }

  /**
   * Grow only when the tracker equals the interval: PyTorch's exact rule. Default: also when it exceeds the interval.
   * They differ if the interval is lowered below the tracker: with this flag the scale then never grows.
   *
   * @return the value
   */
  public boolean growOnEqual() {
    return (handle.getFlags() & NativeCalls.SCALER_GROW_ON_EQUAL) != 0;
  }

  /**
   * Sets {@link #growOnEqual()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions growOnEqual(boolean value) {
    set(NativeCalls.SCALER_GROW_ON_EQUAL, value);
    return this;
  }

  /**
   * Store a grown scale even if it is inf (Keras 3, Megatron-LM, DeepSpeed). Default: keep the old scale.
   *
   * @return the value
   */
  public boolean noFiniteGuard() {
    return (handle.getFlags() & NativeCalls.SCALER_NO_FINITE_GUARD) != 0;
  }

  /**
   * Sets {@link #noFiniteGuard()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions noFiniteGuard(boolean value) {
    set(NativeCalls.SCALER_NO_FINITE_GUARD, value);
    return this;
  }

  /**
   * A backoff to minScale or below keeps the old scale; the scale is then at its floor (fairseq).
   *
   * @return the value
   */
  public boolean floorExclusive() {
    return (handle.getFlags() & NativeCalls.SCALER_FLOOR_EXCLUSIVE) != 0;
  }

  /**
   * Sets {@link #floorExclusive()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions floorExclusive(boolean value) {
    set(NativeCalls.SCALER_FLOOR_EXCLUSIVE, value);
    return this;
  }

  /**
   * Round the factors to fp32 and multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp, Keras 3). Default:
   * multiply in fp64 and round the product (PyTorch). They differ only for factors that are not powers of two.
   *
   * @return the value
   */
  public boolean fp32Products() {
    return (handle.getFlags() & NativeCalls.SCALER_FP32_PRODUCTS) != 0;
  }

  /**
   * Sets {@link #fp32Products()}.
   *
   * @param value the new value
   * @return this
   */
  public ScalerOptions fp32Products(boolean value) {
    set(NativeCalls.SCALER_FP32_PRODUCTS, value);
    return this;
  }

  private void set(int bit, boolean value) {
    handle.setFlags(value ? handle.getFlags() | bit : handle.getFlags() & ~bit);
  }

  /**
   * For messages.
   *
   * @return every value by its name
   */
  @Override
  public String toString() {
    return "ScalerOptions(initScale=" + initScale() + ", minScale=" + minScale() + ", maxScale=" + maxScale()
        + ", growthInterval=" + growthInterval() + ", growthFactor=" + growthFactor()
        + ", backoffFactor=" + backoffFactor() + ", enabled=" + enabled() + ", hysteresis=" + hysteresis()
        + ", hysteresisRefill=" + hysteresisRefill() + ", growthTiming=" + growthTiming()
        + ", overflowTolerance=" + overflowTolerance() + ", recoveryThreshold=" + recoveryThreshold()
        + ", recoveryInterval=" + recoveryInterval() + ", floorAction=" + floorAction()
        + ", floorPatience=" + floorPatience() + ", historyCapacity=" + historyCapacity()
        + ", growOnEqual=" + growOnEqual() + ", noFiniteGuard=" + noFiniteGuard()
        + ", floorExclusive=" + floorExclusive() + ", fp32Products=" + fp32Products() + ")";
  }
  // gen-api: end
}
