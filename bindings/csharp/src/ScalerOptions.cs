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

    // gen-api: properties gsc_scaler_options
    /// <summary>First scale, finite and &gt; 0, within MinScale and MaxScale. Default 65536.</summary>
    public float InitScale
    {
      get { return Handle.InitScale; }
      set { Handle.InitScale = value; }
    }

    /// <summary>
    /// Floor of the scale; 0: none. Default 0. A scale that GradScaler.SetScale sets below it stays until it grows.
    /// </summary>
    public float MinScale
    {
      get { return Handle.MinScale; }
      set { Handle.MinScale = value; }
    }

    /// <summary>Ceiling of the scale; 0: none. Default 0.</summary>
    public float MaxScale
    {
      get { return Handle.MaxScale; }
      set { Handle.MaxScale = value; }
    }

    /// <summary>Clean steps between growths, &gt;= 1. Default 2000.</summary>
    public int GrowthInterval
    {
      get { return Handle.GrowthInterval; }
      set { Handle.GrowthInterval = value; }
    }

    /// <summary>
    /// Growth multiplies the scale by this, &gt; 1. Refused if InitScale rounds back to itself. Default 2.
    /// </summary>
    public double GrowthFactor
    {
      get { return Handle.GrowthFactor; }
      set { Handle.GrowthFactor = value; }
    }

    /// <summary>
    /// Backoff multiplies the scale by this, in (0, 1). Refused if InitScale rounds back to itself. Default 0.5.
    /// </summary>
    public double BackoffFactor
    {
      get { return Handle.BackoffFactor; }
      set { Handle.BackoffFactor = value; }
    }

    /// <summary>
    /// False: disabled. The scale is 1, gradients are not checked, every step is applied. Default true.
    /// </summary>
    public bool Enabled
    {
      get { return Handle.Enabled != 0; }
      set { Handle.Enabled = value ? 1 : 0; }
    }

    /// <summary>Overflows until the scale backs off, &gt;= 1. Default 1: each overflow.</summary>
    public int Hysteresis
    {
      get { return Handle.Hysteresis; }
      set { Handle.Hysteresis = value; }
    }

    /// <summary>
    /// When the count of overflows starts again: HysteresisRefill. Default HysteresisRefill.OnGrowth.
    /// </summary>
    public HysteresisRefill HysteresisRefill
    {
      get { return (HysteresisRefill)Handle.HysteresisRefill; }
      set { Handle.HysteresisRefill = (int)value; }
    }

    /// <summary>The clean step that grows: GrowthTiming. Default GrowthTiming.AtInterval.</summary>
    public GrowthTiming GrowthTiming
    {
      get { return (GrowthTiming)Handle.GrowthTiming; }
      set { Handle.GrowthTiming = (int)value; }
    }

    /// <summary>
    /// Back off only if overflows / updates since the last rescale &gt;= this, in [0, 1] (fairseq). Default 0.
    /// </summary>
    public double OverflowTolerance
    {
      get { return Handle.OverflowTolerance; }
      set { Handle.OverflowTolerance = value; }
    }

    /// <summary>
    /// While the scale is below this, RecoveryInterval replaces GrowthInterval (NVIDIA Modulus); 0: never. Default 0.
    /// </summary>
    public float RecoveryThreshold
    {
      get { return Handle.RecoveryThreshold; }
      set { Handle.RecoveryThreshold = value; }
    }

    /// <summary>See RecoveryThreshold; &gt;= 1 if that is set. Default 0.</summary>
    public int RecoveryInterval
    {
      get { return Handle.RecoveryInterval; }
      set { Handle.RecoveryInterval = value; }
    }

    /// <summary>What happens at the floor: FloorAction. Default FloorAction.Clamp.</summary>
    public FloorAction FloorAction
    {
      get { return (FloorAction)Handle.FloorAction; }
      set { Handle.FloorAction = (int)value; }
    }

    /// <summary>Consecutive skipped updates at the floor until it is reported, &gt;= 1. Default 1.</summary>
    public int FloorPatience
    {
      get { return Handle.FloorPatience; }
      set { Handle.FloorPatience = value; }
    }

    /// <summary>
    /// Updates kept in the history ring, 0..2^20. Creation allocates 32 bytes of device memory for each. Default 16,
    /// which shows what led to a skip. To plot the scale, give the number of steps between two reads.
    /// </summary>
    public int HistoryCapacity
    {
      get { return Handle.HistoryCapacity; }
      set { Handle.HistoryCapacity = value; }
    }

    /// <summary>
    /// Grow only when the tracker equals the interval: PyTorch's exact rule. Default: also when it exceeds the
    /// interval. They differ if the interval is lowered below the tracker: with this flag the scale then never grows.
    /// </summary>
    public bool GrowOnEqual
    {
      get { return (Handle.Flags & NativeCalls.SCALER_GROW_ON_EQUAL) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.SCALER_GROW_ON_EQUAL : Handle.Flags & ~(uint)NativeCalls.SCALER_GROW_ON_EQUAL;
      }
    }

    /// <summary>
    /// Store a grown scale even if it is inf (Keras 3, Megatron-LM, DeepSpeed). Default: keep the old scale.
    /// </summary>
    public bool NoFiniteGuard
    {
      get { return (Handle.Flags & NativeCalls.SCALER_NO_FINITE_GUARD) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.SCALER_NO_FINITE_GUARD : Handle.Flags & ~(uint)NativeCalls.SCALER_NO_FINITE_GUARD;
      }
    }

    /// <summary>A backoff to MinScale or below keeps the old scale; the scale is then at its floor (fairseq).</summary>
    public bool FloorExclusive
    {
      get { return (Handle.Flags & NativeCalls.SCALER_FLOOR_EXCLUSIVE) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.SCALER_FLOOR_EXCLUSIVE : Handle.Flags & ~(uint)NativeCalls.SCALER_FLOOR_EXCLUSIVE;
      }
    }

    /// <summary>
    /// Round the factors to fp32 and multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp, Keras 3). Default:
    /// multiply in fp64 and round the product (PyTorch). They differ only for factors that are not powers of two.
    /// </summary>
    public bool Fp32Products
    {
      get { return (Handle.Flags & NativeCalls.SCALER_FP32_PRODUCTS) != 0; }
      set
      {
        Handle.Flags = value ? Handle.Flags | (uint)NativeCalls.SCALER_FP32_PRODUCTS : Handle.Flags & ~(uint)NativeCalls.SCALER_FP32_PRODUCTS;
      }
    }
    // gen-api: end
  }
}
