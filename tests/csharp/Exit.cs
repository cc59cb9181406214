// SPDX-License-Identifier: Apache-2.0
// Ends processes while their threads are in calls and dispose. Fails if one ends with an unexpected exit code.
using System;
using System.Diagnostics;
using System.Reflection;
using System.Threading;

namespace Gradscaler.Tests
{
  internal static class Exit
  {
    private const int Code = 3;

    private static int Main(string[] arguments)
    {
      if (arguments.Length != 0)
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
