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
import io.github.gradscaler.StateFormat;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.nio.ByteBuffer;

/**
 * A mixed-precision training loop: a network in fp16, AdamW, and a scaler that may be disabled. AdamW updates fp32
 * master weights and writes the fp16 ones in the same pass; with split masters it updates the fp16 weights and keeps
 * what they leave out.
 */
final class Training implements AutoCloseable {
  private static final int TRAIN_IMAGES = 1437;
  private static final int BATCH = 64;

  private final Dataset[] split;
  private final Network network;
  private final TensorList params;
  private final TensorList grads;
  private final TensorList copy;
  private final Optimizer optimizer;
  private final GradScaler scaler;
  private final RandomSource batches = new RandomSource(0, 2);

  /** What came out of a run. */
  static final class Result {
    double accuracy;
    long skipped;
    float scale;
    int updates;
    double stateBytes;
  }

  Training(Context context, Dataset all, OptimizerOptions adamw, ScalerOptions policy) {
    split = all.split(TRAIN_IMAGES, 0);
    network = new Network(context, BATCH);
    final Tensor[] master = network.masterWeights(0);
    Ops.cast(context, master, network.weights);
    final boolean splits = adamw.masterFormat() != MasterFormat.NONE;
    params = new TensorList(context, splits ? network.weights : master);
    grads = new TensorList(context, network.grads);
    copy = splits ? null : new TensorList(context, network.weights);
    optimizer = new Optimizer(context, adamw, params, grads, copy);
    scaler = new GradScaler(context, policy);
  }

  void steps(int count, float magnitude) {
    final Tensor gradient = Tensor.allocate(DType.FP32, BATCH * Dataset.CLASSES);
    final float[] pixels = new float[BATCH * Dataset.PIXELS];
    final int[] labels = new int[BATCH];
    for (int step = 0; step < count; step++) {
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
  }

  Result result() {
    final Result result = new Result();
    result.accuracy = network.accuracy(split[1]);
    result.skipped = optimizer.stepsSkipped();
    result.scale = scaler.getScale();
    result.updates = scaler.history().size();
    long weights = 0;
    for (Tensor tensor : network.weights) {
      weights += tensor.count();
    }
    result.stateBytes = (double) optimizer.saveSize() / weights;
    return result;
  }

  /** Accuracy after half the steps with the state of `adamw` and the rest with fp32 state and the same masters. */
  static double convert(Context context, Dataset all, OptimizerOptions adamw, float magnitude, int steps) {
    final OptimizerOptions full =
        OptimizerOptions.adamW().lr(adamw.lr()).stateFormat(StateFormat.FULL).masterFormat(adamw.masterFormat());
    try (Training first = new Training(context, all, adamw, new ScalerOptions());
        Training second = new Training(context, all, full, new ScalerOptions())) {
      first.steps(steps / 2, magnitude);
      final ByteBuffer saved = ByteBuffer.allocateDirect((int) first.optimizer.saveSize());
      first.optimizer.save(saved);
      Ops.cast(context, first.network.weights, second.network.weights);
      second.optimizer.load(saved);
      second.scaler.setState(first.scaler.getState());
      second.steps(steps - steps / 2, magnitude);
      return second.result().accuracy;
    }
  }

  @Override
  public void close() {
    scaler.close();
    optimizer.close();
    if (copy != null) {
      copy.close();
    }
    grads.close();
    params.close();
  }
}
