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

    /// <summary>Reads what ToBytes wrote, also that of an older version, which may be shorter. Throws
    /// InvalidArgumentException for other data, and for a longer state of a newer version.</summary>
    public static ScalerState FromBytes(byte[] bytes)
    {
      Check.NotNull(bytes, "bytes");
      int size = NativeCallsPINVOKE.StateSize();
      // A state begins with its length. What is not in it stays 0.
      if (bytes.Length < 4 || bytes.Length > size || BitConverter.ToInt32(bytes, 0) != bytes.Length)
      {
        throw new InvalidArgumentException(
            $"bytes has length {bytes.Length}; it is not a state, or not one of this version, which has {size}");
      }
      var state = new ScalerState();
      Marshal.Copy(bytes, 0, state.Handle.Address, bytes.Length);
      Marshal.WriteInt32(state.Handle.Address, size);
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
