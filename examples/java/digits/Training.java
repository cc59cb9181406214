// SPDX-License-Identifier: Apache-2.0
package digits;

import data.Dataset;
import data.RandomSource;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Ops;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;

/**
 * A mixed-precision training loop: fp32 master weights, a network in fp16, AdamW, and a scaler that may be disabled.
 */
final class Training {
  private static final int TRAIN_IMAGES = 1437;
  private static final int BATCH = 64;

  /** What came out of a run. */
  static final class Result {
    double accuracy;
    long skipped;
    float scale;
    int updates;
  }

  private Training() {}

  static Result run(Context context, Dataset all, boolean scaled, float initialScale, float magnitude, int steps) {
    final Dataset[] split = all.split(TRAIN_IMAGES, 0);
    final Network network = new Network(context, BATCH);
    final Tensor[] master = network.masterWeights(0);
    Ops.cast(context, master, network.weights);
    final ScalerOptions policy =
        new ScalerOptions().enabled(scaled).initScale(initialScale).growthInterval(50).historyCapacity(steps);

    try (TensorList params = new TensorList(context, master);
        TensorList grads = new TensorList(context, network.grads);
        // Written in the same pass that updates the master weights: the weights of the next forward pass.
        TensorList copy = new TensorList(context, network.weights);
        Optimizer optimizer = new Optimizer(context, OptimizerOptions.adamW().lr(2e-3), params, grads, copy);
        GradScaler scaler = new GradScaler(context, policy)) {
      final RandomSource batches = new RandomSource(0, 2);
      final Tensor gradient = Tensor.allocate(DType.FP32, BATCH * Dataset.CLASSES);
      final float[] pixels = new float[BATCH * Dataset.PIXELS];
      final int[] labels = new int[BATCH];
      for (int step = 0; step < steps; step++) {
        split[0].batch(batches, BATCH, pixels, labels);
        network.forward(pixels);
        network.lossGradient(labels, magnitude, gradient);
        // The first gradient of the backward pass, times the scale, rounded to fp16.
        scaler.scale(gradient, network.firstDelta());
        network.backward();
        // Check, unscale, AdamW and the fp16 weights; skipped if a gradient is inf or NaN.
        scaler.step(optimizer);
        scaler.update();
      }
      final Result result = new Result();
      result.accuracy = network.accuracy(split[1]);
      result.skipped = optimizer.stepsSkipped();
      result.scale = scaler.getScale();
      result.updates = scaler.history().size();
      return result;
    }
  }
}
