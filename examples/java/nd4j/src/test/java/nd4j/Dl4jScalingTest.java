// SPDX-License-Identifier: Apache-2.0
package nd4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import integrations.Dl4jScaling;
import io.github.gradscaler.Context;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import java.util.function.Consumer;
import java.util.function.Function;
import org.deeplearning4j.nn.conf.GradientNormalization;
import org.deeplearning4j.nn.conf.MultiLayerConfiguration;
import org.deeplearning4j.nn.conf.NeuralNetConfiguration;
import org.deeplearning4j.nn.conf.constraint.MaxNormConstraint;
import org.deeplearning4j.nn.conf.layers.BatchNormalization;
import org.deeplearning4j.nn.conf.layers.CenterLossOutputLayer;
import org.deeplearning4j.nn.conf.layers.DenseLayer;
import org.deeplearning4j.nn.conf.layers.LSTM;
import org.deeplearning4j.nn.conf.layers.OutputLayer;
import org.deeplearning4j.nn.conf.layers.RnnOutputLayer;
import org.deeplearning4j.nn.conf.layers.misc.FrozenLayer;
import org.deeplearning4j.nn.gradient.DefaultGradient;
import org.deeplearning4j.nn.multilayer.MultiLayerNetwork;
import org.deeplearning4j.nn.workspace.LayerWorkspaceMgr;
import org.junit.jupiter.api.Test;
import org.nd4j.linalg.activations.Activation;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;
import org.nd4j.linalg.learning.config.Adam;
import org.nd4j.linalg.learning.config.IUpdater;
import org.nd4j.linalg.learning.config.Sgd;
import org.nd4j.linalg.lossfunctions.ILossFunction;
import org.nd4j.linalg.lossfunctions.impl.LossMCXENT;
import org.nd4j.linalg.lossfunctions.impl.LossMSE;

/** A network trained by Dl4jScaling is the one that DL4J's own fit() trains; what would become another is refused. */
class Dl4jScalingTest {
  private static final int BATCH = 7;
  private static final int STEPS = 30;

  private static NeuralNetConfiguration.Builder builder(IUpdater updater) {
    return new NeuralNetConfiguration.Builder().seed(3).dataType(DataType.FLOAT).activation(Activation.TANH)
        .updater(updater);
  }

  private static MultiLayerNetwork network(MultiLayerConfiguration configuration) {
    final MultiLayerNetwork network = new MultiLayerNetwork(configuration);
    network.init();
    network.initGradientsView();
    return network;
  }

  /** Batch normalization has parameters whose "gradient" is an update, and is not divided by the batch size. */
  private static MultiLayerConfiguration withBatchNorm(NeuralNetConfiguration.Builder builder, ILossFunction loss) {
    return builder.list()
        .layer(new DenseLayer.Builder().nIn(3).nOut(8).build())
        .layer(new BatchNormalization.Builder().nIn(8).nOut(8).decay(0.5).build())
        .layer(new DenseLayer.Builder().nIn(8).nOut(6).build())
        .layer(new OutputLayer.Builder(loss).activation(Activation.IDENTITY).nIn(6).nOut(2).build()).build();
  }

  /** The loss has a row for every step of every example; DL4J divides by the examples. */
  private static MultiLayerConfiguration recurrent(NeuralNetConfiguration.Builder builder, ILossFunction loss) {
    return builder.list()
        .layer(new LSTM.Builder().nIn(3).nOut(5).build())
        .layer(new RnnOutputLayer.Builder(loss).activation(Activation.SOFTMAX).nIn(5).nOut(2).build()).build();
  }

  private interface Shape {
    MultiLayerConfiguration configuration(NeuralNetConfiguration.Builder builder, ILossFunction loss);
  }

  private static INDArray[] data(boolean steps) {
    Nd4j.getRandom().setSeed(5);
    final long[] in = steps ? new long[] {BATCH, 3, 4} : new long[] {BATCH, 3};
    final long[] out = steps ? new long[] {BATCH, 2, 4} : new long[] {BATCH, 2};
    final INDArray labels = Nd4j.rand(DataType.FLOAT, out);
    return new INDArray[] {Nd4j.rand(DataType.FLOAT, in).muli(4).subi(1), labels.divi(labels.sum(true, 1))};
  }

