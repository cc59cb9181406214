// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
#pragma warning disable 420 // A volatile field by reference, as Interlocked takes it.

namespace Gradscaler
{
  /// <summary>
  /// The calls that use a native object. Once it is closed no call begins, and the last one to end destroys it, on its
  /// thread. A SafeHandle does the same; this names the object in its exception, and knows its size. Calls on the thread
  /// that made the object are counted without a locked instruction: it writes ownCalls, then reads ClosedBit. Whoever
  /// closes the object on another thread writes ClosedBit, puts a memory barrier into all threads, then reads ownCalls.
  /// </summary>
  internal sealed class Uses
  {
    private const int ClosedBit = 1;
    private const int DestroyedBit = 2;
    private const int Call = 4;

    /// <summary>False if it failed. Null where there is none: there all calls are counted by locked instructions.</summary>
    private static readonly Func<bool> Barrier = FindBarrier();

    /// <summary>Stands for the current thread.</summary>
    [ThreadStatic]
    private static object thread;

    private readonly string type;
    private readonly IntPtr address;
    private readonly Action<HandleRef> destroy;
    private long bytes;
    private Owners[] memory = new Owners[0];

    /// <summary>The thread whose calls ownCalls counts.</summary>
    private readonly object owner = new object();

    private volatile int ownCalls;

    /// <summary>Call for each call in progress that ownCalls does not count, ClosedBit, and DestroyedBit.</summary>
    private volatile int state;

    /// <summary>type: the name in exceptions. destroy: called once.</summary>
    internal Uses(string type, IntPtr address, Action<HandleRef> destroy)
    {
      this.type = type;
      this.address = address;
      this.destroy = destroy;
      if (Barrier != null)
      {
        owner = thread = thread ?? owner;
      }
    }

    /// <summary>For a call, which must be followed by End on this thread. The proxy lives until the call returns.</summary>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    internal HandleRef Begin(object proxy)
    {
      if (thread == owner)
      {
        ownCalls++;
        if (IsClosed)
        {
          End();
          Refuse();
        }
      }
      else
      {
        BeginShared();
      }
      return new HandleRef(proxy, address);
    }

    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    internal void End()
    {
      if (thread == owner)
      {
        ownCalls--;
        if (IsClosed)
        {
          DestroyUnused();
        }
      }
      else
      {
        EndShared();
      }
    }

    /// <summary>Calls a function that SWIG does not wrap, and throws the failure that it returned not 0 for.</summary>
    internal void Run(object proxy, Func<HandleRef, int> function)
    {
      HandleRef reference = Begin(proxy);
      try
      {
        if (function(reference) != 0)
        {
          NativeError.ThrowPending();
        }
      }
      finally
      {
        End();
      }
    }

    /// <summary>For a use that may end on another thread, by EndShared.</summary>
    internal void BeginShared()
    {
      if ((Interlocked.Add(ref state, Call) & ClosedBit) != 0)
      {
        EndShared();
        Refuse();
      }
    }

    internal void EndShared()
    {
      if (Interlocked.Add(ref state, -Call) == ClosedBit)
      {
        DestroyUnused();
      }
    }

    private void Refuse() => throw new ObjectDisposedException(type);

    internal bool IsClosed => (state & ClosedBit) != 0;

    /// <summary>Does nothing the second time.</summary>
    internal void Close()
    {
      int was;
      do
      {
        was = state;
      }
      while ((was & ClosedBit) == 0 && Interlocked.CompareExchange(ref state, was | ClosedBit, was) != was);
      if (was == 0)
      {
        DestroyUnused();
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

    /// <summary>That of the library, else of the runtime. Mono's own lets some of two million calls pass unseen.</summary>
    private static Func<bool> FindBarrier()
    {
      if (NativeCallsPINVOKE.Barrier() != 0)
      {
        return () => NativeCallsPINVOKE.Barrier() != 0;
      }
      var barrier = typeof(Interlocked).GetMethod("MemoryBarrierProcessWide");
      if (barrier == null || Type.GetType("Mono.Runtime") != null || Type.GetType("Mono.RuntimeStructs") != null)
      {
        return null;
      }
      var run = (Action)Delegate.CreateDelegate(typeof(Action), barrier);
      return () =>
      {
        run();
        return true;
      };
    }

    /// <summary>
    /// Destroys the object once, unless a call is in progress, or is being refused: then its end does it. After the barrier
    /// the owner's next reading of ClosedBit finds it, or ownCalls has its call.
    /// </summary>
    private void DestroyUnused()
    {
      if (thread != owner && Barrier != null && !Barrier())
      {
        return;
      }
      if (ownCalls == 0 &&
          Interlocked.CompareExchange(ref state, ClosedBit | DestroyedBit, ClosedBit) == ClosedBit)
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
