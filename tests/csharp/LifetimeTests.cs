// SPDX-License-Identifier: Apache-2.0
// Objects that are disposed, forgotten, made by the million or used by many threads; and the arrays behind them.
using System;
using System.Linq;
using System.Runtime.CompilerServices;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class LifetimeTests
  {
    [Test]
    public void UseAfterDispose()
    {
      var w = new World(2);
      w.Dispose();
      World.Disposed("GradScaler", () => w.Scaler.GetScale());
      World.Disposed("GradScaler", () => w.Scaler.Update());
      World.Disposed("GradScaler", () => w.Scaler.GetHistory());
      World.Disposed("Optimizer", () => w.Optimizer.Step());
      World.Disposed("Optimizer", () => w.Optimizer.Save(new byte[4]));
      World.Disposed("TensorList", () => w.Grads.Count.ToString());
      World.Disposed("TensorList", () => w.Grads.Diagnose());
      World.Disposed("Context", () => w.Context.NumThreads.ToString());
      World.Disposed("Context", () => new GradScaler(w.Context));
      using (var other = new World(2))
      {
        World.Disposed("TensorList", () => other.Scaler.CheckGrads(w.Grads));
        World.Disposed("TensorList", () => other.Scaler.GetReport(w.Grads));
        World.Disposed("Optimizer", () => other.Scaler.Step(w.Optimizer));
        World.Disposed("Context", () => Ops.Cast(w.Context, new Tensor[0], new Tensor[0]));
      }
    }

    /// <summary>The state's memory goes with the optimizer; what was made of it is refused from then on.</summary>
    [Test]
    public void StateOfADisposedOptimizerIsRefused()
    {
      using (var w = new World(4))
      using (var other = new World(4))
      {
        Tensor host = Tensor.Of(other.Weights);
        var optimizer = new Optimizer(w.Context, new OptimizerOptions(OptimizerKind.AdamW), w.Params, w.Grads);
        Tensor state = optimizer.StateTensor(1, 0);
        var list = new TensorList(w.Context, state.Slice(0, 4).Named("exp_avg_sq"));
        var overState = new Optimizer(w.Context, new OptimizerOptions(OptimizerKind.Sgd), list,
                                      new TensorList(w.Context, host));
        Tensor again = list[0];
        Ops.Cast(w.Context, state, host);
        overState.Step();
        optimizer.Dispose();
        StateRefused("src[0]", () => Ops.Cast(w.Context, state, host));
        StateRefused("dst[0]", () => Ops.Cast(w.Context, host, again));
        StateRefused("tensors[0]", () => new TensorList(w.Context, state));
        StateRefused("tensors[0]", () => list.Diagnose());
        StateRefused("tensors[0]", () => list[0].ToString());
        StateRefused("tensors[0]", () => overState.Step());
        list.SetTensors(new[] { other.Grads[0] });
        Assert.That(list.Diagnose()[0].Count, Is.EqualTo(4));
        overState.Dispose();
      }
    }

    private static void StateRefused(string argument, TestDelegate call)
    {
      var e = Assert.Throws<ObjectDisposedException>(call, argument);
      Assert.That(e.ObjectName, Is.EqualTo("Optimizer"));
      Assert.That(e.Message, Is.StringStarting(argument + " is state of an optimizer that was disposed"));
    }

    /// <summary>The memory of a tensor that a list hands out, and of one made of an address and its owner.</summary>
    [Test]
    public void TensorsKeepTheirOwnersAlive()
    {
      using (Context context = Context.Cpu(1))
      {
        var arrays = new WeakReference[2];
        Tensor listed = null;
        TensorList list = null;
        World.OnThreads(() =>
        {
          listed = Listed(context, arrays);
          list = OfAddress(context, arrays);
        });
        World.Collect();
        Assert.That(arrays.All(a => a.IsAlive), Is.True);
        Assert.That(listed.Span<float>()[3], Is.EqualTo(5f));
        Assert.That(list.Diagnose()[0].Amax, Is.EqualTo(5));
        list.Dispose();
      }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static Tensor Listed(Context context, WeakReference[] arrays)
    {
      float[] array = Filled(1 << 16, 5);
      arrays[0] = new WeakReference(array);
      using (var list = new TensorList(context, Tensor.Of(array)))
      {
        return list[0];
      }
    }

    /// <summary>The owner is an object of which the assembly knows nothing.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static TensorList OfAddress(Context context, WeakReference[] arrays)
    {
      float[] array = Filled(1 << 16, 5);
      arrays[1] = new WeakReference(array);
      Tensor pinned = Tensor.Of(array);
      return new TensorList(context, Tensor.At(pinned.Address, pinned.Count, DType.Fp32, new object[] { pinned }));
    }

    [Test]
    public void DisposingTwiceAndInAnyOrder()
    {
      var w = new World(2);
      w.Context.Dispose();
      w.Params.Dispose();
      w.Grads.Dispose();
      w.Fill(1);
      w.Scaler.StepAndUpdate(w.Optimizer);
      Assert.That(w.Weights[1], Is.EqualTo(-1f));
      w.Dispose();
      w.Dispose();
    }

    [Test]
    public void ManyAreMadeWithoutGrowth()
    {
      using (Context context = Context.Cpu(1))
      {
        Tensor tensor = Tensor.Allocate(DType.Fp32, 4);
        Make(context, tensor, 100000);
        long before = World.ResidentKilobytes();
        Make(context, tensor, 1000000);
        Assert.That(World.ResidentKilobytes() - before, Is.LessThan(32 * 1024));
      }
    }

    private static void Make(Context context, Tensor tensor, int count)
    {
      for (int i = 0; i < count; i++)
      {
        new TensorList(context, tensor).Dispose();
      }
      GC.Collect();
      GC.WaitForPendingFinalizers();
    }

    /// <summary>The finalizer thread destroys objects that were not disposed, and what they kept alive is freed.</summary>
    [Test]
    public void ForgottenObjectsAreFinalized()
    {
      const int Count = 500;
      var arrays = new WeakReference[Count];
      World.OnThreads(() =>
      {
        for (int i = 0; i < Count; i++)
        {
          arrays[i] = Forget();
        }
      });
      int left = Count;
      for (int i = 0; i < 5 && left > 0; i++)
      {
        World.Collect();
        left = arrays.Count(a => a.IsAlive);
      }
      Assert.That(left, Is.EqualTo(0));
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static WeakReference Forget()
    {
      var w = new World(8);
      w.Fill(1);
      w.Scaler.StepAndUpdate(w.Optimizer);
      return new WeakReference(w.Weights);
    }

    /// <summary>The only reference to the arrays is the optimizer's.</summary>
    [Test]
    public void OptimizerKeepsArraysAlive()
    {
      using (Context context = Context.Cpu(1))
      {
        var arrays = new WeakReference[2];
        Optimizer optimizer = null;
        World.OnThreads(() => optimizer = Forgetful(context, arrays));
        World.Collect();
        Assert.That(arrays.All(a => a.IsAlive), Is.True);
        optimizer.Step();
        Assert.That(((float[])arrays[0].Target)[99], Is.EqualTo(-2f));
        optimizer.Dispose();
      }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static Optimizer Forgetful(Context context, WeakReference[] arrays)
    {
      float[] weights = new float[1 << 16], gradients = new float[1 << 16], exchanged = Filled(1 << 16, 2);
      arrays[0] = new WeakReference(weights);
      arrays[1] = new WeakReference(exchanged);
      using (var parameters = new TensorList(context, Tensor.Of(weights)))
      using (var grads = new TensorList(context, Tensor.Of(gradients)))
      {
        var optimizer = new Optimizer(context, World.Sgd(), parameters, grads);
        grads.SetTensors(new[] { Tensor.Of(exchanged) });
        return optimizer;
      }
    }

    /// <summary>While another thread collects garbage, calls on temporaries that nothing else refers to.</summary>
    [Test]
    public void ArraysLiveThroughTheCall()
    {
      World.WhileCollecting(() =>
      {
        using (Context context = Context.Cpu(1))
        {
          var copy = new float[1 << 14];
          for (int i = 1; i <= 100; i++)
          {
            Ops.Cast(context, Tensor.Of(Filled(copy.Length, i)), Tensor.Of(copy));
            Assert.That(copy.All(v => v == i), Is.True);
            new Optimizer(context, World.Sgd(), new TensorList(context, Tensor.Of(copy)),
                          new TensorList(context, Tensor.Of(Filled(copy.Length, 3 * i)))).Step();
            Assert.That(copy.All(v => v == -2 * i), Is.True);
          }
        }
      });
    }

    /// <summary>Overwrites its memory when it is collected, as others free theirs.</summary>
    private sealed class Overwriting
    {
      private readonly float[] array;
      private readonly Tensor pinned;

      internal Overwriting(int count)
      {
        array = new float[count];
        pinned = Tensor.Of(array);
      }

      ~Overwriting()
      {
        array[array.Length - 1] = float.NaN;
      }

      internal Tensor Tensor => Tensor.At(pinned.Address, pinned.Count, DType.Fp32, this);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void CastOverwriting(Context context, double[] copy) =>
        Ops.Cast(context, new[] { new Overwriting(copy.Length).Tensor }, new[] { Tensor.Of(copy) });

    /// <summary>Calls that take longer than to collect what they read.</summary>
    [Test]
    public void OwnersLiveThroughALongCall()
    {
      const int Count = 1 << 23;
      var copy = new double[Count];
      World.WhileCollecting(() =>
      {
        using (Context context = Context.Cpu(1))
        {
          for (int i = 0; i < 10; i++)
          {
            CastOverwriting(context, copy);
            Assert.That(copy[Count - 1], Is.EqualTo(0));
          }
        }
      });
    }

    private static float[] Filled(int count, float value) => Enumerable.Repeat(value, count).ToArray();

    /// <summary>Each thread reads the failure of the call that it made.</summary>
    [Test]
    public void ErrorsBelongToTheThread()
    {
      // An assertion on a thread would end the process.
      int wrong = 0;
      World.OnThreads(Enumerable.Range(1, 4).Select<int, Action>(t => () =>
      {
        using (var w = new World(1))
        {
          for (int i = 0; i < 2000; i++)
          {
            try
            {
              w.Scaler.SetScale(-t);
              wrong++;
            }
            catch (InvalidArgumentException e)
            {
              wrong += e.Message.Contains("scale is -" + t + ";") ? 0 : 1;
            }
          }
        }
      }).ToArray());
      Assert.That(wrong, Is.EqualTo(0));
    }
  }
}
