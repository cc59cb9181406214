// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** Hyper-parameters of an {@link Optimizer}. Start as the defaults of the kind. */
public final class OptimizerOptions {
  private final NativeOptimizerOptions handle;

  /** The defaults of a kind. */
  public OptimizerOptions(OptimizerKind kind) {
    handle = new NativeOptimizerOptions(Check.notNull(kind, "kind").code());
  }

  // gen-api: kinds gsc_optimizer_options
  /**
   * Stochastic gradient descent, as torch.optim.SGD. State: momentum_buffer (if momentum). Defaults: lr 1e-3,
   * momentum 0, dampening 0, weightDecay 0.
   */
  public static OptimizerOptions sgd() {
    return new OptimizerOptions(OptimizerKind.SGD);
  }

  /**
   * Adam, as torch.optim.Adam: weight decay is added to the gradient. State: exp_avg, exp_avg_sq, max_exp_avg_sq (if
   * amsgrad). Defaults: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weightDecay 0.
   */
  public static OptimizerOptions adam() {
    return new OptimizerOptions(OptimizerKind.ADAM);
  }

  /**
   * Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW. State: exp_avg, exp_avg_sq,
   * max_exp_avg_sq (if amsgrad). Defaults: lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weightDecay 1e-2.
   */
  public static OptimizerOptions adamW() {
    return new OptimizerOptions(OptimizerKind.ADAMW);
  }

  /**
   * Adagrad, as torch.optim.Adagrad. `sum` starts at initialAccumulatorValue. State: sum. Defaults: lr 1e-2, lrDecay
   * 0, weightDecay 0, initialAccumulatorValue 0, eps 1e-10.
   */
  public static OptimizerOptions adagrad() {
    return new OptimizerOptions(OptimizerKind.ADAGRAD);
  }

  /**
   * Lion (Chen et al. 2023, arXiv:2302.06675). State: exp_avg. Defaults: lr 1e-4, beta1 0.9, beta2 0.99, weightDecay
   * 0.
   */
  public static OptimizerOptions lion() {
    return new OptimizerOptions(OptimizerKind.LION);
  }

  /**
   * LAMB (You et al. 2020, arXiv:1904.00962). State: exp_avg, exp_avg_sq. Defaults: lr 1e-3, beta1 0.9, beta2 0.999,
   * eps 1e-6, weightDecay 1e-2.
   */
  public static OptimizerOptions lamb() {
    return new OptimizerOptions(OptimizerKind.LAMB);
  }

  /**
   * RMSprop, as torch.optim.RMSprop; with epsRoot in place of eps as TensorFlow's and Keras's. State: square_avg,
   * momentum_buffer (if momentum), grad_avg (if centered). Defaults: lr 1e-2, alpha 0.99, eps 1e-8, weightDecay 0,
   * momentum 0, epsRoot 0.
   */
  public static OptimizerOptions rmsprop() {
    return new OptimizerOptions(OptimizerKind.RMSPROP);
  }

  /**
   * Adadelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta. State: square_avg, acc_delta. Defaults: lr 1.0,
   * rho 0.9, eps 1e-6, weightDecay 0.
   */
  public static OptimizerOptions adadelta() {
    return new OptimizerOptions(OptimizerKind.ADADELTA);
  }

  /**
   * Adamax (Kingma and Ba 2015), as torch.optim.Adamax. State: exp_avg, exp_inf. Defaults: lr 2e-3, beta1 0.9, beta2
   * 0.999, eps 1e-8, weightDecay 0.
   */
  public static OptimizerOptions adamax() {
    return new OptimizerOptions(OptimizerKind.ADAMAX);
  }

  /**
   * NAdam (Dozat 2016), as torch.optim.NAdam. State: exp_avg, exp_avg_sq. Defaults: lr 2e-3, beta1 0.9, beta2 0.999,
   * eps 1e-8, weightDecay 0, momentumDecay 4e-3.
   */
  public static OptimizerOptions nadam() {
    return new OptimizerOptions(OptimizerKind.NADAM);
  }

