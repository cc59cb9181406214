// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.FloatBuffer;
import java.nio.ShortBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The code of docs/java.md, which page_snippets.py finds here word for word. */
class PageTest {
  private final FloatBuffer masterWeights = World.direct(8).asFloatBuffer();
  private final ShortBuffer gradients = World.direct(4).asShortBuffer();

  /** The loss is the sum of the weights, so that every gradient is the scale. */
  private void backward(Batch batch, float scale) {
    final Tensor full = Tensor.allocate(DType.FP32, 2);
    full.floats().put(0, scale).put(1, batch.overflows ? Float.POSITIVE_INFINITY : scale);
    try (Context context = Context.cpu(1)) {
      Ops.cast(context, full, Tensor.of(gradients, DType.FP16));
    }
  }

  private static final class Batch {
    private final boolean overflows;

    Batch(boolean overflows) {
      this.overflows = overflows;
    }
  }

  @Test
  void firstExample() {
    // 65536 is the first scale and inf in fp16, so that the first two batches overflow.
    final List<Batch> batches = List.of(new Batch(false), new Batch(true), new Batch(false));
    try (Context context = Context.cpu();
        TensorList params = new TensorList(context, Tensor.of(masterWeights)); // a direct FloatBuffer
        TensorList grads = new TensorList(context, Tensor.of(gradients, DType.FP16)); // a direct ShortBuffer
        Optimizer optimizer = new Optimizer(context, OptimizerOptions.adamW().lr(2e-3), params, grads);
        GradScaler scaler = new GradScaler(context)) {
      for (Batch batch : batches) {
        backward(batch, scaler.getScale()); // yours: fills the gradients
        scaler.clipGradNorm(grads, 1.0);
        scaler.step(optimizer); // skipped if a gradient is inf or NaN
        scaler.update();
      }
    }
    assertEquals(-2e-3, masterWeights.get(0), 1e-6);
  }
}
