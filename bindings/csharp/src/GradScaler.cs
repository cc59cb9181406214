// SPDX-License-Identifier: Apache-2.0
using System;
using System.Collections.Generic;
using System.Threading;

namespace Gradscaler
{
  /// <summary>
  /// The loss scale, its policy, counters and history. Between two updates every list of gradients goes from ready to
  /// checked or unscaled to stepped. Use a scaler from one thread at a time. `stream` is the CUDA stream or
  /// VkCommandBuffer, by default the default stream; it is ignored on the CPU.
  /// </summary>
  /// <example><code>
  /// using (var context = Context.Cpu())
  /// using (var parameters = new TensorList(context, Tensor.Of(weights)))
  /// using (var grads = new TensorList(context, Tensor.Of(gradients)))
  /// using (var optimizer = new Optimizer(context, new OptimizerOptions(OptimizerKind.AdamW), parameters, grads))
  /// using (var scaler = new GradScaler(context))
  /// {
  ///   Backward(loss * scaler.GetScale());
  ///   scaler.Step(optimizer);
  ///   scaler.Update();
  /// }
  /// </code></example>
  public sealed partial class GradScaler : IDisposable
  {
    private readonly DeviceType device;
    private readonly CallbackSlot reducer = new CallbackSlot();
    private NativeScaler handle;

    /// <summary>A scaler on the device of the gradients. options: copied; null: PyTorch's policy.</summary>
    public GradScaler(Context context, ScalerOptions options = null)
    {
      options = options ?? new ScalerOptions();
      handle = new NativeScaler(Context.HandleOf(context), options.Handle);
      handle.Kept = new object[] { reducer, context.Callbacks };
      handle.Uses.Count(NativeMemory.OfScaler(options.HistoryCapacity));
      device = context.Type;
    }

    private NativeScaler Handle => Check.Open(handle, "GradScaler");

    /// <summary>For spans.</summary>
    private NativeScaler HostHandle => HostMemory.Pass(Handle, device);

    /// <summary>dst = src * scale for one tensor, such as the loss.</summary>
    public void Scale(Tensor src, Tensor dst, IntPtr stream = default) => Scale(new[] { src }, new[] { dst }, stream);

    /// <summary>dst = src * scale for host memory; the spans may be the same.</summary>
    public void Scale(ReadOnlySpan<float> src, Span<float> dst) => ScaleHost(src, dst, DType.Fp32);

    /// <summary>dst = src * scale as Fp16 or Bf16, for host memory.</summary>
    public void Scale(ReadOnlySpan<float> src, Span<ushort> dst, DType dtype) => ScaleHost(src, dst, dtype);

#if NET5_0_OR_GREATER
    /// <summary>dst = src * scale as Fp16, for host memory.</summary>
    public void Scale(ReadOnlySpan<float> src, Span<Half> dst) => ScaleHost(src, dst, DType.Fp16);
#endif

    private void ScaleHost<T>(ReadOnlySpan<float> src, Span<T> dst, DType dtype) where T : struct
    {
      NativeScaler scaler = HostHandle;
      HostMemory.Run(src, DType.Fp32, dst, dtype, (from, to) => scaler.Scale(from, to, IntPtr.Zero));
    }

    /// <summary>
    /// The next slice of Step, for programs with a frame rate: reads and writes at most maxBytes, but at least one chunk
    /// of up to 65536 elements. Returns the bytes that are left, 0 when the step is done.
    /// </summary>
    public long StepSlice(Optimizer optimizer, long maxBytes, IntPtr stream = default) =>
        Handle.StepSlice(Check.NotNull(optimizer, "optimizer").Handle, maxBytes, stream);

    /// <summary>For your own optimizer: whether to apply the step. Blocks.</summary>
    public bool ShouldStep(TensorList grads, IntPtr stream = default) =>
        Handle.ShouldStep(TensorList.HandleOf(grads, "grads"), stream) != 0;

    /// <summary>Returns a list, or with null all lists, to READY as if they had not been checked.</summary>
    public void Discard(TensorList grads = null) => Handle.Discard(grads?.Handle);

    /// <summary>The scale as of the work enqueued so far; 1 if disabled. Blocks on a GPU.</summary>
    public float GetScale(IntPtr stream = default) => Handle.GetScale(stream);

    /// <summary>Whether the scaler does anything.</summary>
    public bool IsEnabled => Handle.IsEnabled() != 0;

