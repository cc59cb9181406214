// SPDX-License-Identifier: Apache-2.0
// An object is destroyed once and during no call: calls on its thread and on others, in races with who disposes it.
using System;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Threading;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class UsesTests
  {
    private static readonly int Races = World.Repetitions(30000);
    private const int Calls = 100;
    private static readonly Type Type = typeof(Context).Assembly.GetType("Gradscaler.Uses");
    private int[] destroyed;
    private Uses[] objects;

    /// <summary>Both sides write to this first: a processor then holds back what it writes next, but not what it reads.
    /// </summary>
    private int contended;

    /// <summary>The race that is on; Races at the end.</summary>
    private int current;

    private Exception wrong;

    /// <summary>The assembly's class, which is internal.</summary>
    private sealed class Uses
    {
      internal readonly Func<object, HandleRef> Begin;
      internal readonly Action End;
      internal readonly Action BeginShared;
      internal readonly Action EndShared;
      internal readonly Action Close;

      internal Uses(Action<HandleRef> destroy)
      {
        object uses = Activator.CreateInstance(Type, BindingFlags.Instance | BindingFlags.NonPublic, null,
                                               new object[] { "Object", IntPtr.Zero, destroy }, null);
        Begin = (Func<object, HandleRef>)Bind(typeof(Func<object, HandleRef>), uses, "Begin");
        End = (Action)Bind(typeof(Action), uses, "End");
        BeginShared = (Action)Bind(typeof(Action), uses, "BeginShared");
        EndShared = (Action)Bind(typeof(Action), uses, "EndShared");
        Close = (Action)Bind(typeof(Action), uses, "Close");
      }

      private static Delegate Bind(Type type, object uses, string name)
      {
        MethodInfo method = Type.GetMethod(name, BindingFlags.Instance | BindingFlags.NonPublic);
        return Delegate.CreateDelegate(type, uses, method);
      }
    }

    private void Work(int race)
    {
      for (int i = 0; i < 20; i++)
      {
        if (Volatile.Read(ref destroyed[race]) != 0)
        {
          throw new InvalidOperationException("destroyed in a call");
        }
      }
    }

    /// <summary>Calls the object until it is disposed, and again within each call, as a callback does. In the end disposes
    /// it.</summary>
    private void Call(int race)
    {
      Uses uses = objects[race];
      try
      {
        for (int i = 0; i < Calls; i++)
        {
          Volatile.Write(ref contended, i);
          uses.Begin(this);
          try
          {
            Work(race);
            uses.Begin(this);
            uses.End();
            Work(race);
          }
          finally
          {
            uses.End();
          }
        }
        uses.Close();
      }
      catch (ObjectDisposedException)
      {
      }
    }

    private void Share(int race)
    {
      try
      {
        objects[race].BeginShared();
      }
      catch (ObjectDisposedException)
      {
        return;
      }
      Work(race);
      objects[race].EndShared();
    }

    private void Close(int race)
    {
      for (int i = race % 64; i >= 0; i--)
      {
        Volatile.Write(ref contended, i);
      }
      objects[race].Close();
    }

    /// <summary>Makes and calls the objects on a thread, each while others do this to it.</summary>
    private void Race(params Action<int>[] others)
    {
      destroyed = new int[Races];
      objects = new Uses[Races];
      current = -1;
      Action makeAndCall = () =>
      {
        for (int race = 0; race < Races; race++)
        {
          int index = race;
          objects[race] = new Uses(handle => Interlocked.Increment(ref destroyed[index]));
          Volatile.Write(ref current, race);
          Call(race);
        }
      };
      var actions = others.Select<Action<int>, Action>(other => () =>
      {
        for (int last = -1, race; (race = Volatile.Read(ref current)) < Races; last = race)
        {
          if (race != last)
          {
            other(race);
          }
        }
      });
      World.OnThreads(new[] { makeAndCall }.Concat(actions).Select<Action, Action>((action, t) => () =>
      {
        try
        {
          action();
        }
        catch (Exception e)
        {
          wrong = wrong ?? e;
        }
        if (t == 0)
        {
          Volatile.Write(ref current, Races);
        }
      }).ToArray());
      Assert.That(wrong, Is.Null);
      Assert.That(destroyed.All(count => count == 1));
    }

    [Test]
    public void ACallerAndADisposer() => Race(Close);

    [Test]
    public void TwoCallersAndADisposer() => Race(Call, Close);

    [Test]
    public void ACallerAndTwoDisposers() => Race(Close, race => objects[race].Close());

    /// <summary>What one thread has begun, another one ends.</summary>
    [Test]
    public void SharedUses() => Race(Share, Close);
  }
}
