// SPDX-License-Identifier: Apache-2.0
// Programs for tests that need a process: `overhead` prints the nanoseconds that a step and an update cost on a list of
// one element, the least of many rounds; `exit` ends 20 processes while their threads are in calls and dispose, and
// fails if one ends with an unexpected exit code, or hangs.
using System;
using System.Diagnostics;
using System.Linq;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;

namespace Gradscaler.Tests
{
  internal static class Programs
  {
    private const int Code = 3;
    private const int Hangs = 60000; // milliseconds

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
      string[] failures = Enumerable.Range(0, 20).Select(i => EndOfChild()).Where(end => end != null).ToArray();
      Array.ForEach(failures, Console.WriteLine);
      return failures.Length == 0 ? 0 : 1;
    }

    /// <summary>Null if the child ended as it should.</summary>
    private static string EndOfChild()
    {
      string program = Process.GetCurrentProcess().MainModule.FileName;
      var start = new ProcessStartInfo(program, "exec \"" + Assembly.GetExecutingAssembly().Location + "\" child");
      start.UseShellExecute = false;
      start.RedirectStandardOutput = start.RedirectStandardError = true;
      using (Process process = Process.Start(start))
      {
        Task<string> output = process.StandardOutput.ReadToEndAsync(), errors = process.StandardError.ReadToEndAsync();
        if (!process.WaitForExit(Hangs))
        {
          process.Kill();
          return "hangs at its end";
        }
        return process.ExitCode == Code ? null : "ended with " + process.ExitCode + "\n" + output.Result + errors.Result;
      }
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
