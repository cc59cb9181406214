// SPDX-License-Identifier: Apache-2.0
using System;
using System.Threading;

namespace Gradscaler
{
  /// <summary>
  /// Tells the collector what the library allocates. It sees an object as a few bytes, so that a program that forgets to
  /// dispose them would never make it run. Mono's collector does not listen: there it is asked to run when as much has
  /// been allocated since the last time as was left then.
  /// </summary>
  internal static class NativeMemory
  {
    private const long Least = 64 << 20;
    private static readonly bool IsMono = Type.GetType("Mono.Runtime") != null;
    private static long held;
    private static long sinceCollection;

    /// <summary>Bytes of what was neither disposed nor finalized.</summary>
    internal static long Held
    {
      get { return Interlocked.Read(ref held); }
    }

    internal static void Add(long bytes)
    {
      if (bytes == 0)
      {
        return;
      }
      GC.AddMemoryPressure(bytes);
      long now = Interlocked.Add(ref held, bytes);
      long since = Interlocked.Add(ref sinceCollection, bytes);
      if (IsMono && since > Math.Max(Least, now - since))
      {
        Interlocked.Exchange(ref sinceCollection, 0);
        GC.Collect();
      }
    }

    internal static void Remove(long bytes)
    {
      if (bytes == 0)
      {
        return;
      }
      GC.RemoveMemoryPressure(bytes);
      Interlocked.Add(ref held, -bytes);
    }
  }
}
