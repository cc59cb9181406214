// SPDX-License-Identifier: Apache-2.0
namespace Gradscaler
{
  /// <summary>Hyper-parameters of an Optimizer. Start as the defaults of the kind.</summary>
  public sealed class OptimizerOptions
  {
    internal readonly NativeOptimizerOptions Handle;

    /// <summary>The defaults of a kind.</summary>
    public OptimizerOptions(OptimizerKind kind)
    {
      Handle = new NativeOptimizerOptions((int)kind);
    }

    /// <summary>The kind of optimizer.</summary>
    public OptimizerKind Kind
    {
      get { return (OptimizerKind)Handle.Kind; }
    }

    // gen-api: properties gsc_optimizer_options
    /// <summary>
    /// StateFormat: the format of state that the library allocates. State lists of the caller have their own dtypes.
    /// </summary>
    public StateFormat StateFormat
    {
      get { return (StateFormat)Handle.StateFormat; }
      set { Handle.StateFormat = (int)value; }
    }

    /// <summary>
    /// Learning rate, &gt;= 0. All numbers here must be finite when converted to float. fp64 parameters use the
    /// doubles.
    /// </summary>
    public double Lr
    {
      get { return Handle.Lr; }
      set { Handle.Lr = value; }
    }

    /// <summary>Decay of the first moment, in [0, 1).</summary>
    public double Beta1
    {
      get { return Handle.Beta1; }
      set { Handle.Beta1 = value; }
    }

    /// <summary>Decay of the second moment, in [0, 1). Lion: of its state.</summary>
    public double Beta2
    {
      get { return Handle.Beta2; }
      set { Handle.Beta2 = value; }
    }

    /// <summary>Added to the denominator, &gt;= 0.</summary>
    public double Eps
    {
      get { return Handle.Eps; }
      set { Handle.Eps = value; }
    }

    /// <summary>Weight decay, &gt;= 0; decoupled or added to the gradient, as the kind says.</summary>
    public double WeightDecay
    {
      get { return Handle.WeightDecay; }
      set { Handle.WeightDecay = value; }
    }

    /// <summary>
    /// SGD, RMSprop: momentum, &gt;= 0. Default 0. There is a momentum buffer if group 0 has momentum. LARS: also.
    /// Schedule-Free SGD: in (0, 1).
    /// </summary>
    public double Momentum
    {
      get { return Handle.Momentum; }
      set { Handle.Momentum = value; }
    }

    /// <summary>
    /// SGD: dampening of the momentum. Default 0. NovoGrad: exp_avg gets 1 - dampening of a gradient.
    /// </summary>
    public double Dampening
    {
      get { return Handle.Dampening; }
      set { Handle.Dampening = value; }
    }

    /// <summary>Adagrad: decay of the learning rate, &gt;= 0. Default 0.</summary>
    public double LrDecay
    {
      get { return Handle.LrDecay; }
      set { Handle.LrDecay = value; }
    }

    /// <summary>
    /// Adagrad: initial value of a group's `sum` in state that the library allocates, &gt;= 0. Default 0.
    /// </summary>
    public double InitialAccumulatorValue
    {
      get { return Handle.InitialAccumulatorValue; }
      set { Handle.InitialAccumulatorValue = value; }
    }

    /// <summary>Seed of stochastic rounding. Default 0.</summary>
    public long Seed
    {
      get { return Handle.Seed; }
      set { Handle.Seed = value; }
    }

    /// <summary>MasterFormat. Other values than MasterFormat.None need fp16 or bf16 parameters.</summary>
    public MasterFormat MasterFormat
    {
      get { return (MasterFormat)Handle.MasterFormat; }
      set { Handle.MasterFormat = (int)value; }
    }

    /// <summary>RMSprop: decay of the means, in [0, 1). AdEMAMix: weight of the slow mean, &gt;= 0.</summary>
    public double Alpha
    {
      get { return Handle.Alpha; }
      set { Handle.Alpha = value; }
    }

    /// <summary>Adadelta: decay of the means, in [0, 1).</summary>
    public double Rho
    {
      get { return Handle.Rho; }
      set { Handle.Rho = value; }
    }

    /// <summary>NAdam: how fast the momentum grows, &gt;= 0.</summary>
    public double MomentumDecay
    {
      get { return Handle.MomentumDecay; }
      set { Handle.MomentumDecay = value; }
    }

    /// <summary>
    /// RMSprop: added inside the root, &gt;= 0. Default 0. AdaBelief: added to the second moment at each step.
    /// </summary>
    public double EpsRoot
    {
      get { return Handle.EpsRoot; }
      set { Handle.EpsRoot = value; }
    }

    /// <summary>AdEMAMix: decay of the slow mean of gradients, in [0, 1).</summary>
    public double Beta3
    {
      get { return Handle.Beta3; }
      set { Handle.Beta3 = value; }
    }

