// SPDX-License-Identifier: Apache-2.0
using System;
using System.Collections.Concurrent;
using System.Runtime.InteropServices;
using System.Threading;

namespace Gradscaler
{
  /// <summary>
  /// Replaces the doubles at an address in device memory by their sums over the ranks of a job. On a CUDA device it
  /// enqueues the work on the stream; on the CPU it has finished when it returns. An exception becomes the inner
  /// exception of the one that the call throws.
  /// </summary>
  public delegate void DeviceReducer(IntPtr values, long count, IntPtr stream);

  /// <summary>
  /// What native code calls back. It knows a slot by a number only, and calls static functions that are never
  /// collected. The objects that may cause a call keep the slot alive; once they are gone the number means nothing, and
  /// a call with it does nothing.
  /// </summary>
  internal sealed class CallbackSlot
  {
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    internal delegate void LogFunction(IntPtr slot, int level, IntPtr message);

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    internal delegate int SumFunction(IntPtr slot, IntPtr values, long count, IntPtr stream);

    internal static readonly LogFunction LogFunctionPointer = OnLog;
    internal static readonly SumFunction SumFunctionPointer = OnSum;

    private static readonly ConcurrentDictionary<long, WeakReference> Slots =
        new ConcurrentDictionary<long, WeakReference>();
    private static long last;

    /// <summary>What a callback of this thread threw, until the call that caused it fails for that reason.</summary>
    [ThreadStatic] private static Exception failure;

    private readonly long number = Interlocked.Increment(ref last);
    internal volatile Action<LogLevel, string> Log;
    internal volatile DeviceReducer Reducer;

    internal CallbackSlot()
    {
      Slots[number] = new WeakReference(this);
    }

    ~CallbackSlot()
    {
      if (!Environment.HasShutdownStarted) // csharp.i has the reason.
      {
        Slots.TryRemove(number, out _);
      }
    }

    /// <summary>What native code knows the slot by.</summary>
    internal IntPtr Number => new IntPtr(number);

    private static CallbackSlot Find(IntPtr number) =>
        Slots.TryGetValue(number.ToInt64(), out WeakReference slot) ? (CallbackSlot)slot.Target : null;

    internal static Exception TakeFailure()
    {
      Exception was = failure;
      failure = null;
      return was;
    }

    /// <summary>For host memory, which user code gets to see as a copy.</summary>
    internal static DeviceReducer OnHost(Action<double[]> sum)
    {
      return (address, count, stream) =>
      {
        var values = new double[count];
        Marshal.Copy(address, values, 0, values.Length);
        sum(values);
        Marshal.Copy(values, 0, address, values.Length);
      };
    }

    /// <summary>Found by its name where code is compiled ahead of time, as by Unity's IL2CPP.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    private sealed class MonoPInvokeCallbackAttribute : Attribute
    {
      public MonoPInvokeCallbackAttribute(Type type)
      {
      }
    }

    [MonoPInvokeCallback(typeof(LogFunction))]
    private static void OnLog(IntPtr number, int level, IntPtr message)
    {
      try
      {
        Find(number)?.Log?.Invoke((LogLevel)level, Text.FromNative(message));
      }
      catch (Exception)
      {
        // It must not reach native code, and no caller can receive it.
      }
    }

    [MonoPInvokeCallback(typeof(SumFunction))]
    private static int OnSum(IntPtr number, IntPtr values, long count, IntPtr stream)
    {
      try
      {
        Find(number).Reducer(values, count, stream);
        return 0;
      }
      catch (Exception e)
      {
        failure = e;
        return 1;
      }
    }
  }
}
