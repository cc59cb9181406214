// SPDX-License-Identifier: Apache-2.0
using System;
using System.Threading;

namespace Gradscaler
{
  /// <summary>
  /// Tells the collector roughly how much the library allocates. The collector sees an object as a few bytes, and would
  /// never run in a program that forgets to dispose them. Mono's collector ignores this, and .NET's limits by time how
  /// often it acts on it: it is asked to run when as much has been allocated since the last request as was left then.
  /// </summary>
  internal static class NativeMemory
  {
    private const long Least = 64 << 20;
    private const long ObjectBytes = 3 << 10;
    private const long ThreadBytes = 64 << 10;
    private const long TensorBytes = 64;
    private const long HistoryEntryBytes = 32;
    private static long held;
    private static long sinceCollection;

    internal static long OfContext(int threads) => ObjectBytes + (threads - 1) * ThreadBytes;

    internal static long OfList(long tensors) => ObjectBytes + tensors * TensorBytes;

    internal static long OfScaler(int historyCapacity) => ObjectBytes + historyCapacity * HistoryEntryBytes;

    /// <summary>state: what the library makes of it.</summary>
    internal static long OfOptimizer(long state) => ObjectBytes + state;

    internal static void Add(long bytes)
    {
      GC.AddMemoryPressure(bytes);
      long now = Interlocked.Add(ref held, bytes);
      long since = Interlocked.Add(ref sinceCollection, bytes);
      if (since > Math.Max(Least, now - since))
      {
        Interlocked.Exchange(ref sinceCollection, 0);
        GC.Collect();
      }
    }

    internal static void Remove(long bytes)
    {
      GC.RemoveMemoryPressure(bytes);
      Interlocked.Add(ref held, -bytes);
    }
  }
}