  /**
   * RAdam (Liu et al. 2020, arXiv:1908.03265), as torch.optim.RAdam. State: exp_avg, exp_avg_sq. Defaults: lr 1e-3,
   * beta1 0.9, beta2 0.999, eps 1e-8, weightDecay 0.
   */
  public static OptimizerOptions radam() {
    return new OptimizerOptions(OptimizerKind.RADAM);
  }

  /**
   * AdaBelief (Zhuang et al. 2020, arXiv:2010.07468), as optax.adabelief. State: exp_avg, exp_avg_var. Defaults: lr
   * 1e-3, beta1 0.9, beta2 0.999, eps 1e-16, weightDecay 0, epsRoot 1e-16.
   */
  public static OptimizerOptions adaBelief() {
    return new OptimizerOptions(OptimizerKind.ADABELIEF);
  }

  /**
   * AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137). State: exp_avg, exp_avg_sq, exp_avg_slow. Defaults: lr
   * 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weightDecay 1e-2, beta3 0.9999, alpha 5.0, warmupSteps 0, beta3Warmup 0.
   */
  public static OptimizerOptions adEMAMix() {
    return new OptimizerOptions(OptimizerKind.ADEMAMIX);
  }

  /**
   * Schedule-Free AdamW (Defazio et al. 2024, arXiv:2405.15682), as in the package schedulefree. State: z,
   * exp_avg_sq, average. Defaults: lr 2.5e-3, beta1 0.9, beta2 0.999, eps 1e-8, weightDecay 0, warmupSteps 0,
   * weightStepPower 0, weightLrPower 2.0.
   */
  public static OptimizerOptions adamWScheduleFree() {
    return new OptimizerOptions(OptimizerKind.ADAMW_SCHEDULE_FREE);
  }

  /**
   * Schedule-Free SGD (Defazio et al. 2024), as in the package schedulefree. State: z, average. Defaults: lr 1.0,
   * momentum 0.9, weightDecay 0, warmupSteps 0, weightStepPower 0, weightLrPower 2.0.
   */
  public static OptimizerOptions sgdScheduleFree() {
    return new OptimizerOptions(OptimizerKind.SGD_SCHEDULE_FREE);
  }

  /**
   * LARS (You et al. 2017, arXiv:1708.03888), as optax.lars. State: momentum_buffer (if momentum). Defaults: lr 1.0,
   * momentum 0.9, weightDecay 0, trustCoefficient 1e-3, eps 0.
   */
  public static OptimizerOptions lars() {
    return new OptimizerOptions(OptimizerKind.LARS);
  }

  /**
   * NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286), as optax.novograd. State: exp_avg, exp_avg_sq. Defaults: lr
   * 1e-2, beta1 0.95, beta2 0.98, eps 1e-8, weightDecay 0, dampening 0.
   */
  public static OptimizerOptions novoGrad() {
    return new OptimizerOptions(OptimizerKind.NOVOGRAD);
  }
  // gen-api: end

  NativeOptimizerOptions handle() {
    return handle;
  }

  /** The kind of optimizer. */
  public OptimizerKind kind() {
    return OptimizerKind.of(handle.getKind());
  }

  // gen-api: accessors gsc_optimizer_options
  /**
   * The format of state that the library allocates. State lists of the caller have their own dtypes. Default: {@link
   * StateFormat#FULL}.
   */
  public StateFormat stateFormat() {
    return StateFormat.of(handle.getStateFormat());
  }

  /** Sets {@link #stateFormat()}; returns this. */
  public OptimizerOptions stateFormat(StateFormat value) {
    handle.setStateFormat(Check.notNull(value, "stateFormat").code());
    return this;
  }

  /**
   * Learning rate. All numbers here must be finite when converted to float. fp64 parameters use the doubles. Range:
   * &gt;= 0.
   */
  public double lr() {
    return handle.getLr();
  }

