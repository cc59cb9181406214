// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Gradscaler
{
  /// <summary>
  /// The calls that use a native object. Once it is closed no call begins, and the last one to end destroys it, on its
  /// thread. A SafeHandle does the same; this names the object in its exception, and knows its size.
  /// </summary>
  internal sealed class Uses
  {
    private const int ClosedBit = 1;
    private const int DestroyedBit = 2;
    private const int Call = 4;

    private readonly string type;
    private readonly IntPtr address;
    private readonly Action<HandleRef> destroy;
    private long bytes;
    private Owners[] memory = new Owners[0];

    /// <summary>Call for each call in progress, ClosedBit, and DestroyedBit.</summary>
    private int state;

    /// <summary>type: the name in exceptions. destroy: called once.</summary>
    internal Uses(string type, IntPtr address, Action<HandleRef> destroy)
    {
      this.type = type;
      this.address = address;
      this.destroy = destroy;
    }

    /// <summary>For a call, which must be followed by End. The proxy lives until the call returns.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    internal HandleRef Begin(object proxy)
    {
      // One addition is faster than a comparison and an exchange; a refused call takes it back.
      if ((Interlocked.Add(ref state, Call) & ClosedBit) != 0)
      {
        End();
        throw new ObjectDisposedException(type);
      }
      return new HandleRef(proxy, address);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    internal void End()
    {
      if (Interlocked.Add(ref state, -Call) == ClosedBit)
      {
        DestroyOnce();
      }
    }

    internal bool IsClosed => (Volatile.Read(ref state) & ClosedBit) != 0;

    /// <summary>Does nothing the second time.</summary>
    internal void Close()
    {
      int was;
      do
      {
        was = Volatile.Read(ref state);
      }
      while ((was & ClosedBit) == 0 && Interlocked.CompareExchange(ref state, was | ClosedBit, was) != was);
      if (was == 0)
      {
        DestroyOnce();
      }
    }

    /// <summary>Counts native memory that the collector does not see, until the object is destroyed.</summary>
    internal void Count(long allocated)
    {
      bytes = allocated;
      NativeMemory.Add(allocated);
    }

    /// <summary>Holds the state of other optimizers until the object is destroyed.</summary>
    internal void Hold(params Owners[] others)
    {
      foreach (Owners owners in others)
      {
        owners.Hold();
      }
      memory = others;
    }

    /// <summary>Unless a call that is about to be refused counts just now: then it does this at its end.</summary>
    private void DestroyOnce()
    {
      if (Interlocked.CompareExchange(ref state, ClosedBit | DestroyedBit, ClosedBit) == ClosedBit)
      {
        destroy(new HandleRef(this, address));
        if (bytes != 0)
        {
          NativeMemory.Remove(bytes);
        }
        foreach (Owners owners in memory)
        {
          owners.Release();
        }
      }
    }
  }
}
