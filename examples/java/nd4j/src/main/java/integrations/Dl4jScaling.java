// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.Context;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import io.github.gradscaler.TensorList;
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
 * the scale, and an updater that steps on the network's flattened parameters and gradients in place. The network may be
 * of HALF or BFLOAT16; master weights in FLOAT are kept here. Close it when training is over.
 */
public final class Dl4jScaling implements AutoCloseable {
  private final MultiLayerNetwork network;
  private final Optimizer optimizer;
  private final GradScaler scaler;

  /** Replaces the network's updater. Its loss function must come from {@link ScaledLoss}, if the policy is enabled. */
  public Dl4jScaling(Context context, MultiLayerNetwork network, ScaledLoss loss, OptimizerOptions options,
      ScalerOptions policy) {
    this.network = network;
    final INDArray params = network.params();
    final INDArray gradients = network.getFlattenedGradients();
    if (gradients == null) {
      throw new IllegalArgumentException("network has no gradients yet: call init() and initGradientsView()");
    }
    final INDArray master = params.dataType() == DataType.FLOAT ? params : params.castTo(DataType.FLOAT);
    try (TensorList weights = new TensorList(context, Nd4jArrays.tensor(master));
        TensorList grads = new TensorList(context, Nd4jArrays.tensor(gradients));
        TensorList copy = master == params ? null : new TensorList(context, Nd4jArrays.tensor(params))) {
      optimizer = new Optimizer(context, options, weights, grads, copy);
    }
    scaler = new GradScaler(context, policy);
    loss.scaler = scaler;
    network.setUpdater(new InPlace(this, master));
  }

  public GradScaler scaler() {
    return scaler;
  }

  public Optimizer optimizer() {
    return optimizer;
  }

  @Override
  public void close() {
    optimizer.close();
    scaler.close();
  }

  /** DL4J subtracts from the parameters what an updater leaves in the gradients: nothing, the step is already done. */
  private static final class InPlace implements Updater {
    private static final long serialVersionUID = 1;
    private final transient Dl4jScaling owner;
    /** The tensors refer to its memory. */
    private final transient INDArray master;

    InPlace(Dl4jScaling owner, INDArray master) {
      this.owner = owner;
      this.master = master;
    }

    @Override
    public void update(Trainable layer, Gradient gradient, int iteration, int epoch, int batchSize,
        LayerWorkspaceMgr workspace) {
      final INDArray gradients = owner.network.getFlattenedGradients();
      if (gradient.gradient().data().pointer().address() != gradients.data().pointer().address()) {
        throw new IllegalStateException("the network does not use its flattened gradients");
      }
      owner.scaler.stepAndUpdate(owner.optimizer);
      gradients.assign(0);
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

  /** A loss whose gradient is multiplied by the scale of a scaler, which Dl4jScaling sets. */
  public static final class ScaledLoss implements ILossFunction {
    private static final long serialVersionUID = 1;
    private final ILossFunction loss;
    private final double factor;
    private transient GradScaler scaler;

    /** factor: of the loss itself; usually 1. */
    public ScaledLoss(ILossFunction loss, double factor) {
      this.loss = loss;
      this.factor = factor;
    }

    private INDArray scaled(INDArray gradient) {
      return gradient.muli(factor * (scaler == null ? 1 : scaler.getScale()));
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