  /** Sets {@link #lr()}; returns this. */
  public OptimizerOptions lr(double value) {
    handle.setLr(value);
    return this;
  }

  /**
   * Decay of the first moment. Range: [0, 1). Used by Adam, AdamW, Lion, LAMB, Adamax, NAdam, RAdam, AdaBelief,
   * AdEMAMix, AdamWScheduleFree and NovoGrad.
   */
  public double beta1() {
    return handle.getBeta1();
  }

  /** Sets {@link #beta1()}; returns this. */
  public OptimizerOptions beta1(double value) {
    handle.setBeta1(value);
    return this;
  }

  /**
   * Decay of the second moment. Lion: of its state. Range: [0, 1). Used by Adam, AdamW, Lion, LAMB, Adamax, NAdam,
   * RAdam, AdaBelief, AdEMAMix, AdamWScheduleFree and NovoGrad.
   */
  public double beta2() {
    return handle.getBeta2();
  }

  /** Sets {@link #beta2()}; returns this. */
  public OptimizerOptions beta2(double value) {
    handle.setBeta2(value);
    return this;
  }

  /**
   * Added to the denominator. Range: &gt;= 0. Used by Adam, AdamW, Adagrad, LAMB, RMSprop, Adadelta, Adamax, NAdam,
   * RAdam, AdaBelief, AdEMAMix, AdamWScheduleFree, LARS and NovoGrad.
   */
  public double eps() {
    return handle.getEps();
  }

  /** Sets {@link #eps()}; returns this. */
  public OptimizerOptions eps(double value) {
    handle.setEps(value);
    return this;
  }

  /** Weight decay; decoupled or added to the gradient, depending on the kind. Range: &gt;= 0. */
  public double weightDecay() {
    return handle.getWeightDecay();
  }

  /** Sets {@link #weightDecay()}; returns this. */
  public OptimizerOptions weightDecay(double value) {
    handle.setWeightDecay(value);
    return this;
  }

  /**
   * Momentum. There is a momentum buffer if group 0 has momentum. Schedule-Free SGD: the weight of the average at
   * which gradients are taken. Range: &gt;= 0. Used by SGD, RMSprop, SGDScheduleFree and LARS.
   */
  public double momentum() {
    return handle.getMomentum();
  }

  /** Sets {@link #momentum()}; returns this. */
  public OptimizerOptions momentum(double value) {
    handle.setMomentum(value);
    return this;
  }

  /**
   * Dampening of the momentum. NovoGrad: exp_avg gets 1 - dampening of a gradient. Range: finite. Used by SGD and
   * NovoGrad.
   */
  public double dampening() {
    return handle.getDampening();
  }

  /** Sets {@link #dampening()}; returns this. */
  public OptimizerOptions dampening(double value) {
    handle.setDampening(value);
    return this;
  }

  /** Decay of the learning rate. Range: &gt;= 0. Used by Adagrad. */
  public double lrDecay() {
    return handle.getLrDecay();
  }

  /** Sets {@link #lrDecay()}; returns this. */
  public OptimizerOptions lrDecay(double value) {
    handle.setLrDecay(value);
    return this;
  }

  /** Initial value of a group's `sum` in state that the library allocates. Range: &gt;= 0. Used by Adagrad. */
  public double initialAccumulatorValue() {
    return handle.getInitialAccumulatorValue();
  }

  /** Sets {@link #initialAccumulatorValue()}; returns this. */
  public OptimizerOptions initialAccumulatorValue(double value) {
    handle.setInitialAccumulatorValue(value);
    return this;
  }

  /** Seed of stochastic rounding. Default: 0. */
  public long seed() {
    return handle.getSeed();
  }

  /** Sets {@link #seed()}; returns this. */
  public OptimizerOptions seed(long value) {
    handle.setSeed(value);
    return this;
  }

  /** Other values than {@link MasterFormat#NONE} need fp16 or bf16 parameters. Default: {@link MasterFormat#NONE}. */
  public MasterFormat masterFormat() {
    return MasterFormat.of(handle.getMasterFormat());
  }

