// SPDX-License-Identifier: Apache-2.0
// A mixed-precision training loop: a network in fp16, AdamW, and a scaler that may be disabled. AdamW updates fp32
// master weights and writes the fp16 ones in the same pass; with split masters it updates the fp16 weights.
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

  internal static class Training
  {
    private const int TrainImages = 1437;
    private const int Batch = 64;

    internal static Result Run(Context context, Dataset all, OptimizerOptions adamw, bool scaled, float initialScale,
                               float magnitude, int steps)
    {
      Dataset train, test;
      all.Split(TrainImages, 0, out train, out test);
      var network = new Network(context, Batch);
      Tensor[] master = network.MasterWeights(0);
      Ops.Cast(context, master, network.Weights);
      bool splits = adamw.MasterFormat != MasterFormat.None;
      var policy = new ScalerOptions
      {
        Enabled = scaled, InitScale = initialScale, GrowthInterval = 50, HistoryCapacity = steps
      };

      using (var parameters = new TensorList(context, splits ? network.Weights : master))
      using (var grads = new TensorList(context, network.Grads))
      using (var copy = splits ? null : new TensorList(context, network.Weights))
      using (var optimizer = new Optimizer(context, adamw, parameters, grads, copy))
      using (var scaler = new GradScaler(context, policy))
      {
        var batches = new RandomSource(0, 2);
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
        return new Result
        {
          Accuracy = network.Accuracy(test),
          Skipped = optimizer.GetStepsSkipped(),
          Scale = scaler.GetScale(),
          Updates = scaler.GetHistory().Count,
          StateBytes = (double)optimizer.SaveSize / network.Weights.Sum(tensor => tensor.Count)
        };
      }
    }
  }
}
