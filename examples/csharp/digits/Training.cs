// SPDX-License-Identifier: Apache-2.0
// A mixed-precision training loop: a network in fp16, AdamW, and a scaler that may be disabled. AdamW updates fp32
// master weights and writes the fp16 ones in the same pass; with split masters it updates the fp16 weights and keeps
// what they leave out.
using System;
using System.Linq;
using Gradscaler;

namespace Digits
{
  /// <summary>What came out of a run.</summary>
  internal struct Result
  {
    internal double Accuracy;
    internal long Skipped;
    internal float Scale;
    internal int Updates;
    internal double StateBytes;
  }

  internal sealed class Training : IDisposable
  {
    private const int TrainImages = 1437;
    private const int Batch = 64;

    private readonly Dataset train, test;
    private readonly Network network;
    private readonly TensorList parameters, grads, copy;
    private readonly Optimizer optimizer;
    private readonly GradScaler scaler;
    private readonly RandomSource batches = new RandomSource(0, 2);

    internal Training(Context context, Dataset all, OptimizerOptions adamw, ScalerOptions policy)
    {
      all.Split(TrainImages, 0, out train, out test);
      network = new Network(context, Batch);
      Tensor[] master = network.MasterWeights(0);
      Ops.Cast(context, master, network.Weights);
      bool splits = adamw.MasterFormat != MasterFormat.None;
      parameters = new TensorList(context, splits ? network.Weights : master);
      grads = new TensorList(context, network.Grads);
      copy = splits ? null : new TensorList(context, network.Weights);
      optimizer = new Optimizer(context, adamw, parameters, grads, copy);
      scaler = new GradScaler(context, policy);
    }

    internal void Run(int steps, float magnitude)
    {
      var pixels = new float[Batch * Dataset.Pixels];
      var labels = new int[Batch];
      for (int step = 0; step < steps; step++)
      {
        train.Batch(batches, Batch, pixels, labels);
        network.Forward(pixels);
        float[] gradient = network.LossGradient(labels, magnitude);
        // The first gradient of the backward pass, times the scale, rounded to fp16.
        scaler.Scale(gradient, network.FirstDelta, DType.Fp16);
        network.Backward();
        // Check, unscale, AdamW and the fp16 weights; skipped if a gradient is inf or NaN.
        scaler.Step(optimizer);
        scaler.Update();
      }
    }

    internal Result GetResult()
    {
      return new Result
      {
        Accuracy = network.Accuracy(test),
        Skipped = optimizer.GetStepsSkipped(),
        Scale = scaler.GetScale(),
        Updates = scaler.GetHistory().Count,
        StateBytes = (double)optimizer.SaveSize / network.Weights.Sum(tensor => tensor.Count)
      };
    }

    /// <summary>Accuracy after half the steps with the state of adamw and the rest with fp32 state and the same masters.
    /// </summary>
    internal static double Convert(Context context, Dataset all, OptimizerOptions adamw, float magnitude, int steps)
    {
      var full = new OptimizerOptions(OptimizerKind.AdamW) { Lr = adamw.Lr, MasterFormat = adamw.MasterFormat };
      using (var first = new Training(context, all, adamw, new ScalerOptions()))
      using (var second = new Training(context, all, full, new ScalerOptions()))
      {
        first.Run(steps / 2, magnitude);
        var saved = new byte[first.optimizer.SaveSize];
        first.optimizer.Save(saved);
        Ops.Cast(context, first.network.Weights, second.network.Weights);
        second.optimizer.Load(saved);
        second.scaler.SetState(first.scaler.GetState());
        second.Run(steps - steps / 2, magnitude);
        return second.GetResult().Accuracy;
      }
    }

    public void Dispose()
    {
      scaler.Dispose();
      optimizer.Dispose();
      if (copy != null)
      {
        copy.Dispose();
      }
      grads.Dispose();
      parameters.Dispose();
    }
  }
}