  /** Sets {@link #masterFormat()}; returns this. */
  public OptimizerOptions masterFormat(MasterFormat value) {
    handle.setMasterFormat(Check.notNull(value, "masterFormat").code());
    return this;
  }

  /** RMSprop: decay of the means. AdEMAMix: weight of the slow mean. Range: &gt;= 0. Used by RMSprop and AdEMAMix. */
  public double alpha() {
    return handle.getAlpha();
  }

  /** Sets {@link #alpha()}; returns this. */
  public OptimizerOptions alpha(double value) {
    handle.setAlpha(value);
    return this;
  }

  /** Decay of the means. Range: [0, 1). Used by Adadelta. */
  public double rho() {
    return handle.getRho();
  }

  /** Sets {@link #rho()}; returns this. */
  public OptimizerOptions rho(double value) {
    handle.setRho(value);
    return this;
  }

  /** How fast the momentum grows. Range: &gt;= 0. Used by NAdam. */
  public double momentumDecay() {
    return handle.getMomentumDecay();
  }

  /** Sets {@link #momentumDecay()}; returns this. */
  public OptimizerOptions momentumDecay(double value) {
    handle.setMomentumDecay(value);
    return this;
  }

  /**
   * RMSprop: added inside the root. AdaBelief: added to the second moment at each step. Range: &gt;= 0. Used by
   * RMSprop and AdaBelief.
   */
  public double epsRoot() {
    return handle.getEpsRoot();
  }

  /** Sets {@link #epsRoot()}; returns this. */
  public OptimizerOptions epsRoot(double value) {
    handle.setEpsRoot(value);
    return this;
  }

  /** Decay of the slow mean of gradients. Range: [0, 1). Used by AdEMAMix. */
  public double beta3() {
    return handle.getBeta3();
  }

  /** Sets {@link #beta3()}; returns this. */
  public OptimizerOptions beta3(double value) {
    handle.setBeta3(value);
    return this;
  }

  /**
   * AdEMAMix: steps over which alpha grows from 0. Schedule-Free: those over which lr does. Range: 0..2^53. Used by
   * AdEMAMix, AdamWScheduleFree and SGDScheduleFree.
   */
  public long warmupSteps() {
    return handle.getWarmupSteps();
  }

  /** Sets {@link #warmupSteps()}; returns this. */
  public OptimizerOptions warmupSteps(long value) {
    handle.setWarmupSteps(value);
    return this;
  }

  /** Steps over which the half-life of the slow mean grows from that of beta1. Range: 0..2^53. Used by AdEMAMix. */
  public long beta3Warmup() {
    return handle.getBeta3Warmup();
  }

  /** Sets {@link #beta3Warmup()}; returns this. */
  public OptimizerOptions beta3Warmup(long value) {
    handle.setBeta3Warmup(value);
    return this;
  }

  /**
   * Step t counts as t to this power in the average. The package schedulefree calls it r. Range: &gt;= 0. Used by
   * AdamWScheduleFree and SGDScheduleFree.
   */
  public double weightStepPower() {
    return handle.getWeightStepPower();
  }

  /** Sets {@link #weightStepPower()}; returns this. */
  public OptimizerOptions weightStepPower(double value) {
    handle.setWeightStepPower(value);
    return this;
  }

  /**
   * A step also counts as the largest learning rate so far to this power. Range: &gt;= 0. Used by AdamWScheduleFree
   * and SGDScheduleFree.
   */
  public double weightLrPower() {
    return handle.getWeightLrPower();
  }

  /** Sets {@link #weightLrPower()}; returns this. */
  public OptimizerOptions weightLrPower(double value) {
    handle.setWeightLrPower(value);
    return this;
  }

  /** Factor of the ratio of norms. Range: &gt;= 0. Used by LARS. */
  public double trustCoefficient() {
    return handle.getTrustCoefficient();
  }

  /** Sets {@link #trustCoefficient()}; returns this. */
  public OptimizerOptions trustCoefficient(double value) {
    handle.setTrustCoefficient(value);
    return this;
  }

