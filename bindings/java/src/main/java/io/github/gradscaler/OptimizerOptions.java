// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Hyper-parameters of an {@link Optimizer}. Start as the defaults of the kind. */
public final class OptimizerOptions {
  private final NativeOptimizerOptions handle;

  /**
   * The defaults of a kind.
   *
   * @param kind which optimizer
   */
  public OptimizerOptions(OptimizerKind kind) {
    handle = new NativeOptimizerOptions(Check.notNull(kind, "kind").code());
  }

  // gen-api: kinds gsc_optimizer_options
  /**
   * Stochastic gradient descent, as torch.optim.SGD.
   *
   * @return its defaults
   */
  public static OptimizerOptions sgd() {
    return new OptimizerOptions(OptimizerKind.SGD);
  }

  /**
   * Adam, as torch.optim.Adam: weight decay is added to the gradient.
   *
   * @return its defaults
   */
  public static OptimizerOptions adam() {
    return new OptimizerOptions(OptimizerKind.ADAM);
  }

  /**
   * Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW.
   *
   * @return its defaults
   */
  public static OptimizerOptions adamW() {
    return new OptimizerOptions(OptimizerKind.ADAMW);
  }

  /**
   * Adagrad, as torch.optim.Adagrad.
   *
   * @return its defaults
   */
  public static OptimizerOptions adagrad() {
    return new OptimizerOptions(OptimizerKind.ADAGRAD);
  }

  /**
   * Lion (Chen et al. 2023, arXiv:2302.06675).
   *
   * @return its defaults
   */
  public static OptimizerOptions lion() {
    return new OptimizerOptions(OptimizerKind.LION);
  }

  /**
   * LAMB (You et al. 2020, arXiv:1904.00962).
   *
   * @return its defaults
   */
  public static OptimizerOptions lamb() {
    return new OptimizerOptions(OptimizerKind.LAMB);
  }

  /**
   * RMSprop, as torch.optim.RMSprop; with epsRoot in place of eps as TensorFlow's and Keras's.
   *
   * @return its defaults
   */
  public static OptimizerOptions rmsprop() {
    return new OptimizerOptions(OptimizerKind.RMSPROP);
  }

  /**
   * Adadelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta.
   *
   * @return its defaults
   */
  public static OptimizerOptions adadelta() {
    return new OptimizerOptions(OptimizerKind.ADADELTA);
  }

  /**
   * Adamax (Kingma and Ba 2015), as torch.optim.Adamax.
   *
   * @return its defaults
   */
  public static OptimizerOptions adamax() {
    return new OptimizerOptions(OptimizerKind.ADAMAX);
  }

  /**
   * NAdam (Dozat 2016), as torch.optim.NAdam.
   *
   * @return its defaults
   */
  public static OptimizerOptions nadam() {
    return new OptimizerOptions(OptimizerKind.NADAM);
  }

  /**
   * RAdam (Liu et al. 2020, arXiv:1908.03265), as torch.optim.RAdam.
   *
   * @return its defaults
   */
  public static OptimizerOptions radam() {
    return new OptimizerOptions(OptimizerKind.RADAM);
  }

  /**
   * AdaBelief (Zhuang et al. 2020, arXiv:2010.07468), as optax.adabelief.
   *
   * @return its defaults
   */
  public static OptimizerOptions adaBelief() {
    return new OptimizerOptions(OptimizerKind.ADABELIEF);
  }

  /**
   * AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137).
   *
   * @return its defaults
   */
  public static OptimizerOptions adEMAMix() {
    return new OptimizerOptions(OptimizerKind.ADEMAMIX);
  }

  /**
   * Schedule-Free AdamW (Defazio et al. 2024, arXiv:2405.15682), as in the package schedulefree.
   *
   * @return its defaults
   */
  public static OptimizerOptions adamwScheduleFree() {
    return new OptimizerOptions(OptimizerKind.ADAMW_SCHEDULE_FREE);
  }

  /**
   * Schedule-Free SGD (Defazio et al. 2024), as in the package schedulefree.
   *
   * @return its defaults
   */
  public static OptimizerOptions sgdScheduleFree() {
    return new OptimizerOptions(OptimizerKind.SGD_SCHEDULE_FREE);
  }

