// SPDX-License-Identifier: Apache-2.0
package digits;

import data.Dataset;
import data.RandomSource;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.MasterFormat;
import io.github.gradscaler.Ops;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.util.Arrays;

/**
 * A mixed-precision training loop: a network in fp16, AdamW, and a scaler that may be disabled. AdamW updates fp32
 * master weights and writes the fp16 ones in the same pass; with split masters it updates the fp16 weights.
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
    double stateBytes;
  }

  private Training() {}

  static Result run(Context context, Dataset all, OptimizerOptions adamw, boolean scaled, float initialScale,
      float magnitude, int steps) {
    final Dataset[] split = all.split(TRAIN_IMAGES, 0);
    final Network network = new Network(context, BATCH);
    final Tensor[] master = network.masterWeights(0);
    Ops.cast(context, master, network.weights);
    final ScalerOptions policy =
        new ScalerOptions().enabled(scaled).initScale(initialScale).growthInterval(50).historyCapacity(steps);

    final boolean splits = adamw.masterFormat() != MasterFormat.NONE;
    try (TensorList params = new TensorList(context, splits ? network.weights : master);
        TensorList grads = new TensorList(context, network.grads);
        TensorList copy = splits ? null : new TensorList(context, network.weights);
        Optimizer optimizer = new Optimizer(context, adamw, params, grads, copy);
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
      result.stateBytes =
          (double) optimizer.saveSize() / Arrays.stream(network.weights).mapToLong(Tensor::count).sum();
      return result;
    }
  }
}
