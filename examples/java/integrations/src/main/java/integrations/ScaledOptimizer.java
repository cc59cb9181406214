// SPDX-License-Identifier: Apache-2.0
package integrations;

import ai.djl.ndarray.NDArray;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Ops;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * gradscaler as an optimizer of a DJL Trainer on one device. Trainer.step() calls update() for every parameter; with the
 * last one all are stepped on at once, in place, or none if a gradient is inf or NaN. Parameters of 16 bits get master
 * weights in fp32. Multiply the loss by {@link #scale} before the backward pass. Close it when training is over.
 *
 * <p>With a network in fp16 the loss is still computed in fp32: cast by type promotion, {@code scores.mul(ones)} with
 * ones in fp32, since toType() leaves the graph of autograd in this engine.
 */
public final class ScaledOptimizer extends ai.djl.training.optimizer.Optimizer implements AutoCloseable {
  private final Context context;
  private final OptimizerOptions options;
  private final GradScaler scaler;
  private final int parameterCount;
  private final Map<String, NDArray> weights = new LinkedHashMap<>();
  /** The gradients as the list has them. */
  private Tensor[] gradients;
  private TensorList grads;
  private io.github.gradscaler.Optimizer optimizer;
  private int seen;

  private ScaledOptimizer(Builder builder) {
    super(builder);
    context = builder.context;
    options = builder.options;
    parameterCount = builder.parameterCount;
    scaler = new GradScaler(context, builder.policy);
  }

  /** What DJL asks of an optimizer, and the number of the model's parameters that have a gradient. */
  public static Builder builder(Context context, OptimizerOptions options, ScalerOptions policy, int parameterCount) {
    return new Builder(context, options, policy, parameterCount);
  }

  /** What the loss is to be multiplied by. */
  public float scale() {
    return scaler.getScale();
  }

  public GradScaler scaler() {
    return scaler;
  }

  /** Steps that were left out because a gradient was inf or NaN. */
  public long skipped() {
    return optimizer == null ? 0 : optimizer.stepsSkipped();
  }

  /** DJL hands out a copy of the gradient and closes it after the call: what is used is the weight's own. */
  @Override
  public void update(String parameterId, NDArray weight, NDArray copyOfGradient) {
    final NDArray known = weights.putIfAbsent(parameterId, weight);
    if (known != null && known != weight || weights.size() > parameterCount) {
      throw new IllegalStateException(parameterId + " is on a second device, or a parameter more than the "
          + parameterCount + " that the optimizer was built for");
    }
    if (++seen < parameterCount) {
      return;
    }
    seen = 0;
    if (weights.size() < parameterCount) {
      throw new IllegalStateException("Trainer.step() has updated " + weights.size() + " parameters, the optimizer was"
          + " built for " + parameterCount);
    }
    lookUpGradients();
    scaler.step(optimizer);
    scaler.update();
    // DJL's own way, gradient -= gradient, leaves NaN where there was inf.
    optimizer.zeroGrads();
  }

  private void lookUpGradients() {
    final Tensor[] now = new Tensor[parameterCount];
    final NDArray[] arrays = weights.values().toArray(new NDArray[0]);
    for (int i = 0; i < now.length; i++) {
      // Each call returns a new handle to the gradient's memory, which belongs to the weight. Before the first backward
      // pass there is no gradient, and each call makes an array of zeros, which is freed when it is closed.
      try (NDArray gradient = arrays[i].getGradient(); NDArray again = arrays[i].getGradient()) {
        now[i] = DjlArrays.tensor(gradient);
        if (now[i].address() != DjlArrays.tensor(again).address()) {
          throw new IllegalStateException("parameter " + i + " has no gradient yet: there was no backward pass");
        }
      }
    }
    if (optimizer == null) {
      make(now, arrays);
    } else if (!sameAddresses(now)) {
      grads.setTensors(now);
    }
    gradients = now;
  }

  private boolean sameAddresses(Tensor[] now) {
    return Arrays.equals(Arrays.stream(now).mapToLong(Tensor::address).toArray(),
        Arrays.stream(gradients).mapToLong(Tensor::address).toArray());
  }

  private void make(Tensor[] now, NDArray[] arrays) {
    final Tensor[] model = Arrays.stream(arrays).map(DjlArrays::tensor).toArray(Tensor[]::new);
    final boolean half = Arrays.stream(model).anyMatch(tensor -> tensor.dtype().size() == 2);
    Tensor[] master = model;
    if (half) {
      master = Arrays.stream(model).map(tensor -> Tensor.allocate(DType.FP32, (int) tensor.count()))
          .toArray(Tensor[]::new);
      Ops.cast(context, model, master);
    }
    grads = new TensorList(context, now);
    try (TensorList params = new TensorList(context, master);
        TensorList copy = half ? new TensorList(context, model) : null) {
      optimizer = new io.github.gradscaler.Optimizer(context, options, params, grads, copy);
    }
  }

  @Override
  public void close() {
    if (optimizer != null) {
      optimizer.close();
      grads.close();
    }
    scaler.close();
  }

  /** Makes the optimizer. Learning rate, weight decay and clipping are those of gradscaler, not of DJL's builder. */
  public static final class Builder extends OptimizerBuilder<Builder> {
    private final Context context;
    private final OptimizerOptions options;
    private final ScalerOptions policy;
    private final int parameterCount;

    Builder(Context context, OptimizerOptions options, ScalerOptions policy, int parameterCount) {
      this.context = context;
      this.options = options;
      this.policy = policy;
      this.parameterCount = parameterCount;
    }

    @Override
    protected Builder self() {
      return this;
    }

    public ScaledOptimizer build() {
      return new ScaledOptimizer(this);
    }
  }
}