  /**
   * LARS (You et al. 2017, arXiv:1708.03888), as optax.lars.
   *
   * @return its defaults
   */
  public static OptimizerOptions lars() {
    return new OptimizerOptions(OptimizerKind.LARS);
  }

  /**
   * NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286), as optax.novograd.
   *
   * @return its defaults
   */
  public static OptimizerOptions novoGrad() {
    return new OptimizerOptions(OptimizerKind.NOVOGRAD);
  }
  // gen-api: end

  NativeOptimizerOptions handle() {
    return handle;
  }

  /**
   * The kind of optimizer.
   *
   * @return as given
   */
  public OptimizerKind kind() {
    return OptimizerKind.of(handle.getKind());
  }

  // gen-api: accessors gsc_optimizer_options
  /**
   * StateFormat: the format of state that the library allocates. State lists of the caller have their own dtypes.
   *
   * @return the value
   */
  public StateFormat stateFormat() {
    return StateFormat.of(handle.getStateFormat());
  }

  /**
   * Sets {@link #stateFormat()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions stateFormat(StateFormat value) {
    handle.setStateFormat(Check.notNull(value, "stateFormat").code());
    return this;
  }

  /**
   * Learning rate, &gt;= 0. All numbers here must be finite when converted to float. fp64 parameters use the doubles.
   *
   * @return the value
   */
  public double lr() {
    return handle.getLr();
  }

  /**
   * Sets {@link #lr()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions lr(double value) {
    handle.setLr(value);
    return this;
  }

  /**
   * Decay of the first moment, in [0, 1).
   *
   * @return the value
   */
  public double beta1() {
    return handle.getBeta1();
  }

  /**
   * Sets {@link #beta1()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions beta1(double value) {
    handle.setBeta1(value);
    return this;
  }

  /**
   * Decay of the second moment, in [0, 1). Lion: of its state.
   *
   * @return the value
   */
  public double beta2() {
    return handle.getBeta2();
  }

  /**
   * Sets {@link #beta2()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions beta2(double value) {
    handle.setBeta2(value);
    return this;
  }

  /**
   * Added to the denominator, &gt;= 0.
   *
   * @return the value
   */
  public double eps() {
    return handle.getEps();
  }

  /**
   * Sets {@link #eps()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions eps(double value) {
    handle.setEps(value);
    return this;
  }

  /**
   * Weight decay, &gt;= 0; decoupled or added to the gradient, as the kind says.
   *
   * @return the value
   */
  public double weightDecay() {
    return handle.getWeightDecay();
  }

  /**
   * Sets {@link #weightDecay()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions weightDecay(double value) {
    handle.setWeightDecay(value);
    return this;
  }

  /**
   * SGD, RMSprop: momentum, &gt;= 0. Default 0. There is a momentum buffer if group 0 has momentum. LARS: also.
   * Schedule-Free SGD: in (0, 1).
   *
   * @return the value
   */
  public double momentum() {
    return handle.getMomentum();
  }

  /**
   * Sets {@link #momentum()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions momentum(double value) {
    handle.setMomentum(value);
    return this;
  }

  /**
   * SGD: dampening of the momentum. Default 0. NovoGrad: exp_avg gets 1 - dampening of a gradient.
   *
   * @return the value
   */
  public double dampening() {
    return handle.getDampening();
  }

  /**
   * Sets {@link #dampening()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions dampening(double value) {
    handle.setDampening(value);
    return this;
  }

  /**
   * Adagrad: decay of the learning rate, &gt;= 0. Default 0.
   *
   * @return the value
   */
  public double lrDecay() {
    return handle.getLrDecay();
  }

  /**
   * Sets {@link #lrDecay()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions lrDecay(double value) {
    handle.setLrDecay(value);
    return this;
  }

  /**
   * Adagrad: initial value of a group's `sum` in state that the library allocates, &gt;= 0. Default 0.
   *
   * @return the value
   */
  public double initialAccumulatorValue() {
    return handle.getInitialAccumulatorValue();
  }

  /**
   * Sets {@link #initialAccumulatorValue()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions initialAccumulatorValue(double value) {
    handle.setInitialAccumulatorValue(value);
    return this;
  }

  /**
   * Seed of stochastic rounding. Default 0.
   *
   * @return the value
   */
  public long seed() {
    return handle.getSeed();
  }

