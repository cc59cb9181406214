// SPDX-License-Identifier: Apache-2.0
package consumer;

import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;

/** One step of SGD on a weight, and one that is skipped. */
public final class Step {
  private Step() {}

  public static void main(String[] args) {
    final Tensor weight = Tensor.allocate(DType.FP32, 1);
    final Tensor gradient = Tensor.allocate(DType.FP32, 1);
    try (Context context = Context.cpu();
        TensorList params = new TensorList(context, weight);
        TensorList grads = new TensorList(context, gradient);
        Optimizer optimizer = new Optimizer(context, OptimizerOptions.sgd().lr(0.5), params, grads);
        GradScaler scaler = new GradScaler(context)) {
      gradient.floats().put(0, 3 * scaler.getScale());
      scaler.step(optimizer);
      scaler.update();
      gradient.floats().put(0, Float.POSITIVE_INFINITY);
      scaler.step(optimizer);
      scaler.update();
      System.out.println((Step.class.getModule().isNamed() ? "module path" : "class path") + ": weight "
          + weight.floats().get(0) + ", scale " + scaler.getScale());
    }
  }
}
