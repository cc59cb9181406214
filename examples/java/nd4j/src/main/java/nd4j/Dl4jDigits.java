// SPDX-License-Identifier: Apache-2.0
package nd4j;

import data.Arms;
import data.Dataset;
import data.RandomSource;
import integrations.Dl4jScaling;
import io.github.gradscaler.Context;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import java.nio.file.Path;
import org.deeplearning4j.nn.conf.MultiLayerConfiguration;
import org.deeplearning4j.nn.conf.NeuralNetConfiguration;
import org.deeplearning4j.nn.conf.layers.DenseLayer;
import org.deeplearning4j.nn.conf.layers.OutputLayer;
import org.deeplearning4j.nn.multilayer.MultiLayerNetwork;
import org.deeplearning4j.nn.weights.WeightInit;
import org.nd4j.linalg.activations.Activation;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;
import org.nd4j.linalg.lossfunctions.impl.LossMCXENT;

/** The digits network in DL4J, trained by fit(), in FLOAT or HALF. */
public final class Dl4jDigits {
  private Dl4jDigits() {}

  private static MultiLayerNetwork network(DataType type, Dl4jScaling.ScaledLoss loss, long seed) {
    final MultiLayerConfiguration configuration = new NeuralNetConfiguration.Builder().dataType(type).seed(seed)
        .weightInit(WeightInit.RELU).activation(Activation.RELU).list()
        .layer(new DenseLayer.Builder().nIn(Dataset.PIXELS).nOut(64).build())
        .layer(new DenseLayer.Builder().nIn(64).nOut(64).build())
        .layer(new OutputLayer.Builder(loss).activation(Activation.SOFTMAX).nIn(64).nOut(Dataset.CLASSES).build())
        .build();
    final MultiLayerNetwork network = new MultiLayerNetwork(configuration);
    network.init();
    network.initGradientsView();
    return network;
  }

  private static Arms.Result train(Context context, Dataset[] split, Arms arm, long seed) {
    final DataType type = arm.half() ? DataType.HALF : DataType.FLOAT;
    final Dl4jScaling.ScaledLoss loss = new Dl4jScaling.ScaledLoss(new LossMCXENT(0, null), Arms.LOSS_FACTOR);
    final MultiLayerNetwork network = network(type, loss, seed);
    try (Dl4jScaling scaling = new Dl4jScaling(context, network, loss, OptimizerOptions.adamW().lr(Arms.LEARNING_RATE),
        new ScalerOptions().enabled(arm.scaled()).growthInterval(50))) {
      final RandomSource batches = new RandomSource(seed, 2);
      final float[] pixels = new float[Arms.BATCH * Dataset.PIXELS];
      final int[] labels = new int[Arms.BATCH];
      for (int step = 0; step < Arms.STEPS; step++) {
        split[0].batch(batches, Arms.BATCH, pixels, labels);
        final float[] wanted = new float[Arms.BATCH * Dataset.CLASSES];
        for (int i = 0; i < labels.length; i++) {
          wanted[i * Dataset.CLASSES + labels[i]] = 1;
        }
        network.fit(images(pixels).castTo(type),
            Nd4j.create(wanted, new long[] {Arms.BATCH, Dataset.CLASSES}, 'c').castTo(type));
      }
      final float[] scores =
          network.output(images(split[1].pixels).castTo(type)).castTo(DataType.FLOAT).dup('c').data().asFloat();
      return new Arms.Result(split[1].accuracy(scores), scaling.optimizer().stepsSkipped(),
          scaling.scaler().getScale());
    }
  }

  private static INDArray images(float[] pixels) {
    return Nd4j.create(pixels, new long[] {pixels.length / Dataset.PIXELS, Dataset.PIXELS}, 'c');
  }

  public static void main(String[] args) throws Exception {
    final Dataset all = Dataset.read(Path.of(args[0]));
    try (Context context = Context.cpu(1)) {
      // Three seeds: DL4J's own products of HALF arrays are slow on a CPU, and one seed varies by a point from run to run.
      Arms.compare("DL4J", 3, (arm, seed) -> train(context, all.split(Dataset.TRAIN_IMAGES, seed), arm, seed));
    }
    System.exit(0);
  }
}
