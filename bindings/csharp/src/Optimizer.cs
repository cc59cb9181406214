// SPDX-License-Identifier: Apache-2.0
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Threading;

namespace Gradscaler
{
  /// <summary>
  /// AdamW, SGD or another kind over a list of parameters and a list of gradients. Keeps the lists and
  /// their arrays alive, also after the lists are disposed. Use it from one thread at a time.
  /// </summary>
  public sealed partial class Optimizer : IDisposable
  {
    private readonly Dictionary<int, DeviceScalar> deviceLrs = new Dictionary<int, DeviceScalar>();
    private readonly List<Owners> lists = new List<Owners>();
    private NativeOptimizer handle;

    /// <summary>
    /// parameters: what is updated. grads: of any dtype. modelCopy: receives every updated parameter rounded to its
    /// dtype in the same pass. state: one list per slot of the kind, initialised by the caller; none: the library makes
    /// them. Throws InvalidArgumentException naming list and index: different lengths, counts or contexts, overlap.
    /// </summary>
    public Optimizer(Context context, OptimizerOptions options, TensorList parameters, TensorList grads,
                     TensorList modelCopy = null, params TensorList[] state)
    {
      if (Check.NotNull(state, "state").Length > 4)
      {
        throw new InvalidArgumentException($"state has {state.Length} lists, no optimizer has more than 4 slots");
      }
      var slots = new NativeTensorList[4];
      for (int i = 0; i < state.Length; i++)
      {
        slots[i] = TensorList.HandleOf(state[i], "state[" + i + "]");
        lists.Add(state[i].Owners);
      }
      handle = new NativeOptimizer(Context.HandleOf(context), Check.NotNull(options, "options").Handle,
                                   TensorList.HandleOf(parameters, "parameters"), TensorList.HandleOf(grads, "grads"),
                                   modelCopy?.Handle, slots[0], slots[1], slots[2], slots[3]);
      lists.Add(parameters.Owners);
      lists.Add(grads.Owners);
      if (modelCopy != null)
      {
        lists.Add(modelCopy.Owners);
      }
      handle.Kept = new object[] { lists, deviceLrs, context.Callbacks };
      handle.Uses.Hold(lists.ToArray());
      handle.Uses.Count(NativeMemory.OfOptimizer(state.Length == 0 ? handle.SaveSize() : 0));
    }

    internal NativeOptimizer Handle
    {
      get
      {
        NativeOptimizer optimizer = Check.Open(handle, "Optimizer");
        foreach (Owners owners in lists)
        {
          owners.RequireUsable();
        }
        return optimizer;
      }
    }

    /// <summary>Gives some tensors separate hyper-parameters and returns the number of the group: 1, 2, ...</summary>
    public int AddGroup(long first, long count, OptimizerOptions options) =>
        Handle.AddGroup(first, count, Check.NotNull(options, "options").Handle);

    /// <summary>A copy of the hyper-parameters of a group.</summary>
    public OptimizerOptions GetOptions(int group = 0)
    {
      var options = new OptimizerOptions(OptimizerKind.AdamW);
      Handle.GetOptions(group, options.Handle);
      return options;
    }

    /// <summary>Sets a group's learning rate from the next step on.</summary>
    public void SetLr(int group, double lr, IntPtr stream = default)
    {
      Handle.SetLr(group, lr, stream);
      deviceLrs.Remove(group);
    }

    /// <summary>
    /// Reads a group's learning rate from a float in device memory at every step; null returns to the host value.
    /// </summary>
    public void SetDeviceLr(int group, DeviceScalar lr, IntPtr stream = default)
    {
      Handle.SetDeviceLr(group, DeviceScalar.Floats(lr, "lr"), stream);
      deviceLrs[group] = lr;
    }

    /// <summary>Name of a state slot, such as exp_avg.</summary>
    public string StateName(int slot) => Handle.StateName(slot);

    /// <summary>
    /// A tensor of a state slot, with its scales if it has codes. Once the optimizer is disposed, every call that would
    /// touch the memory throws an ObjectDisposedException; a forgotten one lives as long as the tensor.
    /// </summary>
    public Tensor StateTensor(int slot, long index)
    {
      NativeOptimizer optimizer = Handle;
      using (var tensor = new NativeTensor())
      {
        optimizer.StateTensor(slot, index, tensor);
        Tensor state = Tensor.Borrowed(tensor, optimizer);
        long scales = optimizer.StateScales(slot, index);
        return scales == 0 ? state : state.WithScales(
            Tensor.At((IntPtr)scales, Tensor.ScaleCount(state.Count), (DType)NativeCalls.ScaleDtype((int)state.DType),
                      optimizer));
      }
    }

    /// <summary>Steps applied so far. Blocks on a GPU.</summary>
    public long GetStepsApplied(IntPtr stream = default) => Handle.StepsApplied(stream);

    /// <summary>Steps skipped so far. Blocks on a GPU.</summary>
    public long GetStepsSkipped(IntPtr stream = default) => Handle.StepsSkipped(stream);

    /// <summary>Elements whose parameter an applied step left as it was, summed over the steps; 0 without the flag
    /// CountUnchanged. Blocks on a GPU.</summary>
    public long GetUnchanged(IntPtr stream = default) => Handle.Unchanged(stream);

    /// <summary>Steps applied so far in which each tensor was present. Blocks on a GPU.</summary>
    public long[] GetTensorSteps(IntPtr stream = default)
    {
      using (NativeNumbers numbers = Handle.TensorSteps(stream))
      {
        return Numbers.Array(numbers);
      }
    }

    /// <summary>Writes the step counts and all state tensors to host memory of SaveSize bytes. Blocks.</summary>
    public void Save(IntPtr buffer, long size, IntPtr stream = default) => Handle.Save(buffer, size, stream);

    /// <summary>Restores what Save wrote, converted from the formats that it had. On error nothing changes. Blocks.</summary>
    public void Load(IntPtr buffer, long size, IntPtr stream = default) => Handle.Load(buffer, size, stream);

    /// <summary>Writes the step counts and all state tensors to SaveSize bytes. Blocks.</summary>
    public unsafe void Save(Span<byte> buffer)
    {
      fixed (byte* data = &MemoryMarshal.GetReference(buffer))
      {
        Save((IntPtr)data, buffer.Length);
      }
    }

    /// <summary>Restores what Save wrote, converted from the formats that it had. On error nothing changes. Blocks.</summary>
    public unsafe void Load(ReadOnlySpan<byte> buffer)
    {
      fixed (byte* data = &MemoryMarshal.GetReference(buffer))
      {
        Load((IntPtr)data, buffer.Length);
      }
    }

    /// <summary>Destroys it after the calls in progress on other threads. Does nothing the second time.</summary>
    public void Dispose() => Interlocked.Exchange(ref handle, null)?.Dispose();
  }
}
