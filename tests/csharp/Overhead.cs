// SPDX-License-Identifier: Apache-2.0
// What a step and an update cost on a list of one element, in nanoseconds: the least of many rounds.
using System;
using System.Diagnostics;

namespace Gradscaler.Tests
{
  internal static class Overhead
  {
    private const int Rounds = 300;
    private const int Calls = 1000;

    private static void Main()
    {
      double least = double.MaxValue;
      using (var w = new World(1))
      {
        for (int round = 0; round < Rounds; round++)
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
      Console.WriteLine(Math.Round(least));
    }
  }
}
