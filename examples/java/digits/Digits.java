// SPDX-License-Identifier: Apache-2.0
package digits;

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
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;

/**
 * Trains a linear classifier on handwritten digits with weights and gradients in fp16, and a loss so small that fp16 has
 * no gradients without loss scaling: once without, once with a GradScaler. Fails if scaling does not do what it should.
 * AdamW's state may be small: moments in 16 or 8 bits, and fp32 masters split into the fp16 weights and what those leave
 * out.
 *
 * <pre>java -cp classes:gradscaler.jar:gradscaler-natives.jar digits.Digits digits.csv BITS8 SPLIT16</pre>
 */
public final class Digits {
  private static final int INPUTS = 65; // 8 x 8 pixels, and a 1 for the bias
  private static final int CLASSES = 10;
  private static final int BATCH = 64;
  private static final int STEPS = 200;
  private static final float MAGNITUDE = 1e-6f; // of the loss

  private final Context context;
  private final OptimizerOptions adamw;
  /** Every fifth is for the test of what the others teach. */
  private final float[][] images;
  private final int[] labels;

  /** Of lines with 64 pixels from 0 to 16 and a digit. */
  private Digits(Context context, OptimizerOptions adamw, List<String> lines) {
    this.context = context;
    this.adamw = adamw;
    images = new float[lines.size()][INPUTS];
    labels = new int[lines.size()];
    for (int i = 0; i < labels.length; i++) {
      final String[] numbers = lines.get(i).split(",");
      for (int j = 0; j < INPUTS - 1; j++) {
        images[i][j] = Integer.parseInt(numbers[j]) / 16f;
      }
      images[i][INPUTS - 1] = 1;
      labels[i] = Integer.parseInt(numbers[INPUTS - 1]);
    }
  }

  private float[] floats(Tensor stored) {
    final float[] values = new float[(int) stored.count()];
    final Tensor full = Tensor.allocate(DType.FP32, values.length);
    Ops.cast(context, stored, full);
    full.floats().get(values);
    return values;
  }

  private static float[] scores(float[] weights, float[] image) {
    final float[] scores = new float[CLASSES];
    for (int i = 0; i < weights.length; i++) {
      scores[i % CLASSES] += image[i / CLASSES] * weights[i];
    }
    return scores;
  }

  private double train(String name, boolean scaled) {
    final Tensor weights = Tensor.allocate(DType.FP16, INPUTS * CLASSES).named("weights");
    final Tensor gradient = Tensor.allocate(DType.FP16, INPUTS * CLASSES).named("weights");
    final Tensor master = Tensor.allocate(DType.FP32, INPUTS * CLASSES).named("weights");
    final ScalerOptions policy = new ScalerOptions().enabled(scaled).growthInterval(50);
    // AdamW updates fp32 master weights and writes the fp16 ones in the same pass; split masters are with the latter.
    final boolean split = adamw.masterFormat() != MasterFormat.NONE;
    try (TensorList params = new TensorList(context, split ? weights : master);
        TensorList grads = new TensorList(context, gradient);
        TensorList copy = split ? null : new TensorList(context, weights);
        Optimizer optimizer = new Optimizer(context, adamw, params, grads, copy);
        GradScaler scaler = new GradScaler(context, policy)) {
      final Random random = new Random(0);
      for (int step = 0; step < STEPS; step++) {
        final int[] batch = random.ints(BATCH, 0, images.length / 5).map(i -> 5 * i + 1 + random.nextInt(4)).toArray();
        backward(batch, floats(weights), scaler, gradient);
        // Check, unscale, AdamW and the fp16 weights; skipped if a gradient is inf or NaN.
        scaler.step(optimizer);
        scaler.update();
      }
      final double accuracy = accuracy(floats(weights));
      System.out.printf("%-20s accuracy %5.1f %%, %2d steps skipped, scale %g, %.1f bytes of state a weight%n", name,
          100 * accuracy, optimizer.stepsSkipped(), scaler.getScale(), (double) optimizer.saveSize() / weights.count());
      return accuracy;
    }
  }

  private void backward(int[] batch, float[] weights, GradScaler scaler, Tensor gradient) {
    final Tensor ofScores = Tensor.allocate(DType.FP32, BATCH * CLASSES);
    for (int i = 0; i < BATCH; i++) {
      final float[] scores = scores(weights, images[batch[i]]);
      double sum = 0;
      for (float score : scores) {
        sum += Math.exp(score);
      }
      for (int k = 0; k < CLASSES; k++) {
        final double error = Math.exp(scores[k]) / sum - (k == labels[batch[i]] ? 1 : 0);
        ofScores.floats().put(i * CLASSES + k, (float) (error / BATCH * MAGNITUDE));
      }
    }
    // The first gradient of the backward pass, times the scale, rounded to fp16.
    final Tensor stored = Tensor.allocate(DType.FP16, BATCH * CLASSES);
    scaler.scale(ofScores, stored);
    final float[] delta = floats(stored);
    final float[] sums = new float[INPUTS * CLASSES];
    for (int i = 0; i < BATCH; i++) {
      for (int j = 0; j < sums.length; j++) {
        sums[j] += images[batch[i]][j / CLASSES] * delta[i * CLASSES + j % CLASSES];
      }
    }
    final Tensor full = Tensor.allocate(DType.FP32, sums.length);
    full.floats().put(sums);
    Ops.cast(context, full, gradient);
  }

  private double accuracy(float[] weights) {
    int right = 0;
    int count = 0;
    for (int i = 0; i < images.length; i += 5, count++) {
      final float[] scores = scores(weights, images[i]);
      int best = 0;
      for (int k = 1; k < CLASSES; k++) {
        best = scores[k] > scores[best] ? k : best;
      }
      right += best == labels[i] ? 1 : 0;
    }
    return (double) right / count;
  }

  private static void require(boolean holds, String claim) {
    if (!holds) {
      System.err.println("digits: does not hold: " + claim);
      System.exit(1);
    }
  }

  public static void main(String[] args) throws IOException {
    if (args.length != 1 && args.length != 3) {
      System.err.println("usage: Digits digits.csv [FULL|BITS16|BITS8 NONE|SPLIT16|SPLIT8|STOCHASTIC]");
      System.exit(2);
    }
    final OptimizerOptions adamw = OptimizerOptions.adamW().lr(1e-2);
    if (args.length == 3) {
      adamw.stateFormat(StateFormat.valueOf(args[1])).masterFormat(MasterFormat.valueOf(args[2]));
    }
    System.out.println(Context.buildInfo());
    try (Context context = Context.cpu(1)) {
      final Digits digits = new Digits(context, adamw, Files.readAllLines(Path.of(args[0])));
      require(digits.train("fp16, no scaling", false) < 0.5, "unscaled fp16 fails");
      require(digits.train("fp16 + GradScaler", true) > 0.9, "scaled fp16 reaches 90 %");
    }
  }
}