    /// <summary>
    /// The state now, and what the last check of a list found; null: the last update's lists together. Blocks. Errors:
    /// BadStateException for a list that this scaler never checked; ScaleFloorException under FloorAction.Error and
    /// SpikesException under SpikeAction.Error, which carry the report.
    /// </summary>
    public Report GetReport(TensorList grads = null, IntPtr stream = default)
    {
      NativeScaler scaler = Handle;
      using (var report = new NativeReport())
      {
        try
        {
          scaler.GetReport(grads?.Handle, report, stream);
        }
        catch (ReportException e)
        {
          e.Report = new Report(report);
          throw;
        }
        return new Report(report);
      }
    }

    /// <summary>
    /// As GetReport without waiting: enqueues the copy, and never throws ReportException. report: pinned memory on a
    /// GPU; it has the report when the stream has passed this point.
    /// </summary>
    public void ReadReportAsync(TensorList grads, ReportBuffer report, IntPtr stream = default)
    {
      if (!Check.NotNull(report, "report").IsPinned && device != DeviceType.Cpu)
      {
        throw new InvalidArgumentException("report is not pinned memory: use ReportBuffer.At");
      }
      Handle.ReadReportAsync(grads?.Handle, report.DeviceAddress, stream);
      GC.KeepAlive(report);
    }

    /// <summary>
    /// Joins the ranks of a job, on the CPU: if one overflows all skip, and clipping uses the norm over all. sum
    /// replaces each value by its sum over all ranks; it is called on the thread that checks or steps, by every rank
    /// equally often. null: none. An exception becomes the inner exception of the one that the call throws.
    /// </summary>
    public void SetReducer(Action<double[]> sum)
    {
      if (device != DeviceType.Cpu)
      {
        throw new UnsupportedException("the gradients are on a GPU: use SetDeviceReducer");
      }
      SetDeviceReducer(sum == null ? null : CallbackSlot.OnHost(sum));
    }

    /// <summary>As SetReducer on memory of the device: for NCCL and the like.</summary>
    public void SetDeviceReducer(DeviceReducer sum)
    {
      NativeScaler scaler = Handle;
      CallbackSlot.SumFunction function = sum == null ? null : CallbackSlot.SumFunctionPointer;
      scaler.Uses.Run(scaler, reference => NativeCallsPINVOKE.SetReducer(reference, function, reducer.Number));
      reducer.Reducer = sum;
    }

    /// <summary>The updates still kept, oldest first. Blocks.</summary>
    public IReadOnlyList<HistoryEntry> GetHistory(IntPtr stream = default)
    {
      var entries = new List<HistoryEntry>();
      using (NativeHistory history = Handle.History(stream))
      {
        long count = history.Count();
        for (long i = 0; i < count; i++)
        {
          using (NativeHistoryEntry entry = history.Get(i))
          {
            entries.Add(new HistoryEntry(entry));
          }
        }
      }
      return entries;
    }

    /// <summary>Addresses of the scaler's device scalars, of a list too if one is given.</summary>
    public DeviceState GetDeviceState(TensorList grads = null)
    {
      NativeScaler scaler = Handle;
      using (var state = new NativeDeviceState())
      {
        scaler.DeviceState(grads?.Handle, state);
        return new DeviceState(state);
      }
    }

    /// <summary>Everything a checkpoint needs. Blocks.</summary>
    public ScalerState GetState(IntPtr stream = default)
    {
      var state = new ScalerState();
      Handle.GetState(state.Handle, stream);
      return state;
    }

    /// <summary>A copy of the policy now.</summary>
    public ScalerOptions GetOptions()
    {
      var options = new ScalerOptions();
      Handle.GetOptions(options.Handle);
      return options;
    }

    /// <summary>Greater than 1. Setting it works on the default stream.</summary>
    public double GrowthFactor
    {
      get => Handle.GetGrowthFactor();
      set => Handle.SetGrowthFactor(value, IntPtr.Zero);
    }

    /// <summary>In (0, 1). Setting it works on the default stream.</summary>
    public double BackoffFactor
    {
      get => Handle.GetBackoffFactor();
      set => Handle.SetBackoffFactor(value, IntPtr.Zero);
    }

    /// <summary>At least 1. Setting it works on the default stream.</summary>
    public int GrowthInterval
    {
      get => Handle.GetGrowthInterval();
      set => Handle.SetGrowthInterval(value, IntPtr.Zero);
    }

    /// <summary>Destroys it after the calls in progress on other threads. Does nothing the second time.</summary>
    public void Dispose() => Interlocked.Exchange(ref handle, null)?.Dispose();
  }
}
