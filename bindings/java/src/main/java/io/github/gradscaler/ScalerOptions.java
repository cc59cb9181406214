// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The policy of a {@link GradScaler}. Starts as PyTorch's; the library checks it when a scaler is made of it. */
public final class ScalerOptions {
  private final NativeScalerOptions handle = new NativeScalerOptions();

  /** PyTorch's policy. */
  public ScalerOptions() {}

  /** The policy of another system. */
  public ScalerOptions(Preset preset) {
    handle.preset(Check.notNull(preset, "preset").code());
  }

  NativeScalerOptions handle() {
    return handle;
  }

  // gen-api: accessors gsc_scaler_options
  /** First scale, within minScale and maxScale. Range: &gt; 0. Default: 65536. */
  public float initScale() {
    return handle.getInitScale();
  }

  /** Sets {@link #initScale()}; returns this. */
  public ScalerOptions initScale(float value) {
    handle.setInitScale(value);
    return this;
  }

  /**
   * Floor of the scale. A scale that {@link GradScaler#setScale} sets below it stays until it grows. Range: &gt; 0;
   * 0: none. Default: 0.
   */
  public float minScale() {
    return handle.getMinScale();
  }

  /** Sets {@link #minScale()}; returns this. */
  public ScalerOptions minScale(float value) {
    handle.setMinScale(value);
    return this;
  }

  /** Ceiling of the scale. Range: &gt; 0; 0: none. Default: 0. */
  public float maxScale() {
    return handle.getMaxScale();
  }

  /** Sets {@link #maxScale()}; returns this. */
  public ScalerOptions maxScale(float value) {
    handle.setMaxScale(value);
    return this;
  }

  /** Clean steps between growths. Range: &gt;= 1. Default: 2000. */
  public int growthInterval() {
    return handle.getGrowthInterval();
  }

  /** Sets {@link #growthInterval()}; returns this. */
  public ScalerOptions growthInterval(int value) {
    handle.setGrowthInterval(value);
    return this;
  }

  /** Growth multiplies the scale by this. Refused if initScale rounds back to itself. Range: &gt; 1. Default: 2. */
  public double growthFactor() {
    return handle.getGrowthFactor();
  }

  /** Sets {@link #growthFactor()}; returns this. */
  public ScalerOptions growthFactor(double value) {
    handle.setGrowthFactor(value);
    return this;
  }

  /**
   * Backoff multiplies the scale by this. Refused if initScale rounds back to itself. Range: (0, 1). Default: 0.5.
   */
  public double backoffFactor() {
    return handle.getBackoffFactor();
  }

  /** Sets {@link #backoffFactor()}; returns this. */
  public ScalerOptions backoffFactor(double value) {
    handle.setBackoffFactor(value);
    return this;
  }

  /**
   * Whether the scaler does anything. If not, the scale is 1, gradients are not checked and every step is applied.
   * Default: true.
   */
  public boolean enabled() {
    return handle.getEnabled() != 0;
  }

  /** Sets {@link #enabled()}; returns this. */
  public ScalerOptions enabled(boolean value) {
    handle.setEnabled(value ? 1 : 0);
    return this;
  }

  /** Overflows until the scale backs off. 1: each of them. Range: &gt;= 1. Default: 1. */
  public int hysteresis() {
    return handle.getHysteresis();
  }

  /** Sets {@link #hysteresis()}; returns this. */
  public ScalerOptions hysteresis(int value) {
    handle.setHysteresis(value);
    return this;
  }

  /** When the count of overflows starts again. Default: {@link HysteresisRefill#ON_GROWTH}. */
  public HysteresisRefill hysteresisRefill() {
    return HysteresisRefill.of(handle.getHysteresisRefill());
  }

  /** Sets {@link #hysteresisRefill()}; returns this. */
  public ScalerOptions hysteresisRefill(HysteresisRefill value) {
    handle.setHysteresisRefill(Check.notNull(value, "hysteresisRefill").code());
    return this;
  }

  /** The clean step that grows. Default: {@link GrowthTiming#AT_INTERVAL}. */
  public GrowthTiming growthTiming() {
    return GrowthTiming.of(handle.getGrowthTiming());
  }

  /** Sets {@link #growthTiming()}; returns this. */
  public ScalerOptions growthTiming(GrowthTiming value) {
    handle.setGrowthTiming(Check.notNull(value, "growthTiming").code());
    return this;
  }

  /** Back off only if overflows / updates since the last rescale &gt;= this (fairseq). Range: [0, 1]. Default: 0. */
  public double overflowTolerance() {
    return handle.getOverflowTolerance();
  }

