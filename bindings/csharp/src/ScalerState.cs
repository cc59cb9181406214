// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.InteropServices;

namespace Gradscaler
{
  /// <summary>
  /// Everything a checkpoint needs of a GradScaler: to be written field by field, or as the library's bytes, which
  /// every language reads. Checked when it is restored.
  /// </summary>
  public sealed class ScalerState
  {
    internal readonly NativeScalerState Handle = new NativeScalerState();

    /// <summary>Reads what ToBytes wrote. Throws InvalidArgumentException if it has another length.</summary>
    public static ScalerState FromBytes(byte[] bytes)
    {
      Check.NotNull(bytes, "bytes");
      int size = NativeCallsPINVOKE.StateSize();
      if (bytes.Length != size)
      {
        throw new InvalidArgumentException("bytes has length " + bytes.Length + ", a state has " + size);
      }
      var state = new ScalerState();
      Marshal.Copy(bytes, 0, state.Handle.Address, size);
      GC.KeepAlive(state);
      return state;
    }

    /// <summary>The state as the library lays it out.</summary>
    public byte[] ToBytes()
    {
      var bytes = new byte[NativeCallsPINVOKE.StateSize()];
      Marshal.Copy(Handle.Address, bytes, 0, bytes.Length);
      GC.KeepAlive(this);
      return bytes;
    }

    // gen-api: properties gsc_scaler_state
    /// <summary>Growth multiplies the scale by this.</summary>
    public double GrowthFactor
    {
      get { return Handle.GrowthFactor; }
      set { Handle.GrowthFactor = value; }
    }

    /// <summary>Backoff multiplies the scale by this.</summary>
    public double BackoffFactor
    {
      get { return Handle.BackoffFactor; }
      set { Handle.BackoffFactor = value; }
    }

    /// <summary>The scale.</summary>
    public float Scale
    {
      get { return Handle.Scale; }
      set { Handle.Scale = value; }
    }

    /// <summary>Clean steps between growths.</summary>
    public int GrowthInterval
    {
      get { return Handle.GrowthInterval; }
      set { Handle.GrowthInterval = value; }
    }

    /// <summary>Clean steps since the scale last changed: PyTorch's _growth_tracker.</summary>
    public int GrowthTracker
    {
      get { return Handle.GrowthTracker; }
      set { Handle.GrowthTracker = value; }
    }

    /// <summary>Overflows left before the scale backs off.</summary>
    public int HysteresisTracker
    {
      get { return Handle.HysteresisTracker; }
      set { Handle.HysteresisTracker = value; }
    }

    /// <summary>Overflows since the scale last changed.</summary>
    public int OverflowsSinceRescale
    {
      get { return Handle.OverflowsSinceRescale; }
      set { Handle.OverflowsSinceRescale = value; }
    }

    /// <summary>Updates since the scale last changed.</summary>
    public int UpdatesSinceRescale
    {
      get { return Handle.UpdatesSinceRescale; }
      set { Handle.UpdatesSinceRescale = value; }
    }

    /// <summary>Skipped updates in a row, the last one included; 0 if it was clean.</summary>
    public int ConsecutiveSkips
    {
      get { return Handle.ConsecutiveSkips; }
      set { Handle.ConsecutiveSkips = value; }
    }

    /// <summary>Consecutive overflows that could not lower the scale.</summary>
    public int SkipsAtFloor
    {
      get { return Handle.SkipsAtFloor; }
      set { Handle.SkipsAtFloor = value; }
    }

    /// <summary>Updates so far.</summary>
    public long Updates
    {
      get { return Handle.Updates; }
      set { Handle.Updates = value; }
    }

    /// <summary>How many of these found an overflow.</summary>
    public long Skipped
    {
      get { return Handle.Skipped; }
      set { Handle.Skipped = value; }
    }
    // gen-api: end
  }
}
