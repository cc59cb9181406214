// SPDX-License-Identifier: Apache-2.0
// What needs a process: `overhead` prints the nanoseconds that a step and an update cost on a list of one element, the
// least of many rounds; `exit` ends processes while their threads are in calls and dispose, and fails if one ends with
// an unexpected exit code.
using System;
using System.Diagnostics;
using System.Reflection;
using System.Threading;

namespace Gradscaler.Tests
{
  internal static class Programs
  {
    private const int Code = 3;

    private static int Main(string[] arguments)
    {
      if (arguments[0] == "overhead")
      {
        Console.WriteLine(Math.Round(Overhead()));
        return 0;
      }
      if (arguments[0] == "child")
      {
        EndInCalls();
      }
      for (int i = 0; i < 10; i++)
      {
        string program = Process.GetCurrentProcess().MainModule.FileName;
        using (Process process = Process.Start(program, "\"" + Assembly.GetExecutingAssembly().Location + "\" child"))
        {
          process.WaitForExit();
          if (process.ExitCode != Code)
          {
            Console.WriteLine("ended with {0}", process.ExitCode);
            return 1;
          }
        }
      }
      return 0;
    }

    private static double Overhead()
    {
      const int Calls = 1000;
      double least = double.MaxValue;
      using (var w = new World(1))
      {
        for (int round = 0; round < 300; round++)
        {
          Stopwatch watch = Stopwatch.StartNew();
          for (int i = 0; i < Calls; i++)
          {
            w.Scaler.Step(w.Optimizer);
            w.Scaler.Update();
          }
          least = Math.Min(least, watch.Elapsed.TotalMilliseconds * 1e6 / Calls);
        }
      }
      return least;
    }

    private static void EndInCalls()
    {
      for (int i = 0; i < 4; i++)
      {
        var w = new World(8);
        int first = i;
        new Thread(() => DisposeTests.UseUntilDisposed(w)) { IsBackground = true }.Start();
        if (i < 2)
        {
          AppDomain.CurrentDomain.ProcessExit += (sender, e) => DisposeTests.DisposeInTurn(w, first);
        }
      }
      Thread.Sleep(20);
      Environment.Exit(Code);
    }
  }
}
