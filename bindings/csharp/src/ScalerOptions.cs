// SPDX-License-Identifier: Apache-2.0
namespace Gradscaler
{
  /// <summary>
  /// The policy of a GradScaler. Starts as PyTorch's; the library checks it when a scaler is made of it.
  /// </summary>
  public sealed class ScalerOptions
  {
    internal readonly NativeScalerOptions Handle = new NativeScalerOptions();

    /// <summary>PyTorch's policy.</summary>
    public ScalerOptions()
    {
    }

    /// <summary>The policy of another system.</summary>
    public ScalerOptions(Preset preset)
    {
      Handle.Preset((int)preset);
    }

    /// <summary>First scale, finite and greater than 0. Default 65536.</summary>
    public float InitScale
    {
      get { return Handle.InitScale; }
      set { Handle.InitScale = value; }
    }

    /// <summary>The scale is not lowered below this; 0: no floor. Default 0.</summary>
    public float MinScale
    {
      get { return Handle.MinScale; }
      set { Handle.MinScale = value; }
    }

    /// <summary>The scale is not raised above this; 0: no ceiling. Default 0.</summary>
    public float MaxScale
    {
      get { return Handle.MaxScale; }
      set { Handle.MaxScale = value; }
    }

    /// <summary>Clean steps between growths, at least 1. Default 2000.</summary>
    public int GrowthInterval
    {
      get { return Handle.GrowthInterval; }
      set { Handle.GrowthInterval = value; }
    }

    /// <summary>The scale is multiplied by this to grow, greater than 1. Default 2.</summary>
    public double GrowthFactor
    {
      get { return Handle.GrowthFactor; }
      set { Handle.GrowthFactor = value; }
    }

    /// <summary>The scale is multiplied by this on overflow, in (0, 1). Default 0.5.</summary>
    public double BackoffFactor
    {
      get { return Handle.BackoffFactor; }
      set { Handle.BackoffFactor = value; }
    }

    /// <summary>If false the scale is 1, nothing is checked and every step is applied. Default true.</summary>
    public bool Enabled
    {
      get { return Handle.Enabled != 0; }
      set { Handle.Enabled = value ? 1 : 0; }
    }

    /// <summary>Back off at this overflow, at least 1. Default 1.</summary>
    public int Hysteresis
    {
      get { return Handle.Hysteresis; }
      set { Handle.Hysteresis = value; }
    }

    /// <summary>When the hysteresis counter is filled up again. Default OnGrowth.</summary>
    public HysteresisRefill HysteresisRefill
    {
      get { return (HysteresisRefill)Handle.HysteresisRefill; }
      set { Handle.HysteresisRefill = (int)value; }
    }

    /// <summary>Which clean step makes the scale grow. Default AtInterval.</summary>
    public GrowthTiming GrowthTiming
    {
      get { return (GrowthTiming)Handle.GrowthTiming; }
      set { Handle.GrowthTiming = (int)value; }
    }

    /// <summary>Back off only if overflows / updates since the last rescale reach this, in [0, 1]. Default 0.</summary>
    public double OverflowTolerance
    {
      get { return Handle.OverflowTolerance; }
      set { Handle.OverflowTolerance = value; }
    }

    /// <summary>While the scale is below this, RecoveryInterval replaces GrowthInterval; 0: never. Default 0.</summary>
    public float RecoveryThreshold
    {
      get { return Handle.RecoveryThreshold; }
      set { Handle.RecoveryThreshold = value; }
    }

    /// <summary>See RecoveryThreshold; at least 1 if that is set. Default 0.</summary>
    public int RecoveryInterval
    {
      get { return Handle.RecoveryInterval; }
      set { Handle.RecoveryInterval = value; }
    }

    /// <summary>What an overflow at MinScale does. Default Clamp.</summary>
    public FloorAction FloorAction
    {
      get { return (FloorAction)Handle.FloorAction; }
      set { Handle.FloorAction = (int)value; }
    }

    /// <summary>Consecutive skipped updates at the floor before it is reported, at least 1. Default 1.</summary>
    public int FloorPatience
    {
      get { return Handle.FloorPatience; }
      set { Handle.FloorPatience = value; }
    }

    /// <summary>Updates kept in the history, 0 to 2^20; 32 bytes each. Default 16.</summary>
    public int HistoryCapacity
    {
      get { return Handle.HistoryCapacity; }
      set { Handle.HistoryCapacity = value; }
    }

    /// <summary>Grow when the tracker equals the interval, not when it has reached it: PyTorch's exact rule.</summary>
    public bool GrowOnEqual
    {
      get { return Has(NativeCalls.SCALER_GROW_ON_EQUAL); }
      set { Set(NativeCalls.SCALER_GROW_ON_EQUAL, value); }
    }

    /// <summary>Store a grown scale even if it is infinite (Keras 3, Megatron-LM, DeepSpeed).</summary>
    public bool NoFiniteGuard
    {
      get { return Has(NativeCalls.SCALER_NO_FINITE_GUARD); }
      set { Set(NativeCalls.SCALER_NO_FINITE_GUARD, value); }
    }

    /// <summary>
    /// A backoff to MinScale or below keeps the old scale and counts as being at the floor (fairseq).
    /// </summary>
    public bool FloorExclusive
    {
      get { return Has(NativeCalls.SCALER_FLOOR_EXCLUSIVE); }
      set { Set(NativeCalls.SCALER_FLOOR_EXCLUSIVE, value); }
    }

    /// <summary>Multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp, Keras 3), not in fp64.</summary>
    public bool Fp32Products
    {
      get { return Has(NativeCalls.SCALER_FP32_PRODUCTS); }
      set { Set(NativeCalls.SCALER_FP32_PRODUCTS, value); }
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