    /// <summary>AdEMAMix: steps over which alpha grows from 0; Schedule-Free: lr. In 0..2^53. Default 0.</summary>
    public long WarmupSteps
    {
      get { return Handle.WarmupSteps; }
      set { Handle.WarmupSteps = value; }
    }

    /// <summary>
    /// AdEMAMix: steps over which the half-life of the slow mean grows from that of beta1, in 0..2^53. Default 0.
    /// </summary>
    public long Beta3Warmup
    {
      get { return Handle.Beta3Warmup; }
      set { Handle.Beta3Warmup = value; }
    }

    /// <summary>
    /// Schedule-Free: step t counts as t to this power in the average, &gt;= 0. Default 0. The package calls it r.
    /// </summary>
    public double WeightStepPower
    {
      get { return Handle.WeightStepPower; }
      set { Handle.WeightStepPower = value; }
    }

    /// <summary>Schedule-Free: and as the largest learning rate so far to this power, &gt;= 0.</summary>
    public double WeightLrPower
    {
      get { return Handle.WeightLrPower; }
      set { Handle.WeightLrPower = value; }
    }

    /// <summary>LARS: factor of the ratio of norms, &gt;= 0.</summary>
    public double TrustCoefficient
    {
      get { return Handle.TrustCoefficient; }
      set { Handle.TrustCoefficient = value; }
    }

    /// <summary>SGD, LARS: Nesterov momentum; needs momentum &gt; 0 and dampening 0.</summary>
    public bool Nesterov
    {
      get { return (Handle.Flags & NativeCalls.OPTIMIZER_NESTEROV) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.OPTIMIZER_NESTEROV : Handle.Flags & ~(uint)NativeCalls.OPTIMIZER_NESTEROV;
      }
    }

    /// <summary>Adam, AdamW: the step is normalized by the largest exp_avg_sq so far.</summary>
    public bool Amsgrad
    {
      get { return (Handle.Flags & NativeCalls.OPTIMIZER_AMSGRAD) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.OPTIMIZER_AMSGRAD : Handle.Flags & ~(uint)NativeCalls.OPTIMIZER_AMSGRAD;
      }
    }

    /// <summary>Ascend instead of descend.</summary>
    public bool Maximize
    {
      get { return (Handle.Flags & NativeCalls.OPTIMIZER_MAXIMIZE) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.OPTIMIZER_MAXIMIZE : Handle.Flags & ~(uint)NativeCalls.OPTIMIZER_MAXIMIZE;
      }
    }

    /// <summary>
    /// Set the gradients to zero in the same pass, also when the step is skipped. Refused with WriteGrads.
    /// </summary>
    public bool ZeroGrads
    {
      get { return (Handle.Flags & NativeCalls.OPTIMIZER_ZERO_GRADS) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.OPTIMIZER_ZERO_GRADS : Handle.Flags & ~(uint)NativeCalls.OPTIMIZER_ZERO_GRADS;
      }
    }

    /// <summary>
    /// Write the unscaled and clipped gradients back in the same pass, unless the step is skipped. Refused with
    /// ZeroGrads.
    /// </summary>
    public bool WriteGrads
    {
      get { return (Handle.Flags & NativeCalls.OPTIMIZER_WRITE_GRADS) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.OPTIMIZER_WRITE_GRADS : Handle.Flags & ~(uint)NativeCalls.OPTIMIZER_WRITE_GRADS;
      }
    }

    /// <summary>RMSprop: the root is of the estimated variance.</summary>
    public bool Centered
    {
      get { return (Handle.Flags & NativeCalls.OPTIMIZER_CENTERED) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.OPTIMIZER_CENTERED : Handle.Flags & ~(uint)NativeCalls.OPTIMIZER_CENTERED;
      }
    }

    /// <summary>
    /// NAdam, RAdam, AdaBelief: weight decay shrinks the parameter, instead of being added to the gradient. NovoGrad:
    /// also, exp_avg is the mean of gradients, and divided after that.
    /// </summary>
    public bool DecoupledWeightDecay
    {
      get { return (Handle.Flags & NativeCalls.OPTIMIZER_DECOUPLED_WEIGHT_DECAY) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.OPTIMIZER_DECOUPLED_WEIGHT_DECAY : Handle.Flags & ~(uint)NativeCalls.OPTIMIZER_DECOUPLED_WEIGHT_DECAY;
      }
    }

    /// <summary>NovoGrad: both moments are divided by 1 - beta^t.</summary>
    public bool BiasCorrection
    {
      get { return (Handle.Flags & NativeCalls.OPTIMIZER_BIAS_CORRECTION) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.OPTIMIZER_BIAS_CORRECTION : Handle.Flags & ~(uint)NativeCalls.OPTIMIZER_BIAS_CORRECTION;
      }
    }
    // gen-api: end
  }
}
