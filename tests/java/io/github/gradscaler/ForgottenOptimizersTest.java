// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Optimizers that nobody closes: the collector sees none of their memory, and is asked to run all the same. */
class ForgottenOptimizersTest {
  /** 400 times 8 MiB of Adam's state are 3.1 GiB; the heap of this test is 160 MiB. */
  @Test
  void doNotPileUp() {
    try (Context context = Context.cpu(1)) {
      final Tensor weights = Tensor.allocate(DType.FP32, 1 << 20);
      final Tensor gradients = Tensor.allocate(DType.FP32, 1 << 20);
      long most = 0;
      try (TensorList params = new TensorList(context, weights); TensorList grads = new TensorList(context, gradients)) {
        for (int i = 0; i < 400; i++) {
          new Optimizer(context, OptimizerOptions.adam(), params, grads).step();
          most = Math.max(most, NativeMemory.held());
        }
      }
      final long bound = 3 * Runtime.getRuntime().maxMemory();
      final long held = most;
      assertTrue(held < bound, () -> "held " + (held >> 20) + " MiB, more than " + (bound >> 20));
      assertTrue(held >= 8 << 20, "nothing is counted");
    }
  }

  @Test
  void closingGivesTheMemoryBackAtOnce() {
    try (World w = new World(1 << 16)) {
      final long before = NativeMemory.held();
      final Optimizer optimizer = new Optimizer(w.context, OptimizerOptions.adam(), w.params, w.grads);
      final long state = NativeMemory.held() - before;
      assertTrue(state >= 2 * 4 << 16, () -> "counted " + state);
      optimizer.close();
      assertEquals(before, NativeMemory.held());
    }
  }
}
