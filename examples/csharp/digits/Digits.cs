// SPDX-License-Identifier: Apache-2.0
// Trains a linear classifier on handwritten digits with weights and gradients in fp16, and a loss so small that fp16 has
// no gradients without loss scaling: once without, once with a GradScaler. Fails if scaling does not do what it should.
// AdamW's state may be small: moments in 16 or 8 bits, and fp32 masters split into the fp16 weights and what those leave
// out.
//
//     mono Digits.exe digits.csv Bits8 Split16
using System;
using System.IO;
using System.Linq;
using Gradscaler;

namespace Digits
{
  internal sealed class Program
  {
    private const int Inputs = 65; // 8 x 8 pixels, and a 1 for the bias
    private const int Classes = 10;
    private const int Batch = 64;
    private const int Steps = 200;
    private const float Magnitude = 1e-6f; // of the loss

    private readonly Context context;
    private readonly OptimizerOptions adamw;

    /// <summary>Every fifth is for the test of what the others teach.</summary>
    private readonly float[][] images;
    private readonly int[] labels;

    /// <summary>Of lines with 64 pixels from 0 to 16 and a digit.</summary>
    private Program(Context context, OptimizerOptions adamw, string[] lines)
    {
      this.context = context;
      this.adamw = adamw;
      int[][] numbers = lines.Select(line => line.Split(',').Select(int.Parse).ToArray()).ToArray();
      images = numbers.Select(row => row.Take(Inputs - 1).Select(n => n / 16f).Concat(new[] { 1f }).ToArray()).ToArray();
      labels = numbers.Select(row => row[Inputs - 1]).ToArray();
    }

    private static float[] Scores(float[] weights, float[] image)
    {
      var scores = new float[Classes];
      for (int i = 0; i < weights.Length; i++)
      {
        scores[i % Classes] += image[i / Classes] * weights[i];
      }
      return scores;
    }

    private float[] Floats(ushort[] stored)
    {
      var values = new float[stored.Length];
      Ops.Cast(context, stored, DType.Fp16, values);
      return values;
    }

    private double Train(string name, bool scaled)
    {
      ushort[] weights = new ushort[Inputs * Classes], gradient = new ushort[Inputs * Classes];
      Tensor half = Tensor.Of(weights, DType.Fp16), master = Tensor.Of(new float[weights.Length]);
      var policy = new ScalerOptions { Enabled = scaled, GrowthInterval = 50 };
      // AdamW updates fp32 master weights and writes the fp16 ones in the same pass; split masters are with the latter.
      bool split = adamw.MasterFormat != MasterFormat.None;
      using (var parameters = new TensorList(context, (split ? half : master).Named("weights")))
      using (var grads = new TensorList(context, Tensor.Of(gradient, DType.Fp16).Named("weights")))
      using (var copy = split ? null : new TensorList(context, half))
      using (var optimizer = new Optimizer(context, adamw, parameters, grads, copy))
      using (var scaler = new GradScaler(context, policy))
      {
        var random = new Random(0);
        for (int step = 0; step < Steps; step++)
        {
          int[] batch = Enumerable.Range(0, Batch).Select(i => 5 * random.Next(images.Length / 5) + random.Next(1, 5))
                            .ToArray();
          Backward(batch, Floats(weights), scaler, gradient);
          // Check, unscale, AdamW and the fp16 weights; skipped if a gradient is inf or NaN.
          scaler.Step(optimizer);
          scaler.Update();
        }
        double accuracy = Accuracy(Floats(weights));
        Console.WriteLine("{0,-20} accuracy {1,5:F1} %, {2,2} steps skipped, scale {3}, {4:F1} bytes of state a weight",
                          name, 100 * accuracy, optimizer.GetStepsSkipped(), scaler.GetScale(),
                          (double)optimizer.SaveSize / weights.Length);
        return accuracy;
      }
    }

    private void Backward(int[] batch, float[] weights, GradScaler scaler, ushort[] gradient)
    {
      var ofScores = new float[Batch * Classes];
      for (int i = 0; i < Batch; i++)
      {
        double[] powers = Scores(weights, images[batch[i]]).Select(score => Math.Exp(score)).ToArray();
        for (int k = 0; k < Classes; k++)
        {
          double error = powers[k] / powers.Sum() - (k == labels[batch[i]] ? 1 : 0);
          ofScores[i * Classes + k] = (float)(error / Batch * Magnitude);
        }
      }
      // The first gradient of the backward pass, times the scale, rounded to fp16.
      var stored = new ushort[ofScores.Length];
      scaler.Scale(ofScores, stored, DType.Fp16);
      float[] delta = Floats(stored), sums = new float[gradient.Length];
      for (int i = 0; i < Batch; i++)
      {
        for (int j = 0; j < sums.Length; j++)
        {
          sums[j] += images[batch[i]][j / Classes] * delta[i * Classes + j % Classes];
        }
      }
      Ops.Cast(context, sums, gradient, DType.Fp16);
    }

    private double Accuracy(float[] weights)
    {
      return Enumerable.Range(0, images.Length).Where(i => i % 5 == 0).Average(i =>
      {
        float[] scores = Scores(weights, images[i]);
        return Array.IndexOf(scores, scores.Max()) == labels[i] ? 1.0 : 0.0;
      });
    }

    private static void Require(bool holds, string claim)
    {
      if (!holds)
      {
        Console.Error.WriteLine("digits: does not hold: " + claim);
        Environment.Exit(1);
      }
    }

    private static int Main(string[] args)
    {
      if (args.Length != 1 && args.Length != 3)
      {
        Console.Error.WriteLine("usage: Digits digits.csv [Full|Bits16|Bits8 None|Split16|Split8|Stochastic]");
        return 2;
      }
      var adamw = new OptimizerOptions(OptimizerKind.AdamW) { Lr = 1e-2 };
      if (args.Length == 3)
      {
        adamw.StateFormat = (StateFormat)Enum.Parse(typeof(StateFormat), args[1]);
        adamw.MasterFormat = (MasterFormat)Enum.Parse(typeof(MasterFormat), args[2]);
      }
      Console.WriteLine(Context.BuildInfo);
      using (Context context = Context.Cpu(1))
      {
        var digits = new Program(context, adamw, File.ReadAllLines(args[0]));
        Require(digits.Train("fp16, no scaling", false) < 0.5, "unscaled fp16 fails");
        Require(digits.Train("fp16 + GradScaler", true) > 0.9, "scaled fp16 reaches 90 %");
      }
      return 0;
    }
  }
}
