// SPDX-License-Identifier: Apache-2.0
using System;

namespace Gradscaler
{
  /// <summary>
  /// The tensors of a list, and with them the owners of their memory. The list and the optimizers made of it share this
  /// object, so that it changes for all when the list gets other memory. Optimizers whose state is among the memory are
  /// not destroyed before all holders have released it: a call in progress may go on with the state of an optimizer that
  /// was disposed.
  /// </summary>
  internal sealed class Owners
  {
    private static readonly Uses[] None = new Uses[0];
    private readonly Tensor[] tensors;

    /// <summary>Of the optimizers among the owners, which are rare.</summary>
    private Uses[] states = None;

    private int holders;

    /// <summary>The factor of the gradients, kept alive here; null: none.</summary>
    internal DeviceScalar Factor { get; set; }

    /// <summary>Where norms of the tensors are written, kept alive here; null: nowhere.</summary>
    internal DeviceScalar Norms { get; set; }

    internal Owners(Tensor[] tensors)
    {
      this.tensors = new Tensor[tensors.Length];
      Set(tensors);
    }

    internal void Set(Tensor[] others)
    {
      lock (tensors)
      {
        Uses[] before = states;
        states = Begin(others);
        End(before);
        others.CopyTo(tensors, 0);
      }
    }

    internal void Hold()
    {
      lock (tensors)
      {
        holders++;
      }
    }

    internal void Release()
    {
      lock (tensors)
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
          for (Tensor part = tensor; part != null; part = part.Scales)
          {
            if (part.Owner is NativeOptimizer optimizer)
            {
              optimizer.Uses.BeginShared();
              System.Array.Resize(ref all, all.Length + 1);
              all[all.Length - 1] = optimizer.Uses;
            }
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
        uses.EndShared();
      }
    }

    internal int Count => tensors.Length;

    internal Tensor this[long index] => tensors[index];

    internal void RequireUsable()
    {
      for (int i = 0; states.Length > 0 && i < tensors.Length; i++)
      {
        RequireUsable(tensors[i], "tensors", i);
      }
    }

    /// <summary>Refuses the state of an optimizer that was disposed.</summary>
    internal static void RequireUsable(Tensor tensor, string what, int index)
    {
      for (; tensor != null; tensor = tensor.Scales)
      {
        if (tensor.Owner is NativeOptimizer optimizer && optimizer.Uses.IsClosed)
        {
          throw new ObjectDisposedException("Optimizer",
                                            what + "[" + index + "] is state of an optimizer that was disposed");
        }
      }
    }
  }
}
