// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.InteropServices;

namespace Gradscaler
{
  /// <summary>
  /// Everything a checkpoint needs of a GradScaler: to be written field by field, or as the library's bytes, which
  /// every language reads. Checked when it is restored.
  /// </summary>
  public sealed partial class ScalerState
  {
    internal readonly NativeScalerState Handle = new NativeScalerState();

    /// <summary>Reads what ToBytes wrote. Throws InvalidArgumentException if it has another length.</summary>
    public static ScalerState FromBytes(byte[] bytes)
    {
      Check.NotNull(bytes, "bytes");
      int size = NativeCallsPINVOKE.StateSize();
      if (bytes.Length != size)
      {
        throw new InvalidArgumentException($"bytes has length {bytes.Length}, a state has {size}");
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
  }
}