  /**
   * Sets {@link #seed()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions seed(long value) {
    handle.setSeed(value);
    return this;
  }

  /**
   * MasterFormat. Other values than {@link MasterFormat#NONE} need fp16 or bf16 parameters.
   *
   * @return the value
   */
  public MasterFormat masterFormat() {
    return MasterFormat.of(handle.getMasterFormat());
  }

  /**
   * Sets {@link #masterFormat()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions masterFormat(MasterFormat value) {
    handle.setMasterFormat(Check.notNull(value, "masterFormat").code());
    return this;
  }

  /**
   * RMSprop: decay of the means, in [0, 1). AdEMAMix: weight of the slow mean, &gt;= 0.
   *
   * @return the value
   */
  public double alpha() {
    return handle.getAlpha();
  }

  /**
   * Sets {@link #alpha()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions alpha(double value) {
    handle.setAlpha(value);
    return this;
  }

  /**
   * Adadelta: decay of the means, in [0, 1).
   *
   * @return the value
   */
  public double rho() {
    return handle.getRho();
  }

  /**
   * Sets {@link #rho()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions rho(double value) {
    handle.setRho(value);
    return this;
  }

  /**
   * NAdam: how fast the momentum grows, &gt;= 0.
   *
   * @return the value
   */
  public double momentumDecay() {
    return handle.getMomentumDecay();
  }

  /**
   * Sets {@link #momentumDecay()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions momentumDecay(double value) {
    handle.setMomentumDecay(value);
    return this;
  }

  /**
   * RMSprop: added inside the root, &gt;= 0. Default 0. AdaBelief: added to the second moment at each step.
   *
   * @return the value
   */
  public double epsRoot() {
    return handle.getEpsRoot();
  }

  /**
   * Sets {@link #epsRoot()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions epsRoot(double value) {
    handle.setEpsRoot(value);
    return this;
  }

  /**
   * AdEMAMix: decay of the slow mean of gradients, in [0, 1).
   *
   * @return the value
   */
  public double beta3() {
    return handle.getBeta3();
  }

  /**
   * Sets {@link #beta3()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions beta3(double value) {
    handle.setBeta3(value);
    return this;
  }

  /**
   * AdEMAMix: steps over which alpha grows from 0; Schedule-Free: lr. In 0..2^53. Default 0.
   *
   * @return the value
   */
  public long warmupSteps() {
    return handle.getWarmupSteps();
  }

  /**
   * Sets {@link #warmupSteps()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions warmupSteps(long value) {
    handle.setWarmupSteps(value);
    return this;
  }

  /**
   * AdEMAMix: steps over which the half-life of the slow mean grows from that of beta1, in 0..2^53. Default 0.
   *
   * @return the value
   */
  public long beta3Warmup() {
    return handle.getBeta3Warmup();
  }

  /**
   * Sets {@link #beta3Warmup()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions beta3Warmup(long value) {
    handle.setBeta3Warmup(value);
    return this;
  }

  /**
   * Schedule-Free: step t counts as t to this power in the average, &gt;= 0. Default 0. The package calls it r.
   *
   * @return the value
   */
  public double weightStepPower() {
    return handle.getWeightStepPower();
  }

  /**
   * Sets {@link #weightStepPower()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions weightStepPower(double value) {
    handle.setWeightStepPower(value);
    return this;
  }

  /**
   * Schedule-Free: and as the largest learning rate so far to this power, &gt;= 0.
   *
   * @return the value
   */
  public double weightLrPower() {
    return handle.getWeightLrPower();
  }

  /**
   * Sets {@link #weightLrPower()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions weightLrPower(double value) {
    handle.setWeightLrPower(value);
    return this;
  }

  /**
   * LARS: factor of the ratio of norms, &gt;= 0.
   *
   * @return the value
   */
  public double trustCoefficient() {
    return handle.getTrustCoefficient();
  }

