// SPDX-License-Identifier: Apache-2.0
// A mixed-precision training loop: fp32 master weights, a network in fp16, AdamW, and a scaler that may be disabled.
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
  }

  internal static class Training
  {
    private const int TrainImages = 1437;
    private const int Batch = 64;

    internal static Result Run(Context context, Dataset all, bool scaled, float initialScale, float magnitude,
                               int steps)
    {
      Dataset train, test;
      all.Split(TrainImages, 0, out train, out test);
      var network = new Network(context, Batch);
      Tensor[] master = network.MasterWeights(0);
      Ops.Cast(context, master, network.Weights);
      var adamw = new OptimizerOptions(OptimizerKind.AdamW) { Lr = 2e-3 };
      var policy = new ScalerOptions
      {
        Enabled = scaled, InitScale = initialScale, GrowthInterval = 50, HistoryCapacity = steps
      };

      using (var parameters = new TensorList(context, master))
      using (var grads = new TensorList(context, network.Grads))
      // Written in the same pass that updates the master weights: the weights of the next forward pass.
      using (var copy = new TensorList(context, network.Weights))
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
          Updates = scaler.GetHistory().Count
        };
      }
    }
  }
}
