// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Hyper-parameters of an {@link Optimizer}. Start as the defaults of the kind. */
public final class OptimizerOptions {
  private final NativeOptimizerOptions options;

  /**
   * The defaults of a kind.
   *
   * @param kind which optimizer
   */
  public OptimizerOptions(OptimizerKind kind) {
    options = new NativeOptimizerOptions(Check.notNull(kind, "kind").code());
  }

  /**
   * The defaults of SGD.
   *
   * @return new options
   */
  public static OptimizerOptions sgd() {
    return new OptimizerOptions(OptimizerKind.SGD);
  }

  /**
   * The defaults of Adam.
   *
   * @return new options
   */
  public static OptimizerOptions adam() {
    return new OptimizerOptions(OptimizerKind.ADAM);
  }

  /**
   * The defaults of AdamW.
   *
   * @return new options
   */
  public static OptimizerOptions adamW() {
    return new OptimizerOptions(OptimizerKind.ADAMW);
  }

  /**
   * The defaults of Adagrad.
   *
   * @return new options
   */
  public static OptimizerOptions adagrad() {
    return new OptimizerOptions(OptimizerKind.ADAGRAD);
  }

  /**
   * The defaults of Lion.
   *
   * @return new options
   */
  public static OptimizerOptions lion() {
    return new OptimizerOptions(OptimizerKind.LION);
  }

  /**
   * The defaults of LAMB.
   *
   * @return new options
   */
  public static OptimizerOptions lamb() {
    return new OptimizerOptions(OptimizerKind.LAMB);
  }

  NativeOptimizerOptions handle() {
    return options;
  }

  /**
   * The kind of optimizer.
   *
   * @return as given
   */
  public OptimizerKind kind() {
    return OptimizerKind.of(options.getKind());
  }

  /**
   * Learning rate, finite, at least 0.
   *
   * @return the value
   */
  public double lr() {
    return options.getLr();
  }

  /**
   * Sets lr.
   *
   * @param value learning rate, finite, at least 0.
   * @return this
   */
  public OptimizerOptions lr(double value) {
    options.setLr(value);
    return this;
  }

  /**
   * Decay of the first moment, in [0, 1).
   *
   * @return the value
   */
  public double beta1() {
    return options.getBeta1();
  }

  /**
   * Sets beta1.
   *
   * @param value decay of the first moment, in [0, 1).
   * @return this
   */
  public OptimizerOptions beta1(double value) {
    options.setBeta1(value);
    return this;
  }

  /**
   * Decay of the second moment, in [0, 1). Lion: of its state.
   *
   * @return the value
   */
  public double beta2() {
    return options.getBeta2();
  }

  /**
   * Sets beta2.
   *
   * @param value decay of the second moment, in [0, 1). Lion: of its state.
   * @return this
   */
  public OptimizerOptions beta2(double value) {
    options.setBeta2(value);
    return this;
  }

  /**
   * Added to the denominator, at least 0.
   *
   * @return the value
   */
  public double eps() {
    return options.getEps();
  }

  /**
   * Sets eps.
   *
   * @param value added to the denominator, at least 0.
   * @return this
   */
  public OptimizerOptions eps(double value) {
    options.setEps(value);
    return this;
  }

  /**
   * At least 0.
   *
   * @return the value
   */
  public double weightDecay() {
    return options.getWeightDecay();
  }

  /**
   * Sets weightDecay.
   *
   * @param value at least 0.
   * @return this
   */
  public OptimizerOptions weightDecay(double value) {
    options.setWeightDecay(value);
    return this;
  }

  /**
   * SGD, at least 0. Default 0.
   *
   * @return the value
   */
  public double momentum() {
    return options.getMomentum();
  }

  /**
   * Sets momentum.
   *
   * @param value sGD, at least 0. Default 0.
   * @return this
   */
  public OptimizerOptions momentum(double value) {
    options.setMomentum(value);
    return this;
  }

  /**
   * SGD. Default 0.
   *
   * @return the value
   */
  public double dampening() {
    return options.getDampening();
  }

  /**
   * Sets dampening.
   *
   * @param value sGD. Default 0.
   * @return this
   */
  public OptimizerOptions dampening(double value) {
    options.setDampening(value);
    return this;
  }

