// SPDX-License-Identifier: Apache-2.0
package integrations;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.deeplearning4j.nn.api.Layer;
import org.deeplearning4j.nn.api.OptimizationAlgorithm;
import org.deeplearning4j.nn.api.TrainingConfig;
import org.deeplearning4j.nn.conf.GradientNormalization;
import org.deeplearning4j.nn.conf.NeuralNetConfiguration;
import org.deeplearning4j.nn.conf.layers.BaseOutputLayer;
import org.deeplearning4j.nn.conf.layers.OutputLayer;
import org.deeplearning4j.nn.conf.layers.RnnOutputLayer;
import org.deeplearning4j.nn.multilayer.MultiLayerNetwork;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.indexing.NDArrayIndex;
import org.nd4j.linalg.learning.config.IUpdater;
import org.nd4j.linalg.learning.config.NoOp;

/** Where a parameter lies in the flattened parameters and gradients of a network. */
final class Dl4jParameters {
  private final String name;
  private final long first;
  private final long length;

  private Dl4jParameters(String name, long first, long length) {
    this.name = name;
    this.first = first;
    this.length = length;
  }

  /** Such as "layer0_W". */
  String name() {
    return name;
  }

  INDArray of(INDArray flattened) {
    return flattened.reshape(flattened.length()).get(NDArrayIndex.interval(first, first + length));
  }

  /**
   * The parameters whose gradient comes from the loss; without the running statistics, whose "gradient" is the update.
   * Refuses a network for which one step over all of them is not what its configuration says.
   */
  static List<Dl4jParameters> trained(MultiLayerNetwork network, Dl4jScaling.ScaledLoss loss) {
    requireOutput(network.getOutputLayer().conf().getLayer(), loss);
    final List<Dl4jParameters> trained = new ArrayList<>();
    IUpdater updater = null;
    long offset = 0;
    for (Layer layer : network.getLayers()) {
      requirePlain(layer);
      final TrainingConfig config = layer.getConfig();
      for (Map.Entry<String, INDArray> param : layer.paramTable(false).entrySet()) {
        final String name = config.getLayerName() + "_" + param.getKey();
        final IUpdater its = config.getUpdaterByParam(param.getKey());
        final boolean isGradient = layer.updaterDivideByMinibatch(param.getKey());
        if (isGradient == its instanceof NoOp) {
          throw refused(name + (isGradient ? " has the updater NoOp, as in a frozen layer"
              : " has an updater, but its gradient is none of the loss"));
        }
        if (config.isPretrainParam(param.getKey())) {
          throw refused(name + " is a parameter of pretraining");
        }
        final List<?> regularization = config.getRegularizationByParam(param.getKey());
        if (regularization != null && !regularization.isEmpty()) {
          throw refused(name + " has " + regularization.get(0).getClass().getSimpleName()
              + " regularization: use the optimizer's weightDecay, or no regularization");
        }
        if (isGradient) {
          if (updater != null && !updater.equals(its)) {
            throw refused(name + " has another updater than the parameters before it: the optimizer has one for all");
          }
          updater = its;
          trained.add(new Dl4jParameters(name, offset, param.getValue().length()));
        }
        offset += param.getValue().length();
      }
    }
    if (offset != network.params().length()) {
      throw refused("the layers have " + offset + " parameters, the network has " + network.params().length());
    }
    return trained;
  }

  /** The gradient of a loss function passes through others' output layers unscaled, or in part. */
  private static void requireOutput(org.deeplearning4j.nn.conf.layers.Layer output, Dl4jScaling.ScaledLoss loss) {
    if (output.getClass() != OutputLayer.class && output.getClass() != RnnOutputLayer.class) {
      throw refused("its last layer is a " + output.getClass().getSimpleName() + ", not OutputLayer or RnnOutputLayer");
    }
    if (((BaseOutputLayer) output).getLossFn() != loss) {
      throw refused("loss is not the loss function of its output layer");
    }
  }

  private static void requirePlain(Layer layer) {
    final NeuralNetConfiguration conf = layer.conf();
    final String name = layer.getConfig().getLayerName();
    final GradientNormalization normalization = layer.getConfig().getGradientNormalization();
    if (normalization != null && normalization != GradientNormalization.None) {
      throw refused(name + " has gradient normalization " + normalization + ", which would see scaled gradients");
    }
    if (conf.getLayer().getConstraints() != null && !conf.getLayer().getConstraints().isEmpty()) {
      throw refused(name + " has constraints, which master weights would not see");
    }
    if (conf.getOptimizationAlgo() != OptimizationAlgorithm.STOCHASTIC_GRADIENT_DESCENT || conf.getStepFunction() != null
        || !conf.isMinimize() || !conf.isMiniBatch()) {
      throw refused(name + " has an optimization algorithm, a step function, minimize or miniBatch other than DL4J's"
          + " defaults");
    }
  }

  private static IllegalArgumentException refused(String what) {
    return new IllegalArgumentException("network: " + what);
  }
}
