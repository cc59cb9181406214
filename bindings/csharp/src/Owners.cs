// SPDX-License-Identifier: Apache-2.0
using System;

namespace Gradscaler
{
  /// <summary>
  /// What the memory of a list's tensors belongs to. Shared by the list and the optimizers made of it: what they step on
  /// is exchanged with what the list points at.
  /// </summary>
  internal sealed class Owners
  {
    private readonly object[] owners;

    /// <summary>Whether any is an optimizer, whose state can go although something refers to it. That is rare.</summary>
    private bool anyState;

    internal Owners(Tensor[] tensors)
    {
      owners = new object[tensors.Length];
      Set(tensors);
    }

    internal void Set(Tensor[] tensors)
    {
      for (int i = 0; i < tensors.Length; i++)
      {
        owners[i] = tensors[i].Owner;
      }
      anyState = System.Array.Exists(owners, o => o is NativeOptimizer);
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
      for (int i = 0; anyState && i < owners.Length; i++)
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