  /**
   * Adagrad, at least 0. Default 0.
   *
   * @return the value
   */
  public double lrDecay() {
    return options.getLrDecay();
  }

  /**
   * Sets lrDecay.
   *
   * @param value adagrad, at least 0. Default 0.
   * @return this
   */
  public OptimizerOptions lrDecay(double value) {
    options.setLrDecay(value);
    return this;
  }

  /**
   * Adagrad: the sum starts at this, at least 0. Default 0.
   *
   * @return the value
   */
  public double initialAccumulatorValue() {
    return options.getInitialAccumulatorValue();
  }

  /**
   * Sets initialAccumulatorValue.
   *
   * @param value adagrad: the sum starts at this, at least 0. Default 0.
   * @return this
   */
  public OptimizerOptions initialAccumulatorValue(double value) {
    options.setInitialAccumulatorValue(value);
    return this;
  }

  /**
   * SGD: Nesterov momentum; needs momentum greater than 0 and dampening 0.
   *
   * @return the value
   */
  public boolean nesterov() {
    return has(NativeCalls.OPTIMIZER_NESTEROV);
  }

  /**
   * Sets nesterov.
   *
   * @param value sGD: Nesterov momentum; needs momentum greater than 0 and dampening 0.
   * @return this
   */
  public OptimizerOptions nesterov(boolean value) {
    set(NativeCalls.OPTIMIZER_NESTEROV, value);
    return this;
  }

  /**
   * Adam, AdamW: the step is normalized by the largest second moment so far.
   *
   * @return the value
   */
  public boolean amsgrad() {
    return has(NativeCalls.OPTIMIZER_AMSGRAD);
  }

  /**
   * Sets amsgrad.
   *
   * @param value true: the step of Adam or AdamW is normalized by the largest second moment so far.
   * @return this
   */
  public OptimizerOptions amsgrad(boolean value) {
    set(NativeCalls.OPTIMIZER_AMSGRAD, value);
    return this;
  }

  /**
   * Ascend instead of descend.
   *
   * @return the value
   */
  public boolean maximize() {
    return has(NativeCalls.OPTIMIZER_MAXIMIZE);
  }

  /**
   * Sets maximize.
   *
   * @param value ascend instead of descend.
   * @return this
   */
  public OptimizerOptions maximize(boolean value) {
    set(NativeCalls.OPTIMIZER_MAXIMIZE, value);
    return this;
  }

  /**
   * Set the gradients to zero in the same pass, also when the step is skipped.
   *
   * @return the value
   */
  public boolean zeroGrads() {
    return has(NativeCalls.OPTIMIZER_ZERO_GRADS);
  }

  /**
   * Sets zeroGrads.
   *
   * @param value set the gradients to zero in the same pass, also when the step is skipped.
   * @return this
   */
  public OptimizerOptions zeroGrads(boolean value) {
    set(NativeCalls.OPTIMIZER_ZERO_GRADS, value);
    return this;
  }

  /**
   * Write the unscaled and clipped gradients back in the same pass, unless the step is skipped.
   *
   * @return the value
   */
  public boolean writeGrads() {
    return has(NativeCalls.OPTIMIZER_WRITE_GRADS);
  }

  /**
   * Sets writeGrads.
   *
   * @param value write the unscaled and clipped gradients back in the same pass, unless the step is skipped.
   * @return this
   */
  public OptimizerOptions writeGrads(boolean value) {
    set(NativeCalls.OPTIMIZER_WRITE_GRADS, value);
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
    return "OptimizerOptions(" + "kind=" + kind() + ", lr=" + lr() + ", beta1=" + beta1() + ", beta2=" + beta2()
        + ", eps=" + eps() + ", weightDecay=" + weightDecay() + ", momentum=" + momentum()
        + ", dampening=" + dampening() + ", lrDecay=" + lrDecay()
        + ", initialAccumulatorValue=" + initialAccumulatorValue() + ", nesterov=" + nesterov()
        + ", amsgrad=" + amsgrad() + ", maximize=" + maximize() + ", zeroGrads=" + zeroGrads()
        + ", writeGrads=" + writeGrads() + ")";
  }
}
