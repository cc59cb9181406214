// SPDX-License-Identifier: Apache-2.0
// Callbacks of the library, and reports without waiting: the log, the sum over ranks, memory of the caller.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class CallbackTests
  {
    private static ScalerOptions AtFloor(FloorAction action = FloorAction.Report)
    {
      return new ScalerOptions { InitScale = 4, MinScale = 4, FloorAction = action, FloorPatience = 1 };
    }

    private static void Overflow(World w)
    {
      w.Fill(float.NaN);
      w.Scaler.StepAndUpdate(w.Optimizer);
    }

    [Test]
    public void LogReachesItsReceiver()
    {
      var messages = new List<string>();
      using (var w = new World(2, AtFloor()))
      {
        w.Context.SetLog((level, message) => messages.Add(level + ": " + message));
        Overflow(w);
        Assert.That(messages.Count, Is.EqualTo(1));
        Assert.That(messages[0], Is.StringStarting("Warning: loss scale 4 cannot be lowered"));
        w.Context.SetLog(null);
        Overflow(w);
        Assert.That(messages.Count, Is.EqualTo(1));
        w.Context.SetLog((level, message) =>
        {
          messages.Add(message);
          throw new InvalidOperationException("of the receiver");
        });
        Overflow(w);
        Assert.That(messages.Count, Is.EqualTo(2));
        Assert.That(w.Scaler.GetReport().Skipped, Is.EqualTo(3));
      }
    }

    private sealed class Counter
    {
      internal int Count;
    }

    /// <summary>The receiver gets the messages of a scaler whose context was disposed and forgotten.</summary>
    [Test]
    public void ReceiverLivesAsLongAsTheObjects()
    {
      var heard = new Counter();
      var gradient = new float[1];
      Tuple<GradScaler, Optimizer> objects = null;
      World.OnThreads(() => objects = WithoutContext(heard, gradient));
      World.Collect();
      gradient[0] = float.NaN;
      objects.Item1.StepAndUpdate(objects.Item2);
      Assert.That(heard.Count, Is.EqualTo(1));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static Tuple<GradScaler, Optimizer> WithoutContext(Counter heard, float[] gradient)
    {
      using (Context context = Context.Cpu(1))
      using (var parameters = new TensorList(context, Tensor.Of(new float[1])))
      using (var grads = new TensorList(context, Tensor.Of(gradient)))
      {
        context.SetLog((level, message) => heard.Count++);
        return Tuple.Create(new GradScaler(context, AtFloor()),
                            new Optimizer(context, new OptimizerOptions(OptimizerKind.Sgd), parameters, grads));
      }
    }

    /// <summary>Of other ranks come three times the squares, and then an overflow.</summary>
    [Test]
    public void ReducerReplacesTheSums()
    {
      using (var w = new World(1))
      {
        w.Scaler.SetReducer(values => values[1] *= 4);
        w.Fill(3);
        w.Scaler.CheckGrads(w.Grads);
        Assert.That(w.Scaler.GetReport(w.Grads).GradNorm, Is.EqualTo(6).Within(1e-6));
        w.Scaler.StepAndUpdate(w.Optimizer);
        w.Scaler.SetReducer(values => values[0]++);
        w.Scaler.StepAndUpdate(w.Optimizer);
        Assert.That(w.Weights[0], Is.EqualTo(-3f));
        Assert.That(w.Scaler.GetReport().Overflow, Is.True);
        Assert.That(w.Scaler.GetReport().NonfiniteCount, Is.EqualTo(1));
        Assert.That(w.Scaler.GetScale(), Is.EqualTo(512f));
      }
    }

    /// <summary>20,000 exceptions: none is kept, no memory grows, no step is taken, and the next call works.</summary>
    [Test]
    public void ExceptionsLeaveNothingBehind()
    {
      var thrown = new List<WeakReference>();
      using (var w = new World(2, AtFloor()))
      {
        int caught = 0;
        World.OnThreads(() => caught = ThrowFromCallbacks(w, 1000, thrown));
        long before = World.ResidentKilobytes();
        World.OnThreads(() => caught += ThrowFromCallbacks(w, 10000, thrown));
        Assert.That(caught, Is.EqualTo(11000));
        Assert.That(World.ResidentKilobytes() - before, Is.LessThan(16 * 1024));
        w.Fill(1);
        w.Scaler.StepAndUpdate(w.Optimizer);
        Assert.That(w.Weights[0], Is.EqualTo(-1f));
      }
      World.Collect();
      Assert.That(thrown.Count(e => e.IsAlive), Is.EqualTo(0));
    }

    /// <summary>Two each time: from a reducer and from a log. Every hundredth is noted. Returns how many came out as the
    /// cause of another: an assertion on this thread would end the process.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static int ThrowFromCallbacks(World w, int count, List<WeakReference> thrown)
    {
      int caught = 0;
      for (int i = 0; i < count; i++)
      {
        if (i % 1000 == 0)
        {
          // .NET lets as much garbage gather as the third-level cache is large.
          GC.Collect();
        }
        var lost = new IOException("a rank is gone");
        w.Scaler.SetReducer(values => { throw lost; });
        try
        {
          w.Scaler.Step(w.Optimizer);
        }
        catch (GradScalerException e)
        {
          caught += e.Status == Status.Callback && e.InnerException == lost ? 1 : 0;
        }
        w.Scaler.Discard();
        w.Scaler.SetReducer(null);
        w.Context.SetLog((level, message) => { throw lost; });
        Overflow(w);
        if (i % 100 == 0)
        {
          thrown.Add(new WeakReference(lost));
        }
      }
      w.Context.SetLog(null);
      return caught;
    }

    [Test]
    public void DeviceReducerGetsMemory()
    {
      using (var w = new World(2))
      {
        long got = 0;
        w.Scaler.SetDeviceReducer((values, count, stream) =>
        {
          got = count;
          Tensor[] sums = { Tensor.At(values, count, DType.Fp64) };
          Ops.Axpby(w.Context, 1, sums, 1, sums);
        });
        w.Fill(3);
        w.Scaler.CheckGrads(w.Grads);
        Assert.That(got, Is.EqualTo(2));
        Assert.That(w.Scaler.GetReport(w.Grads).GradNorm, Is.EqualTo(6).Within(1e-6));
      }
    }

    [Test]
    public void ReportWithoutWaiting()
    {
      using (var w = new World(2, AtFloor(FloorAction.Error)))
      {
        Tensor memory = Tensor.Allocate(DType.Fp64, (ReportBuffer.Size + 7) / 8);
        ReportBuffer own = new ReportBuffer(), callers = ReportBuffer.At(memory.Address);
        Assert.That(own.Get().Updates, Is.EqualTo(0));
        Overflow(w);
        // As on Vulkan: written to the second address, read from the first.
        Tensor first = Tensor.Allocate(DType.Fp64, (int)memory.Count);
        ReportBuffer mapped = ReportBuffer.At(first.Address, memory.Address);
        w.Scaler.ReadReportAsync(null, mapped);
        Assert.That(new[] { mapped.Get().Updates, callers.Get().Updates }, Is.EqualTo(new[] { 0, 1 }));
        foreach (ReportBuffer each in new[] { own, callers })
        {
          w.Scaler.ReadReportAsync(null, each);
          Assert.That(each.Get().AtFloor, Is.True);
          Assert.That(each.Get().NonfiniteCount, Is.EqualTo(2));
          Assert.That(each.Get().Updates, Is.EqualTo(1));
        }
        w.Scaler.ReadReportAsync(w.Grads, own);
        Assert.That(own.Get().FirstTensor, Is.EqualTo(0));
        GC.KeepAlive(memory);
        Assert.Throws<ArgumentNullException>(() => w.Scaler.ReadReportAsync(w.Grads, null));
        World.Invalid(() => ReportBuffer.At(IntPtr.Zero));
        World.Invalid(() => ReportBuffer.At(new IntPtr(12)));
      }
    }
  }
}