  /**
   * Decay of an exponential moving average of the parameters. The average is the state slot `ema` if group 0 has a
   * decay above 0, and a copy of the parameters in a group where it is 0. Range: [0, 1). Default: 0.
   */
  public double emaDecay() {
    return handle.getEmaDecay();
  }

  /** Sets {@link #emaDecay()}; returns this. */
  public OptimizerOptions emaDecay(double value) {
    handle.setEmaDecay(value);
    return this;
  }

  /**
   * The least value of a group's parameters: a step sets those below it to it, before it rounds, copies or averages
   * them. NaN stays. No range if this and paramMax are 0. A dtype that does not have the bound rounds it. A Schedule-
   * Free kind takes no range: the average of its iterates would leave it. Range: finite. Default: 0.
   */
  public double paramMin() {
    return handle.getParamMin();
  }

  /** Sets {@link #paramMin()}; returns this. */
  public OptimizerOptions paramMin(double value) {
    handle.setParamMin(value);
    return this;
  }

  /** The largest value of a group's parameters, not below paramMin. Range: finite. Default: 0. */
  public double paramMax() {
    return handle.getParamMax();
  }

  /** Sets {@link #paramMax()}; returns this. */
  public OptimizerOptions paramMax(double value) {
    handle.setParamMax(value);
    return this;
  }