  /** Sets {@link #overflowTolerance()}; returns this. */
  public ScalerOptions overflowTolerance(double value) {
    handle.setOverflowTolerance(value);
    return this;
  }

  /**
   * While the scale is below this, recoveryInterval replaces growthInterval (NVIDIA Modulus). 0: never. Range: &gt;=
   * 0. Default: 0.
   */
  public float recoveryThreshold() {
    return handle.getRecoveryThreshold();
  }

  /** Sets {@link #recoveryThreshold()}; returns this. */
  public ScalerOptions recoveryThreshold(float value) {
    handle.setRecoveryThreshold(value);
    return this;
  }

  /** See recoveryThreshold. At least 1 if that is set. Default: 0. */
  public int recoveryInterval() {
    return handle.getRecoveryInterval();
  }

  /** Sets {@link #recoveryInterval()}; returns this. */
  public ScalerOptions recoveryInterval(int value) {
    handle.setRecoveryInterval(value);
    return this;
  }

  /** What happens at the floor. Default: {@link FloorAction#CLAMP}. */
  public FloorAction floorAction() {
    return FloorAction.of(handle.getFloorAction());
  }

  /** Sets {@link #floorAction()}; returns this. */
  public ScalerOptions floorAction(FloorAction value) {
    handle.setFloorAction(Check.notNull(value, "floorAction").code());
    return this;
  }

  /** Consecutive skipped updates at the floor until it is reported. Range: &gt;= 1. Default: 1. */
  public int floorPatience() {
    return handle.getFloorPatience();
  }

  /** Sets {@link #floorPatience()}; returns this. */
  public ScalerOptions floorPatience(int value) {
    handle.setFloorPatience(value);
    return this;
  }

  /**
   * Updates kept in the history ring. Creation allocates 32 bytes of device memory for each. 16 show what led to a
   * skip. To plot the scale, give the number of steps between two reads. Range: 0..2^20. Default: 16.
   */
  public int historyCapacity() {
    return handle.getHistoryCapacity();
  }

  /** Sets {@link #historyCapacity()}; returns this. */
  public ScalerOptions historyCapacity(int value) {
    handle.setHistoryCapacity(value);
    return this;
  }

  /**
   * Skip steps whose gradient norm is above this: the L2 norm of the unscaled gradients of a list before clipping,
   * with a reducer over all ranks. Each list is judged by its own norm. The scale does not back off for it. Range:
   * &gt; 0; 0: none. Default: 0.
   */
  public double skipNorm() {
    return handle.getSkipNorm();
  }

  /** Sets {@link #skipNorm()}; returns this. */
  public ScalerOptions skipNorm(double value) {
    handle.setSkipNorm(value);
    return this;
  }

  /**
   * Skip steps whose norm is above this many times the average norm and, in standard deviations, above
   * spikeDeviations. The average is the geometric mean of the list's norms so far, without those that lie so far off.
   * 2 is a good value. Range: &gt;= 1; 0: none. Default: 0.
   */
  public double spikeFactor() {
    return handle.getSpikeFactor();
  }

  /** Sets {@link #spikeFactor()}; returns this. */
  public ScalerOptions spikeFactor(double value) {
    handle.setSpikeFactor(value);
    return this;
  }

  /**
   * With spikeFactor: the logarithm of the norm must also be more than this many standard deviations above its mean.
   * Range: &gt;= 0. Default: 5.
   */
  public double spikeDeviations() {
    return handle.getSpikeDeviations();
  }

  /** Sets {@link #spikeDeviations()}; returns this. */
  public ScalerOptions spikeDeviations(double value) {
    handle.setSpikeDeviations(value);
    return this;
  }

  /**
   * The newest norm counts 1 / spikeWindow in the average, at first more. spikeFactor skips nothing before half as
   * many norms are in it. Range: 1..2^20. Default: 128.
   */
  public int spikeWindow() {
    return handle.getSpikeWindow();
  }

  /** Sets {@link #spikeWindow()}; returns this. */
  public ScalerOptions spikeWindow(int value) {
    handle.setSpikeWindow(value);
    return this;
  }

  /** Norms in the average before any step is skipped, also by skipNorm. Range: &gt;= 0. Default: 0. */
  public int spikeWarmup() {
    return handle.getSpikeWarmup();
  }

  /** Sets {@link #spikeWarmup()}; returns this. */
  public ScalerOptions spikeWarmup(int value) {
    handle.setSpikeWarmup(value);
    return this;
  }

  /**
   * Steps of a list that are skipped for their norm in a row until spikeAction. 0: no end. Range: &gt;= 0. Default:
   * 10.
   */
  public int spikePatience() {
    return handle.getSpikePatience();
  }

