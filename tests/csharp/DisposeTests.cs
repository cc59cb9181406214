// SPDX-License-Identifier: Apache-2.0
// Dispose while a call is in progress: the call ends as if nothing had happened, and the next one is refused.
using System;
using System.Linq;
using System.Threading;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class DisposeTests
  {
    /// <summary>Each waits for three threads to get their turn, which takes long where others have the processors.
    /// </summary>
    private static readonly int Races = World.Repetitions(1000);

    /// <summary>Calls every object until it is disposed; null, or what else ended it.</summary>
    internal static Exception UseUntilDisposed(World w)
    {
      try
      {
        while (true)
        {
          w.Scaler.Step(w.Optimizer);
          w.Scaler.Update();
          w.Optimizer.GetStepsApplied();
          w.Grads.Diagnose();
          new TensorList(w.Context, Tensor.Of(w.Weights)).Dispose();
        }
      }
      catch (ObjectDisposedException)
      {
        return null;
      }
      catch (Exception e)
      {
        return e;
      }
    }

    internal static void DisposeInTurn(World w, int first)
    {
      var objects = new IDisposable[] { w.Scaler, w.Optimizer, w.Grads, w.Params, w.Context };
      for (int i = 0; i < objects.Length; i++)
      {
        objects[(first + i) % objects.Length].Dispose();
      }
    }

    /// <summary>Runs the actions in threads that begin together, in each race once more.</summary>
    private static void Race(int races, Func<int, Action[]> prepare)
    {
      Action[] actions = prepare(0);
      using (var start = new Barrier(actions.Length))
      using (var end = new Barrier(actions.Length, barrier => actions = prepare((int)barrier.CurrentPhaseNumber + 1)))
      {
        World.OnThreads(Enumerable.Range(0, actions.Length).Select<int, Action>(t => () =>
        {
          for (int i = 0; i < races; i++)
          {
            start.SignalAndWait();
            actions[t]();
            end.SignalAndWait();
          }
        }).ToArray());
      }
    }

    [Test]
    public void TwoDisposersAndACall()
    {
      Exception wrong = null;
      Race(Races, i =>
      {
        var w = new World(8);
        return new Action[] {
          () => wrong = UseUntilDisposed(w) ?? wrong,
          () => DisposeInTurn(w, i),
          () => DisposeInTurn(w, i),
        };
      });
      Assert.That(wrong, Is.Null);
    }

    /// <summary>Two threads ask an object at once for what only reads.</summary>
    [Test]
    public void TwoCallersAndADisposer()
    {
      int refused = 0;
      Race(Races, i =>
      {
        Context context = Context.Cpu(1);
        Action call = () =>
        {
          try
          {
            while (context.NumThreads == 1)
            {
            }
          }
          catch (ObjectDisposedException e)
          {
            Interlocked.Add(ref refused, e.ObjectName == "Context" ? 1 : 0);
          }
        };
        return new Action[] { call, call, context.Dispose };
      });
      Assert.That(refused, Is.EqualTo(2 * Races));
    }

    /// <summary>The callback runs inside of the call that uses what it disposes.</summary>
    [Test]
    public void InACallback()
    {
      for (int i = 0; i < 200; i++)
      {
        var w = new World(8);
        int first = i;
        w.Scaler.SetReducer(values => DisposeInTurn(w, first));
        w.Scaler.Step(w.Optimizer);
        World.Disposed("GradScaler", () => w.Scaler.Update());
        World.Disposed("Optimizer", () => w.Optimizer.Step());
      }
    }

    /// <summary>The call goes on with the state of an optimizer that its callback disposes: the list over it holds the
    /// memory, until another thread disposes that.</summary>
    [Test]
    public void OnTheStateOfAnotherOptimizer()
    {
      using (var w = new World(4 << 20))
      {
        long before = w.Context.HostBytes;
        var owner = new Optimizer(w.Context, new OptimizerOptions(OptimizerKind.AdamW), w.Params, w.Grads);
        var state = new TensorList(w.Context, owner.StateTensor(0, 0));
        using (var overState = new Optimizer(w.Context, new OptimizerOptions(OptimizerKind.Sgd), state, w.Grads))
        {
          w.Scaler.SetReducer(values => owner.Dispose());
          w.Scaler.Step(overState);
          Assert.Throws<ObjectDisposedException>(() => overState.Step());
        }
        World.OnThreads(state.Dispose);
        Assert.That(w.Context.HostBytes, Is.EqualTo(before));
      }
    }

    /// <summary>Finalizers destroy what is forgotten while other threads make calls and dispose.</summary>
    [Test]
    public void BesideTheFinalizers()
    {
      World.WhileCollecting(() =>
      {
        for (int i = 0; i < 300; i++)
        {
          var w = new World(8);
          w.Scaler.Step(w.Optimizer);
          if (i % 2 == 0)
          {
            w.Optimizer.Dispose();
          }
          var disposer = new Thread(w.Scaler.Dispose);
          disposer.Start();
          new World(8).Scaler.GetScale();
          disposer.Join();
        }
      });
    }
  }
}
