// SPDX-License-Identifier: Apache-2.0
package nd4j;

import data.Arms;
import data.Dataset;
import data.RandomSource;
import integrations.Nd4jArrays;
import io.github.gradscaler.Context;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.nio.file.Path;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;

/**
 * The digits network by hand on ND4J's arrays: fp32 master weights, and weights, activations and gradients in FLOAT or
 * HALF. gradscaler steps on the arrays in place.
 */
public final class Nd4jDigits {
  private static final int[] WIDTHS = {Dataset.PIXELS, 64, 64, Dataset.CLASSES};
  private static final int LAYERS = 3;

  private final DataType type;
  /** A matrix (inputs x outputs) and a bias a layer. */
  private final INDArray[] master = new INDArray[2 * LAYERS];
  private final INDArray[] weights = new INDArray[2 * LAYERS];
  private final INDArray[] grads = new INDArray[2 * LAYERS];
  private final INDArray[] activations = new INDArray[LAYERS + 1];

  private Nd4jDigits(DataType type, long seed) {
    this.type = type;
    final RandomSource random = new RandomSource(seed, 1);
    for (int i = 0; i < master.length; i++) {
      final int in = WIDTHS[i / 2];
      final int out = WIDTHS[i / 2 + 1];
      final float[] values = new float[i % 2 == 0 ? in * out : out];
      for (int j = 0; i % 2 == 0 && j < values.length; j++) {
        values[j] = (float) Math.sqrt(2.0 / in) * random.normal();
      }
      final long[] shape = i % 2 == 0 ? new long[] {in, out} : new long[] {out};
      master[i] = Nd4j.create(values, shape, 'c');
      weights[i] = type == DataType.FLOAT ? master[i] : master[i].castTo(type);
      grads[i] = Nd4j.create(type, shape, 'c');
    }
  }

  /** Accumulated in fp32 and rounded once, as tensor cores do; ND4J's own mmul of HALF arrays is 15 times slower. */
  private INDArray product(INDArray a, INDArray b) {
    return a.castTo(DataType.FLOAT).mmul(b.castTo(DataType.FLOAT)).castTo(type);
  }

  private INDArray forward(INDArray pixels) {
    activations[0] = pixels.castTo(type);
    for (int layer = 0; layer < LAYERS; layer++) {
      final INDArray z = product(activations[layer], weights[2 * layer]).addiRowVector(weights[2 * layer + 1]);
      activations[layer + 1] = layer < LAYERS - 1 ? Nd4j.math().max(z, z.mul(0)) : z;
    }
    return activations[LAYERS];
  }

  /** d loss / d scores, in fp32. */
  private static INDArray lossGradient(INDArray scores, int[] labels) {
    final float[] wanted = new float[labels.length * Dataset.CLASSES];
    for (int i = 0; i < labels.length; i++) {
      wanted[i * Dataset.CLASSES + labels[i]] = 1;
    }
    return Nd4j.nn().softmax(scores.castTo(DataType.FLOAT))
        .subi(Nd4j.create(wanted, new long[] {labels.length, Dataset.CLASSES}, 'c'))
        .muli(Arms.LOSS_FACTOR / labels.length);
  }

  private void backward(INDArray delta) {
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
      // assign copies element by element, whatever the order of the product.
      grads[2 * layer].assign(product(activations[layer].transpose(), delta));
      grads[2 * layer + 1].assign(delta.castTo(DataType.FLOAT).sum(0).castTo(type));
      if (layer > 0) {
        delta = product(delta, weights[2 * layer].transpose()).muli(activations[layer].gt(0).castTo(type));
      }
    }
  }

  private static Tensor[] tensors(INDArray[] arrays) {
    final Tensor[] tensors = new Tensor[arrays.length];
    for (int i = 0; i < arrays.length; i++) {
      tensors[i] = Nd4jArrays.tensor(arrays[i]);
    }
    return tensors;
  }

  private static Arms.Result train(Context context, Dataset[] split, Arms arm, long seed) {
    final Nd4jDigits network = new Nd4jDigits(arm.half() ? DataType.HALF : DataType.FLOAT, seed);
    final ScalerOptions policy = new ScalerOptions().enabled(arm.scaled()).growthInterval(50);
    try (TensorList params = new TensorList(context, tensors(network.master));
        TensorList grads = new TensorList(context, tensors(network.grads));
        // Written in the same pass that updates the master weights: the weights of the next forward pass.
        TensorList copy = arm.half() ? new TensorList(context, tensors(network.weights)) : null;
        Optimizer optimizer =
            new Optimizer(context, OptimizerOptions.adamW().lr(Arms.LEARNING_RATE), params, grads, copy);
        GradScaler scaler = new GradScaler(context, policy)) {
      final RandomSource batches = new RandomSource(seed, 2);
      final float[] pixels = new float[Arms.BATCH * Dataset.PIXELS];
      final int[] labels = new int[Arms.BATCH];
      for (int step = 0; step < Arms.STEPS; step++) {
        split[0].batch(batches, Arms.BATCH, pixels, labels);
        final INDArray scores = network.forward(Nd4j.create(pixels, new long[] {Arms.BATCH, Dataset.PIXELS}, 'c'));
        network.backward(lossGradient(scores, labels).muli(scaler.getScale()).castTo(network.type));
        scaler.step(optimizer);
        scaler.update();
      }
      final INDArray test = Nd4j.create(split[1].pixels, new long[] {split[1].count(), Dataset.PIXELS}, 'c');
      final float[] scores = network.forward(test).castTo(DataType.FLOAT).dup('c').data().asFloat();
      return new Arms.Result(split[1].accuracy(scores), optimizer.stepsSkipped(), scaler.getScale());
    }
  }

  public static void main(String[] args) throws Exception {
    final Dataset all = Dataset.read(Path.of(args[0]));
    try (Context context = Context.cpu(1)) {
      Arms.compare("ND4J",
          (arm, seed) -> train(context, all.split(Dataset.TRAIN_IMAGES, seed), arm, seed));
    }
    System.exit(0);
  }
}