  /**
   * Sets {@link #trustCoefficient()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions trustCoefficient(double value) {
    handle.setTrustCoefficient(value);
    return this;
  }

  /**
   * SGD, LARS: Nesterov momentum; needs momentum &gt; 0 and dampening 0.
   *
   * @return the value
   */
  public boolean nesterov() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_NESTEROV) != 0;
  }

  /**
   * Sets {@link #nesterov()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions nesterov(boolean value) {
    set(NativeCalls.OPTIMIZER_NESTEROV, value);
    return this;
  }

  /**
   * Adam, AdamW: the step is normalized by the largest exp_avg_sq so far.
   *
   * @return the value
   */
  public boolean amsgrad() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_AMSGRAD) != 0;
  }

  /**
   * Sets {@link #amsgrad()}.
   *
   * @param value the new value
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
    return (handle.getFlags() & NativeCalls.OPTIMIZER_MAXIMIZE) != 0;
  }

  /**
   * Sets {@link #maximize()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions maximize(boolean value) {
    set(NativeCalls.OPTIMIZER_MAXIMIZE, value);
    return this;
  }

  /**
   * Set the gradients to zero in the same pass, also when the step is skipped. Refused with writeGrads.
   *
   * @return the value
   */
  public boolean zeroGrads() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_ZERO_GRADS) != 0;
  }

  /**
   * Sets {@link #zeroGrads()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions zeroGrads(boolean value) {
    set(NativeCalls.OPTIMIZER_ZERO_GRADS, value);
    return this;
  }

  /**
   * Write the unscaled and clipped gradients back in the same pass, unless the step is skipped. Refused with
   * zeroGrads.
   *
   * @return the value
   */
  public boolean writeGrads() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_WRITE_GRADS) != 0;
  }

  /**
   * Sets {@link #writeGrads()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions writeGrads(boolean value) {
    set(NativeCalls.OPTIMIZER_WRITE_GRADS, value);
    return this;
  }

  /**
   * RMSprop: the root is of the estimated variance.
   *
   * @return the value
   */
  public boolean centered() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_CENTERED) != 0;
  }

  /**
   * Sets {@link #centered()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions centered(boolean value) {
    set(NativeCalls.OPTIMIZER_CENTERED, value);
    return this;
  }

  /**
   * NAdam, RAdam, AdaBelief: weight decay shrinks the parameter, instead of being added to the gradient. NovoGrad:
   * also, exp_avg is the mean of gradients, and divided after that.
   *
   * @return the value
   */
  public boolean decoupledWeightDecay() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_DECOUPLED_WEIGHT_DECAY) != 0;
  }

  /**
   * Sets {@link #decoupledWeightDecay()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions decoupledWeightDecay(boolean value) {
    set(NativeCalls.OPTIMIZER_DECOUPLED_WEIGHT_DECAY, value);
    return this;
  }

  /**
   * NovoGrad: both moments are divided by 1 - beta^t.
   *
   * @return the value
   */
  public boolean biasCorrection() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_BIAS_CORRECTION) != 0;
  }

  /**
   * Sets {@link #biasCorrection()}.
   *
   * @param value the new value
   * @return this
   */
  public OptimizerOptions biasCorrection(boolean value) {
    set(NativeCalls.OPTIMIZER_BIAS_CORRECTION, value);
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
    return "OptimizerOptions(kind=" + kind() + ", stateFormat=" + stateFormat() + ", lr=" + lr()
        + ", beta1=" + beta1() + ", beta2=" + beta2() + ", eps=" + eps() + ", weightDecay=" + weightDecay()
        + ", momentum=" + momentum() + ", dampening=" + dampening() + ", lrDecay=" + lrDecay()
        + ", initialAccumulatorValue=" + initialAccumulatorValue() + ", seed=" + seed()
        + ", masterFormat=" + masterFormat() + ", alpha=" + alpha() + ", rho=" + rho()
        + ", momentumDecay=" + momentumDecay() + ", epsRoot=" + epsRoot() + ", beta3=" + beta3()
        + ", warmupSteps=" + warmupSteps() + ", beta3Warmup=" + beta3Warmup()
        + ", weightStepPower=" + weightStepPower() + ", weightLrPower=" + weightLrPower()
        + ", trustCoefficient=" + trustCoefficient() + ", nesterov=" + nesterov() + ", amsgrad=" + amsgrad()
        + ", maximize=" + maximize() + ", zeroGrads=" + zeroGrads() + ", writeGrads=" + writeGrads()
        + ", centered=" + centered() + ", decoupledWeightDecay=" + decoupledWeightDecay()
        + ", biasCorrection=" + biasCorrection() + ")";
  }
  // gen-api: end
}
