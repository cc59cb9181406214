// SPDX-License-Identifier: Apache-2.0
// Trains a small network on handwritten digits in fp16, with a loss so small that most of its gradients are lost
// without loss scaling: once without, once with a GradScaler. A third run has a first scale that is far too large.
// Fails if scaling does not do what it should. AdamW's state may be small: moments in 16 or 8 bits, and fp32 masters
// split into the fp16 weights and what those leave out. How the library is used is in Training.cs; the twin in C is
// examples/c/digits.
//
//     mono Digits.exe digits.csv Bits8 Split16
using System;
using Gradscaler;

namespace Digits
{
  internal static class Program
  {
    private const float Small = 1e-5f;
    private const int Steps = 200;
    private static readonly OptimizerOptions AdamW = new OptimizerOptions(OptimizerKind.AdamW) { Lr = 2e-3 };

    private static int Main(string[] args)
    {
      if (args.Length != 1 && args.Length != 3)
      {
        Console.Error.WriteLine("usage: Digits digits.csv [Full|Bits16|Bits8 None|Split16|Split8|Stochastic]");
        return 2;
      }
      if (args.Length == 3)
      {
        AdamW.StateFormat = (StateFormat)Enum.Parse(typeof(StateFormat), args[1]);
        AdamW.MasterFormat = (MasterFormat)Enum.Parse(typeof(MasterFormat), args[2]);
      }
      Console.WriteLine(Context.BuildInfo);
      Dataset all = Dataset.Read(args[0]);
      using (Context context = Context.Cpu(1))
      {
        Result plain = Run("fp16, no scaling", context, all, false, 1 << 16, Small);
        Result scaled = Run("fp16 + GradScaler", context, all, true, 1 << 16, Small);
        Result settling = Run("from 2^30, loss x 1", context, all, true, 1 << 30, 1);
        return Holds(plain.Accuracy < 0.5, "unscaled fp16 fails")
               & Holds(scaled.Accuracy > 0.9, "scaled fp16 reaches 90 %")
               & Holds(settling.Accuracy > 0.9, "the run from 2^30 reaches 90 %")
               & Holds(settling.Skipped >= 5, "the run from 2^30 skips its first steps")
               & Holds(settling.Updates == Steps, "the history has every update") ? 0 : 1;
      }
    }

    private static Result Run(string name, Context context, Dataset all, bool scaled, float initialScale,
                              float magnitude)
    {
      Result result = Training.Run(context, all, AdamW, scaled, initialScale, magnitude, Steps);
      Console.WriteLine("{0,-20} accuracy {1,5:F1} %, {2,2} steps skipped, scale {3}, {4:F1} bytes of state a weight",
                        name, 100 * result.Accuracy, result.Skipped, result.Scale, result.StateBytes);
      return result;
    }

    private static bool Holds(bool holds, string claim)
    {
      if (!holds)
      {
        Console.Error.WriteLine("digits: does not hold: " + claim);
      }
      return holds;
    }
  }
}