  private static INDArray theirs(Shape shape, IUpdater updater, ILossFunction loss, INDArray[] data) {
    final MultiLayerNetwork network = network(shape.configuration(builder(updater), loss));
    for (int i = 0; i < STEPS; i++) {
      network.fit(data[0], data[1]);
    }
    return network.params();
  }

  private static INDArray ours(Shape shape, OptimizerOptions options, ILossFunction loss, INDArray[] data,
      ScalerOptions policy) {
    final Dl4jScaling.ScaledLoss scaled = new Dl4jScaling.ScaledLoss(loss, 1);
    final MultiLayerNetwork network = network(shape.configuration(builder(new Sgd(1)), scaled));
    try (Context context = Context.cpu(1);
        Dl4jScaling scaling = new Dl4jScaling(context, network, scaled, options, policy)) {
      for (int i = 0; i < STEPS; i++) {
        network.fit(data[0], data[1]);
      }
      assertEquals(STEPS, scaling.optimizer().stepsApplied());
    }
    return network.params();
  }

  /** Every parameter of the network after some steps, at three scales: a power of two changes no bit. */
  private static void sameNetwork(Shape shape, boolean steps, IUpdater updater, OptimizerOptions options,
      ILossFunction loss) {
    final INDArray[] data = data(steps);
    final INDArray before = network(shape.configuration(builder(updater), loss)).params();
    final INDArray theirs = theirs(shape, updater, loss, data);
    final INDArray plain = ours(shape, options, loss, data, new ScalerOptions().enabled(false));
    assertTrue(theirs.sub(before).norm2Number().doubleValue() > 0.1, "it has not learned");
    // Sums of floats in another order, over 30 steps: a wrong factor would be off by the steps themselves.
    assertEquals(0, theirs.sub(plain).normmaxNumber().doubleValue(), 2e-5);
    assertEquals(plain, ours(shape, options, loss, data, new ScalerOptions().initScale(1)));
    final INDArray scaled = ours(shape, options, loss, data, new ScalerOptions().initScale(65536));
    assertEquals(0, plain.sub(scaled).normmaxNumber().doubleValue());
  }

  @Test
  void sgdIsDl4jsOwn() {
    sameNetwork(Dl4jScalingTest::withBatchNorm, false, new Sgd(0.05), OptimizerOptions.sgd().lr(0.05), new LossMSE());
  }

  /** Adam of DL4J adds epsilon to a root that is not corrected for the first steps: it is made too small to matter. */
  @Test
  void adamIsDl4jsOwn() {
    sameNetwork(Dl4jScalingTest::withBatchNorm, false, new Adam(1e-2, 0.9, 0.999, 1e-15),
        OptimizerOptions.adam().lr(1e-2).eps(1e-15), new LossMSE());
  }

  @Test
  void recurrentNetworksAreDl4jsOwn() {
    sameNetwork(Dl4jScalingTest::recurrent, true, new Sgd(0.1), OptimizerOptions.sgd().lr(0.1), new LossMCXENT());
  }

  /** An overflow leaves the parameters alone; running statistics come from the forward pass and go on. */
  @Test
  void anOverflowIsSkipped() {
    final Dl4jScaling.ScaledLoss loss = new Dl4jScaling.ScaledLoss(new LossMSE(), Double.POSITIVE_INFINITY);
    final MultiLayerNetwork network = network(withBatchNorm(builder(new Sgd(1)), loss));
    final INDArray weights = network.getParam("0_W").dup();
    final INDArray mean = network.getParam("1_mean").dup();
    final INDArray[] data = data(false);
    try (Context context = Context.cpu(1);
        Dl4jScaling scaling = new Dl4jScaling(context, network, loss, OptimizerOptions.sgd(), new ScalerOptions())) {
      network.fit(data[0], data[1]);
      assertEquals(1, scaling.optimizer().stepsSkipped());
      assertEquals(32768f, scaling.scaler().getScale());
    }
    assertEquals(weights, network.getParam("0_W"));
    assertTrue(network.getParam("1_mean").sub(mean).normmaxNumber().doubleValue() > 1e-3);
  }

  private static void refused(String part, Function<ILossFunction, MultiLayerConfiguration> configuration) {
    final Dl4jScaling.ScaledLoss loss = new Dl4jScaling.ScaledLoss(new LossMSE(), 1);
    refused(part, network(configuration.apply(loss)), loss);
  }

