// SPDX-License-Identifier: Apache-2.0
using System;

namespace Gradscaler
{
  /// <summary>
  /// The owners of the memory of a list's tensors. The list and the optimizers made of it share this object, so that it
  /// changes for all when the list gets other memory. Optimizers whose state is among the memory are not destroyed
  /// before all holders have released it: a call in progress may go on with the state of an optimizer that was
  /// disposed.
  /// </summary>
  internal sealed class Owners
  {
    private static readonly Uses[] None = new Uses[0];
    private readonly object[] owners;

    /// <summary>Of the optimizers among the owners, which are rare.</summary>
    private Uses[] states = None;

    private int holders;

    internal Owners(Tensor[] tensors)
    {
      owners = new object[tensors.Length];
      Set(tensors);
    }

    internal void Set(Tensor[] tensors)
    {
      lock (owners)
      {
        Uses[] before = states;
        states = Begin(tensors);
        End(before);
        for (int i = 0; i < tensors.Length; i++)
        {
          owners[i] = tensors[i].Owner;
        }
      }
    }

    internal void Hold()
    {
      lock (owners)
      {
        holders++;
      }
    }

    internal void Release()
    {
      lock (owners)
      {
        if (--holders == 0)
        {
          End(states);
          states = None;
        }
      }
    }

    private static Uses[] Begin(Tensor[] tensors)
    {
      Uses[] all = None;
      try
      {
        foreach (Tensor tensor in tensors)
        {
          var optimizer = tensor.Owner as NativeOptimizer;
          if (optimizer != null)
          {
            optimizer.Uses.Begin(optimizer);
            System.Array.Resize(ref all, all.Length + 1);
            all[all.Length - 1] = optimizer.Uses;
          }
        }
      }
      catch (ObjectDisposedException)
      {
        End(all);
        throw;
      }
      return all;
    }

    private static void End(Uses[] all)
    {
      foreach (Uses uses in all)
      {
        uses.End();
      }
    }

    internal int Count
    {
      get { return owners.Length; }
    }

    internal object this[long index]
    {
      get { return owners[index]; }
    }

    internal void RequireUsable()
    {
      for (int i = 0; states.Length > 0 && i < owners.Length; i++)
      {
        RequireUsable(owners[i], "tensors", i);
      }
    }

    /// <summary>Refuses the state of an optimizer that was disposed.</summary>
    internal static void RequireUsable(object owner, string what, int index)
    {
      var optimizer = owner as NativeOptimizer;
      if (optimizer != null && optimizer.Uses.IsClosed)
      {
        throw new ObjectDisposedException("Optimizer",
                                          what + "[" + index + "] is state of an optimizer that was disposed");
      }
    }
  }
}
