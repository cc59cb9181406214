// SPDX-License-Identifier: Apache-2.0
// A context, a list of parameters and one of gradients, SGD of learning rate 1 over them, and a scaler.
using System;
using System.IO;
using System.Linq;
using System.Text.RegularExpressions;
using System.Threading;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  internal sealed class World : IDisposable
  {
    internal readonly Context Context = Context.Cpu(1);
    internal readonly float[] Weights;
    internal readonly float[] Gradients;
    internal readonly TensorList Params;
    internal readonly TensorList Grads;
    internal readonly Optimizer Optimizer;
    internal readonly GradScaler Scaler;

    internal World(int count, ScalerOptions options = null)
    {
      Weights = new float[count];
      Gradients = new float[count];
      Params = new TensorList(Context, Tensor.Of(Weights));
      Grads = new TensorList(Context, Tensor.Of(Gradients));
      Optimizer = new Optimizer(Context, Sgd(), Params, Grads);
      Scaler = new GradScaler(Context, options ?? new ScalerOptions { InitScale = 1024 });
    }

    /// <summary>SGD, whose weights show the gradients.</summary>
    internal static OptimizerOptions Sgd(double lr = 1) => new OptimizerOptions(OptimizerKind.Sgd) { Lr = lr };

    /// <summary>Expects a call to be refused for its arguments.</summary>
    internal static void Invalid(TestDelegate call) => Assert.Throws<InvalidArgumentException>(call);

    /// <summary>Expects a call to be refused because an object is disposed.</summary>
    internal static void Disposed(string name, TestDelegate call) =>
        Assert.That(Assert.Throws<ObjectDisposedException>(call).ObjectName, Is.EqualTo(name));

    /// <summary>As a backward pass would: every gradient has this value before it is scaled.</summary>
    internal void Fill(float trueValue)
    {
      float value = trueValue * Scaler.GetScale();
      for (int i = 0; i < Gradients.Length; i++)
      {
        Gradients[i] = value;
      }
    }

    /// <summary>Runs it while another thread collects garbage.</summary>
    internal static void WhileCollecting(Action body)
    {
      bool stop = false;
      var collector = new Thread(() =>
      {
        while (!Volatile.Read(ref stop))
        {
          GC.Collect();
          Thread.Sleep(1);  // Without it the other threads may hardly get a turn: on two cores 800 ms each.
        }
      });
      collector.Start();
      try
      {
        body();
      }
      finally
      {
        Volatile.Write(ref stop, true);
        collector.Join();
      }
    }

    /// <summary>How often to repeat what needs luck: four times as often in the long form.</summary>
    internal static int Repetitions(int once)
    {
      return Environment.GetEnvironmentVariable("GRADSCALER_TEST_LONG") == null ? once : 4 * once;
    }

    /// <summary>Collects garbage, with allocations between that reuse what was freed.</summary>
    internal static void Collect()
    {
      for (int i = 0; i < 20; i++)
      {
        GC.KeepAlive(new float[1 << 16]);
        GC.Collect();
        GC.WaitForPendingFinalizers();
      }
    }

    /// <summary>Runs each on a thread. Their stacks, which may keep objects alive, are gone afterwards.</summary>
    internal static void OnThreads(params Action[] bodies)
    {
      Thread[] threads = bodies.Select(body => new Thread(() => body())).ToArray();
      Array.ForEach(threads, thread => thread.Start());
      Array.ForEach(threads, thread => thread.Join());
    }

    internal static long ResidentKilobytes()
    {
      string line = File.ReadAllLines("/proc/self/status").First(l => l.StartsWith("VmRSS:"));
      return long.Parse(Regex.Replace(line, "[^0-9]", ""));
    }

    public void Dispose()
    {
      Scaler.Dispose();
      Optimizer.Dispose();
      Grads.Dispose();
      Params.Dispose();
      Context.Dispose();
    }
  }
}