  /** Nesterov momentum; needs momentum &gt; 0 and dampening 0. Used by SGD and LARS. */
  public boolean nesterov() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_NESTEROV) != 0;
  }

  /** Sets {@link #nesterov()}; returns this. */
  public OptimizerOptions nesterov(boolean value) {
    set(NativeCalls.OPTIMIZER_NESTEROV, value);
    return this;
  }

  /** The step is normalized by the largest exp_avg_sq so far. Used by Adam and AdamW. */
  public boolean amsgrad() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_AMSGRAD) != 0;
  }

  /** Sets {@link #amsgrad()}; returns this. */
  public OptimizerOptions amsgrad(boolean value) {
    set(NativeCalls.OPTIMIZER_AMSGRAD, value);
    return this;
  }

  /** Ascend instead of descend. */
  public boolean maximize() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_MAXIMIZE) != 0;
  }

  /** Sets {@link #maximize()}; returns this. */
  public OptimizerOptions maximize(boolean value) {
    set(NativeCalls.OPTIMIZER_MAXIMIZE, value);
    return this;
  }

  /** Set the gradients to zero in the same pass, also when the step is skipped. Refused with writeGrads. */
  public boolean zeroGrads() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_ZERO_GRADS) != 0;
  }

  /** Sets {@link #zeroGrads()}; returns this. */
  public OptimizerOptions zeroGrads(boolean value) {
    set(NativeCalls.OPTIMIZER_ZERO_GRADS, value);
    return this;
  }

  /**
   * Write the unscaled and clipped gradients back in the same pass, unless the step is skipped. Refused with
   * zeroGrads.
   */
  public boolean writeGrads() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_WRITE_GRADS) != 0;
  }

  /** Sets {@link #writeGrads()}; returns this. */
  public OptimizerOptions writeGrads(boolean value) {
    set(NativeCalls.OPTIMIZER_WRITE_GRADS, value);
    return this;
  }

  /** The root is of the estimated variance. Its two means are fp32 in every format of state. Used by RMSprop. */
  public boolean centered() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_CENTERED) != 0;
  }

  /** Sets {@link #centered()}; returns this. */
  public OptimizerOptions centered(boolean value) {
    set(NativeCalls.OPTIMIZER_CENTERED, value);
    return this;
  }

  /**
   * Weight decay shrinks the parameter, instead of being added to the gradient. NovoGrad: also, exp_avg is the mean
   * of gradients, and divided after that. Used by NAdam, RAdam, AdaBelief and NovoGrad.
   */
  public boolean decoupledWeightDecay() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_DECOUPLED_WEIGHT_DECAY) != 0;
  }

  /** Sets {@link #decoupledWeightDecay()}; returns this. */
  public OptimizerOptions decoupledWeightDecay(boolean value) {
    set(NativeCalls.OPTIMIZER_DECOUPLED_WEIGHT_DECAY, value);
    return this;
  }

  /** Both moments are divided by 1 - beta^t. Used by NovoGrad. */
  public boolean biasCorrection() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_BIAS_CORRECTION) != 0;
  }

  /** Sets {@link #biasCorrection()}; returns this. */
  public OptimizerOptions biasCorrection(boolean value) {
    set(NativeCalls.OPTIMIZER_BIAS_CORRECTION, value);
    return this;
  }

  /** Count the elements that a step leaves as they were: see {@link Optimizer#unchanged}. Steps take longer. */
  public boolean countUnchanged() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_COUNT_UNCHANGED) != 0;
  }

  /** Sets {@link #countUnchanged()}; returns this. */
  public OptimizerOptions countUnchanged(boolean value) {
    set(NativeCalls.OPTIMIZER_COUNT_UNCHANGED, value);
    return this;
  }

  /**
   * The decay of `ema` is at most (1 + n) / (10 + n) when a tensor has taken n steps before, as TensorFlow's
   * ExponentialMovingAverage with num_updates.
   */
  public boolean emaWarmup() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_EMA_WARMUP) != 0;
  }

  /** Sets {@link #emaWarmup()}; returns this. */
  public OptimizerOptions emaWarmup(boolean value) {
    set(NativeCalls.OPTIMIZER_EMA_WARMUP, value);
    return this;
  }

  /**
   * Leaves out the update of an element whose gradient has the opposite sign or is 0 (Liang et al. 2024,
   * arXiv:2411.16085). Decoupled weight decay, the state and NaN are as without the flag. With Adam the gradient has
   * the weight decay in it. The paper and timm then divide the updates of a tensor by the share that is not left out,
   * which takes a second pass. This library does not: a larger lr makes up for it. Used by Adam, AdamW and Lion.
   */
  public boolean cautious() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_CAUTIOUS) != 0;
  }

  /** Sets {@link #cautious()}; returns this. */
  public OptimizerOptions cautious(boolean value) {
    set(NativeCalls.OPTIMIZER_CAUTIOUS, value);
    return this;
  }

  /**
   * Leaves out the weight decay of an element that the update moves away from 0, whose parameter and update have
   * opposite signs (Chen et al. 2025, arXiv:2510.12402, algorithm 1). With cautious too, the update is that before it
   * is left out. Used by AdamW and Lion.
   */
  public boolean cautiousDecay() {
    return (handle.getFlags() & NativeCalls.OPTIMIZER_CAUTIOUS_DECAY) != 0;
  }

  /** Sets {@link #cautiousDecay()}; returns this. */
  public OptimizerOptions cautiousDecay(boolean value) {
    set(NativeCalls.OPTIMIZER_CAUTIOUS_DECAY, value);
    return this;
  }

  private void set(int bit, boolean value) {
    handle.setFlags(value ? handle.getFlags() | bit : handle.getFlags() & ~bit);
  }

  /** Every value by its name, for messages. */
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
        + ", trustCoefficient=" + trustCoefficient() + ", emaDecay=" + emaDecay() + ", paramMin=" + paramMin()
        + ", paramMax=" + paramMax() + ", nesterov=" + nesterov() + ", amsgrad=" + amsgrad()
        + ", maximize=" + maximize() + ", zeroGrads=" + zeroGrads() + ", writeGrads=" + writeGrads()
        + ", centered=" + centered() + ", decoupledWeightDecay=" + decoupledWeightDecay()
        + ", biasCorrection=" + biasCorrection() + ", countUnchanged=" + countUnchanged()
        + ", emaWarmup=" + emaWarmup() + ", cautious=" + cautious() + ", cautiousDecay=" + cautiousDecay() + ")";
  }
  // gen-api: end
}
