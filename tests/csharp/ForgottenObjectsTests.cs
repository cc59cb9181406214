// SPDX-License-Identifier: Apache-2.0
// Objects that are never disposed: the collector sees none of their memory, and is told of it.
using System;
using System.IO;
using System.Linq;
using System.Threading;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class ForgottenObjectsTests
  {
    private const long BoundKilobytes = 640 * 1024;

    private static void DoNotPileUp(int count, Action make)
    {
      long before = World.ResidentKilobytes(), most = before;
      for (int i = 0; i < count; i++)
      {
        make();
        if (i % 10 == 0)
        {
          most = Math.Max(most, World.ResidentKilobytes());
        }
      }
      Assert.That(most - before, Is.LessThan(BoundKilobytes));
    }

    /// <summary>40 times 64 MiB of Adam's state are 2.5 GiB.</summary>
    [Test]
    public void OptimizersDoNotPileUp()
    {
      using (Context context = Context.Cpu(1))
      {
        Tensor weights = Tensor.Allocate(DType.Fp32, 8 << 20), gradients = Tensor.Allocate(DType.Fp32, 8 << 20);
        var options = new OptimizerOptions(OptimizerKind.Adam);
        using (var parameters = new TensorList(context, weights))
        using (var grads = new TensorList(context, gradients))
        {
          DoNotPileUp(40, () => new Optimizer(context, options, parameters, grads).Step());
        }
      }
    }

    /// <summary>Their histories are 128 KiB each, 2 GiB together.</summary>
    [Test]
    public void ScalersDoNotPileUp()
    {
      using (Context context = Context.Cpu(1))
      {
        var options = new ScalerOptions { HistoryCapacity = 4096 };
        DoNotPileUp(16000, () => new GradScaler(context, options));
      }
    }

    /// <summary>830 MiB, if none were collected. What they have in managed memory makes the collector run.</summary>
    [Test]
    public void ListsDoNotPileUp()
    {
      using (Context context = Context.Cpu(1))
      {
        Tensor tensor = Tensor.Allocate(DType.Fp32, 10000);
        Tensor[] tensors = Enumerable.Range(0, 10000).Select(i => tensor.Slice(i, 1)).ToArray();
        DoNotPileUp(1500, () => new TensorList(context, tensors));
      }
    }

    private static int Threads() => Directory.GetFileSystemEntries("/proc/self/task").Length;

    [Test]
    public void ContextsEndTheirThreads()
    {
      int before = Threads();
      var array = new float[1 << 16];
      for (int i = 0; i < 100; i++)
      {
        Ops.Cast(Context.Cpu(4), Tensor.Of(array), Tensor.Of(array));
      }
      for (int i = 0; i < 1000 && Threads() > before + 30; i++)
      {
        GC.Collect();
        GC.WaitForPendingFinalizers();
        Thread.Sleep(10);
      }
      Assert.That(Threads(), Is.LessThanOrEqualTo(before + 30));
    }
  }
}
