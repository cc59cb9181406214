// SPDX-License-Identifier: Apache-2.0
// The layer between the generated calls and the public classes: errors, text, arguments. Internal.
using System;
using System.Runtime.InteropServices;
using System.Text;

namespace Gradscaler
{
  internal static class NativeError
  {
    /// <summary>Throws what the last call on this thread recorded, if anything.</summary>
    internal static void ThrowPending()
    {
      int status = NativeCallsPINVOKE.TakePending(out IntPtr message, out ErrorDetails details);
      if (status != 0)
      {
        throw GradScalerException.Of((Status)status, Gradscaler.Text.FromNative(message)).About(details);
      }
    }
  }

  /// <summary>gsc_error.</summary>
  [StructLayout(LayoutKind.Sequential)]
  internal struct ErrorDetails
  {
    internal uint StructSize;
    internal int Status;
    internal IntPtr Function;
    internal IntPtr Argument;
    internal IntPtr Field;
    internal long Index;
    internal long Tensor;
  }

  /// <summary>Strings as C has them: UTF-8 with a zero at the end.</summary>
  internal static class Text
  {
    internal static byte[] ToNative(string text)
    {
      if (text == null)
      {
        return null;
      }
      if (text.IndexOf('\0') >= 0)
      {
        throw new InvalidArgumentException("a name has a zero character in it");
      }
      var bytes = new byte[Encoding.UTF8.GetByteCount(text) + 1];
      Encoding.UTF8.GetBytes(text, 0, text.Length, bytes, 0);
      return bytes;
    }

    internal static string FromNative(IntPtr text)
    {
      if (text == IntPtr.Zero)
      {
        return "";
      }
      int length = 0;
      while (Marshal.ReadByte(text, length) != 0)
      {
        length++;
      }
      var bytes = new byte[length];
      Marshal.Copy(text, bytes, 0, length);
      return Encoding.UTF8.GetString(bytes);
    }
  }

  /// <summary>Numbers for one call, one per tensor.</summary>
  internal static class Numbers
  {
    internal static NativeNumbers Of(long[] values)
    {
      var numbers = new NativeNumbers(values.Length);
      for (int i = 0; i < values.Length; i++)
      {
        numbers.Set(i, values[i]);
      }
      return numbers;
    }

    internal static long[] Array(NativeNumbers numbers)
    {
      var values = new long[numbers.Count()];
      for (int i = 0; i < values.Length; i++)
      {
        values[i] = numbers.Get(i);
      }
      return values;
    }
  }

  internal static class Check
  {
    internal static T NotNull<T>(T value, string name) where T : class => value ?? throw new ArgumentNullException(name);

    /// <summary>The proxy behind a public object, null once that is disposed.</summary>
    internal static T Open<T>(T handle, string type) where T : class => handle ?? throw new ObjectDisposedException(type);
  }
}