  private static void refused(String part, MultiLayerNetwork network, Dl4jScaling.ScaledLoss loss) {
    try (Context context = Context.cpu(1)) {
      final IllegalArgumentException e = assertThrows(IllegalArgumentException.class,
          () -> new Dl4jScaling(context, network, loss, OptimizerOptions.sgd(), new ScalerOptions()));
      assertTrue(e.getMessage().contains(part), e.getMessage());
    }
  }

  private static void refusedOption(String part, Consumer<NeuralNetConfiguration.Builder> option) {
    final NeuralNetConfiguration.Builder builder = builder(new Sgd(0.1));
    option.accept(builder);
    refused(part, loss -> withBatchNorm(builder, loss));
  }

  @Test
  void whatComesBetweenGradientAndStepIsRefused() {
    refusedOption("layer0_W has L2Regularization", b -> b.l2(0.5));
    refusedOption("layer0_W has L1Regularization", b -> b.l1(0.5));
    refusedOption("layer0_W has WeightDecay", b -> b.weightDecay(0.5));
    refusedOption("layer0_b has L2Regularization", b -> b.l2Bias(0.5));
    refusedOption("layer0 has gradient normalization ClipL2PerLayer",
        b -> b.gradientNormalization(GradientNormalization.ClipL2PerLayer).gradientNormalizationThreshold(1));
    refusedOption("layer0 has constraints", b -> b.constrainWeights(new MaxNormConstraint(1, 1)));
    refusedOption("layer0_b has another updater", b -> b.biasUpdater(new Sgd(0.2)));
    refusedOption("miniBatch", b -> b.miniBatch(false));
    refusedOption("minimize", b -> b.minimize(false));
  }

  @Test
  void layersWithRulesOfTheirOwnAreRefused() {
    refused("layer0_W has the updater NoOp, as in a frozen layer", loss -> builder(new Sgd(0.1)).list()
        .layer(new FrozenLayer(new DenseLayer.Builder().nIn(3).nOut(8).build()))
        .layer(new OutputLayer.Builder(loss).activation(Activation.IDENTITY).nIn(8).nOut(2).build()).build());
    refused("CenterLossOutputLayer, not OutputLayer", loss -> builder(new Sgd(0.1)).list()
        .layer(new CenterLossOutputLayer.Builder(loss).activation(Activation.IDENTITY).nIn(3).nOut(2).build()).build());
  }

  @Test
  void anotherLossIsRefused() {
    final Dl4jScaling.ScaledLoss loss = new Dl4jScaling.ScaledLoss(new LossMSE(), 1);
    final MultiLayerNetwork network = network(withBatchNorm(builder(new Sgd(0.1)), loss));
    refused("loss is not the loss function", network, new Dl4jScaling.ScaledLoss(new LossMSE(), 1));
    refused("loss is not the loss function", network(withBatchNorm(builder(new Sgd(0.1)), new LossMSE())), loss);
    try (Context context = Context.cpu(1);
        Dl4jScaling scaling = new Dl4jScaling(context, network, loss, OptimizerOptions.sgd(), new ScalerOptions())) {
      assertEquals(65536f, scaling.scaler().getScale());
      refused("loss is that of another Dl4jScaling", network(withBatchNorm(builder(new Sgd(0.1)), loss)), loss);
    }
  }

  /** Such as gradients that another network computed, which DL4J's own updaters take. */
  @Test
  void foreignGradientsAreRefused() {
    final Dl4jScaling.ScaledLoss loss = new Dl4jScaling.ScaledLoss(new LossMSE(), 1);
    final MultiLayerNetwork network = network(withBatchNorm(builder(new Sgd(0.1)), loss));
    try (Context context = Context.cpu(1);
        Dl4jScaling scaling = new Dl4jScaling(context, network, loss, OptimizerOptions.sgd(), new ScalerOptions())) {
      final INDArray own = network.getFlattenedGradients();
      updateRefused("not the arrays that the network had", network, own.dup());
      updateRefused("not those of the scaled loss", network, own);
      assertEquals(0, scaling.optimizer().stepsApplied());
    }
  }

  private static void updateRefused(String part, MultiLayerNetwork network, INDArray gradients) {
    final IllegalStateException e = assertThrows(IllegalStateException.class, () -> network.getUpdater()
        .update(network, new DefaultGradient(gradients), 0, 0, BATCH, LayerWorkspaceMgr.noWorkspaces()));
    assertTrue(e.getMessage().contains(part), e.getMessage());
  }
}
