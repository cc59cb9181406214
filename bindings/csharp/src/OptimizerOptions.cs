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

    /// <summary>Learning rate, finite, at least 0.</summary>
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

    /// <summary>Added to the denominator, at least 0.</summary>
    public double Eps
    {
      get { return Handle.Eps; }
      set { Handle.Eps = value; }
    }

    /// <summary>At least 0.</summary>
    public double WeightDecay
    {
      get { return Handle.WeightDecay; }
      set { Handle.WeightDecay = value; }
    }

    /// <summary>SGD, at least 0. Default 0.</summary>
    public double Momentum
    {
      get { return Handle.Momentum; }
      set { Handle.Momentum = value; }
    }

    /// <summary>SGD. Default 0.</summary>
    public double Dampening
    {
      get { return Handle.Dampening; }
      set { Handle.Dampening = value; }
    }

    /// <summary>Adagrad, at least 0. Default 0.</summary>
    public double LrDecay
    {
      get { return Handle.LrDecay; }
      set { Handle.LrDecay = value; }
    }

    /// <summary>Adagrad: the sum starts at this, at least 0. Default 0.</summary>
    public double InitialAccumulatorValue
    {
      get { return Handle.InitialAccumulatorValue; }
      set { Handle.InitialAccumulatorValue = value; }
    }

    /// <summary>SGD: Nesterov momentum; needs momentum greater than 0 and dampening 0.</summary>
    public bool Nesterov
    {
      get { return Has(NativeCalls.OPTIMIZER_NESTEROV); }
      set { Set(NativeCalls.OPTIMIZER_NESTEROV, value); }
    }

    /// <summary>Adam, AdamW: the step is normalized by the largest second moment so far.</summary>
    public bool Amsgrad
    {
      get { return Has(NativeCalls.OPTIMIZER_AMSGRAD); }
      set { Set(NativeCalls.OPTIMIZER_AMSGRAD, value); }
    }

    /// <summary>Ascend instead of descend.</summary>
    public bool Maximize
    {
      get { return Has(NativeCalls.OPTIMIZER_MAXIMIZE); }
      set { Set(NativeCalls.OPTIMIZER_MAXIMIZE, value); }
    }

    /// <summary>Set the gradients to zero in the same pass, also when the step is skipped.</summary>
    public bool ZeroGrads
    {
      get { return Has(NativeCalls.OPTIMIZER_ZERO_GRADS); }
      set { Set(NativeCalls.OPTIMIZER_ZERO_GRADS, value); }
    }

    /// <summary>Write the unscaled and clipped gradients back in the same pass, unless the step is skipped.</summary>
    public bool WriteGrads
    {
      get { return Has(NativeCalls.OPTIMIZER_WRITE_GRADS); }
      set { Set(NativeCalls.OPTIMIZER_WRITE_GRADS, value); }
    }

    private bool Has(int bit)
    {
      return (Handle.Flags & (uint)bit) != 0;
    }

    private void Set(int bit, bool value)
    {
      Handle.Flags = value ? Handle.Flags | (uint)bit : Handle.Flags & ~(uint)bit;
    }
  }
}