  /** Sets {@link #spikePatience()}; returns this. */
  public ScalerOptions spikePatience(int value) {
    handle.setSpikePatience(value);
    return this;
  }

  /** What happens then. Default: {@link SpikeAction#STEP}. */
  public SpikeAction spikeAction() {
    return SpikeAction.of(handle.getSpikeAction());
  }

  /** Sets {@link #spikeAction()}; returns this. */
  public ScalerOptions spikeAction(SpikeAction value) {
    handle.setSpikeAction(Check.notNull(value, "spikeAction").code());
    return this;
  }

  /**
   * Grow only when the tracker equals the interval: PyTorch's exact rule. Default: also when it exceeds the interval.
   * They differ if the interval is lowered below the tracker: with this flag the scale then never grows.
   */
  public boolean growOnEqual() {
    return (handle.getFlags() & NativeCalls.SCALER_GROW_ON_EQUAL) != 0;
  }

  /** Sets {@link #growOnEqual()}; returns this. */
  public ScalerOptions growOnEqual(boolean value) {
    set(NativeCalls.SCALER_GROW_ON_EQUAL, value);
    return this;
  }

  /** Store a grown scale even if it is inf (Keras 3, Megatron-LM, DeepSpeed). Default: keep the old scale. */
  public boolean noFiniteGuard() {
    return (handle.getFlags() & NativeCalls.SCALER_NO_FINITE_GUARD) != 0;
  }

  /** Sets {@link #noFiniteGuard()}; returns this. */
  public ScalerOptions noFiniteGuard(boolean value) {
    set(NativeCalls.SCALER_NO_FINITE_GUARD, value);
    return this;
  }

  /** A backoff to minScale or below keeps the old scale; the scale is then at its floor (fairseq). */
  public boolean floorExclusive() {
    return (handle.getFlags() & NativeCalls.SCALER_FLOOR_EXCLUSIVE) != 0;
  }

  /** Sets {@link #floorExclusive()}; returns this. */
  public ScalerOptions floorExclusive(boolean value) {
    set(NativeCalls.SCALER_FLOOR_EXCLUSIVE, value);
    return this;
  }

  /**
   * Round the factors to fp32 and multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp, Keras 3). Default:
   * multiply in fp64 and round the product (PyTorch). They differ only for factors that are not powers of two.
   */
  public boolean fp32Products() {
    return (handle.getFlags() & NativeCalls.SCALER_FP32_PRODUCTS) != 0;
  }

  /** Sets {@link #fp32Products()}; returns this. */
  public ScalerOptions fp32Products(boolean value) {
    set(NativeCalls.SCALER_FP32_PRODUCTS, value);
    return this;
  }

  /** The scale stays what it is set to. An overflow skips the step, and counts as one at the floor. */
  public boolean staticScale() {
    return (handle.getFlags() & NativeCalls.SCALER_STATIC_SCALE) != 0;
  }

  /** Sets {@link #staticScale()}; returns this. */
  public ScalerOptions staticScale(boolean value) {
    set(NativeCalls.SCALER_STATIC_SCALE, value);
    return this;
  }

  private void set(int bit, boolean value) {
    handle.setFlags(value ? handle.getFlags() | bit : handle.getFlags() & ~bit);
  }

  /** Every value by its name, for messages. */
  @Override
  public String toString() {
    return "ScalerOptions(initScale=" + initScale() + ", minScale=" + minScale() + ", maxScale=" + maxScale()
        + ", growthInterval=" + growthInterval() + ", growthFactor=" + growthFactor()
        + ", backoffFactor=" + backoffFactor() + ", enabled=" + enabled() + ", hysteresis=" + hysteresis()
        + ", hysteresisRefill=" + hysteresisRefill() + ", growthTiming=" + growthTiming()
        + ", overflowTolerance=" + overflowTolerance() + ", recoveryThreshold=" + recoveryThreshold()
        + ", recoveryInterval=" + recoveryInterval() + ", floorAction=" + floorAction()
        + ", floorPatience=" + floorPatience() + ", historyCapacity=" + historyCapacity() + ", skipNorm=" + skipNorm()
        + ", spikeFactor=" + spikeFactor() + ", spikeDeviations=" + spikeDeviations()
        + ", spikeWindow=" + spikeWindow() + ", spikeWarmup=" + spikeWarmup() + ", spikePatience=" + spikePatience()
        + ", spikeAction=" + spikeAction() + ", growOnEqual=" + growOnEqual() + ", noFiniteGuard=" + noFiniteGuard()
        + ", floorExclusive=" + floorExclusive() + ", fp32Products=" + fp32Products()
        + ", staticScale=" + staticScale() + ")";
  }
  // gen-api: end
}
