// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.Context;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.util.ArrayList;
import java.util.List;
import org.deeplearning4j.nn.api.Trainable;
import org.deeplearning4j.nn.api.Updater;
import org.deeplearning4j.nn.gradient.Gradient;
import org.deeplearning4j.nn.multilayer.MultiLayerNetwork;
import org.deeplearning4j.nn.workspace.LayerWorkspaceMgr;
import org.nd4j.common.primitives.Pair;
import org.nd4j.linalg.activations.IActivation;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.lossfunctions.ILossFunction;

/**
 * gradscaler for a DL4J network that is trained by fit() as any other: a loss function whose gradient is multiplied by
 * the scale and divided by the batch size, and an updater that steps on the network's flattened parameters and gradients
 * in place. The network may be of HALF or BFLOAT16; master weights in FLOAT are kept here. The optimizer's options
 * replace the updater of the configuration; what else it asks for between the gradient and the step, such as
 * regularization, is refused. Running statistics of batch normalization are DL4J's own, and are updated in a skipped
 * step too. Close it when training is over.
 */
public final class Dl4jScaling implements AutoCloseable {
  private final MultiLayerNetwork network;
  private final ScaledLoss loss;
  private final Optimizer optimizer;
  private final GradScaler scaler;

  /**
   * Replaces the network's updater.
   *
   * @param loss the loss function of the network's output layer, of no other network
   */
  public Dl4jScaling(Context context, MultiLayerNetwork network, ScaledLoss loss, OptimizerOptions options,
      ScalerOptions policy) {
    this.network = network;
    this.loss = loss;
    final INDArray gradients = network.getFlattenedGradients();
    if (gradients == null) {
      throw new IllegalArgumentException("network has no gradients yet: call init() and initGradientsView()");
    }
    if (loss.scaler != null) {
      throw new IllegalArgumentException("loss is that of another Dl4jScaling, which is not closed");
    }
    final List<Dl4jParameters> trained = Dl4jParameters.trained(network, loss);
    final List<INDArray> views = new ArrayList<>();
    final List<Tensor> weights = new ArrayList<>();
    final List<Tensor> grads = new ArrayList<>();
    final List<Tensor> copy = new ArrayList<>();
    for (Dl4jParameters one : trained) {
      final INDArray params = one.of(network.params());
      views.add(one.of(gradients));
      grads.add(Nd4jArrays.tensor(one.of(gradients)).named(one.name()));
      if (params.dataType() == DataType.FLOAT) {
        weights.add(Nd4jArrays.tensor(params).named(one.name()));
      } else {
        weights.add(Nd4jArrays.tensor(params.castTo(DataType.FLOAT)).named(one.name()));
        copy.add(Nd4jArrays.tensor(params).named(one.name()));
      }
    }
    try (TensorList weightList = new TensorList(context, weights);
        TensorList gradList = new TensorList(context, grads);
        TensorList copyList = copy.isEmpty() ? null : new TensorList(context, copy)) {
      optimizer = new Optimizer(context, options, weightList, gradList, copyList);
    }
    scaler = new GradScaler(context, policy);
    loss.scaler = scaler;
    network.setUpdater(new InPlace(this, views));
  }

  public GradScaler scaler() {
    return scaler;
  }

  public Optimizer optimizer() {
    return optimizer;
  }

  @Override
  public void close() {
    loss.scaler = null;
    optimizer.close();
    scaler.close();
  }

  /**
   * DL4J subtracts from the parameters what an updater leaves in the gradients: nothing where the step is already done,
   * and where a layer has written an update of its own, that.
   */
  private static final class InPlace implements Updater {
    private static final long serialVersionUID = 1;
    private final transient Dl4jScaling owner;
    /** The gradients that are stepped on. */
    private final transient List<INDArray> gradients;
    private final long paramsAddress;
    private final long gradientsAddress;

    InPlace(Dl4jScaling owner, List<INDArray> gradients) {
      this.owner = owner;
      this.gradients = gradients;
      paramsAddress = address(owner.network.params());
      gradientsAddress = address(owner.network.getFlattenedGradients());
    }

    private static long address(INDArray array) {
      return Nd4jArrays.tensor(array).address();
    }

    @Override
    public void update(Trainable layer, Gradient gradient, int iteration, int epoch, int batchSize,
        LayerWorkspaceMgr workspace) {
      if (address(owner.network.params()) != paramsAddress || address(gradient.gradient()) != gradientsAddress) {
        throw new IllegalStateException("the network's parameters or the gradients are not the arrays that the network had"
            + " when Dl4jScaling was made: make it anew");
      }
      final long rows = owner.loss.rows;
      owner.loss.rows = 0;
      if (rows == 0) {
        throw new IllegalStateException("the gradients are not those of the scaled loss");
      }
      // The loss has divided by its rows: examples, or in a recurrent network examples times steps.
      if (rows != batchSize) {
        for (INDArray one : gradients) {
          one.muli((double) rows / batchSize);
        }
      }
      owner.scaler.stepAndUpdate(owner.optimizer);
      for (INDArray one : gradients) {
        one.assign(0);
      }
    }

    @Override
    public void setStateViewArray(Trainable layer, INDArray view, boolean initialize) {
      throw new UnsupportedOperationException("the state is the optimizer's: Optimizer.load");
    }

    /** DL4J saves this; ours is saved by {@link Optimizer#save}. */
    @Override
    public INDArray getStateViewArray() {
      return null;
    }
  }

  /** A loss whose gradient is multiplied by the scale of a scaler, which Dl4jScaling sets, and is that of the mean. */
  public static final class ScaledLoss implements ILossFunction {
    private static final long serialVersionUID = 1;
    private final ILossFunction loss;
    private final double factor;
    private transient GradScaler scaler;
    /** What the last gradient was divided by. */
    private transient long rows;

    /** factor: of the loss itself; usually 1. */
    public ScaledLoss(ILossFunction loss, double factor) {
      this.loss = loss;
      this.factor = factor;
    }

    /** DL4J's own updater divides by the batch size, when the gradients of 16 bits may be inf already. */
    private INDArray scaled(INDArray gradient) {
      if (scaler == null) {
        return gradient.muli(factor);
      }
      rows = gradient.size(0);
      final double multiplier = factor * scaler.getScale() / rows;
      // A scale of 65536 is inf in HALF.
      return gradient.dataType().width() > 2 ? gradient.muli(multiplier)
          : gradient.assign(gradient.castTo(DataType.FLOAT).muli(multiplier));
    }

    @Override
    public INDArray computeGradient(INDArray labels, INDArray output, IActivation activation, INDArray mask) {
      return scaled(loss.computeGradient(labels, output, activation, mask));
    }

    @Override
    public Pair<Double, INDArray> computeGradientAndScore(INDArray labels, INDArray output, IActivation activation,
        INDArray mask, boolean average) {
      final Pair<Double, INDArray> both = loss.computeGradientAndScore(labels, output, activation, mask, average);
      return Pair.of(factor * both.getFirst(), scaled(both.getSecond()));
    }

    @Override
    public double computeScore(INDArray labels, INDArray output, IActivation activation, INDArray mask,
        boolean average) {
      return factor * loss.computeScore(labels, output, activation, mask, average);
    }

    @Override
    public INDArray computeScoreArray(INDArray labels, INDArray output, IActivation activation, INDArray mask) {
      return loss.computeScoreArray(labels, output, activation, mask).muli(factor);
    }

    @Override
    public String name() {
      return "scaled " + loss.name();
    }
  }
}
