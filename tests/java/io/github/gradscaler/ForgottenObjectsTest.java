// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.function.Supplier;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Objects that are never closed: the collector sees none of their memory, and is asked to run all the same. */
class ForgottenObjectsTest {
  private static final long BOUND = 3 * Runtime.getRuntime().maxMemory();

  /** What other tests forgot is destroyed first: it counts too. */
  @BeforeEach
  void destroyWhatIsForgotten() throws InterruptedException {
    for (int i = 0; i < 600 && NativeMemory.held() > 0; i++) {
      System.gc();
      Thread.sleep(50);
    }
    assertEquals(0, NativeMemory.held());
  }

  /** 400 times 8 MiB of Adam's state are 3.1 GiB; the heap of this test is 160 MiB. */
  @Test
  void optimizersDoNotPileUp() {
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
      final long held = most;
      assertTrue(held < BOUND, () -> "held " + (held >> 20) + " MiB, more than " + (BOUND >> 20));
      assertTrue(held >= 8 << 20, "nothing is counted");
    }
  }

  /** Their histories are 128 KiB each, 2 GiB together. */
  @Test
  void scalersDoNotPileUp() throws IOException {
    try (Context context = Context.cpu(1)) {
      final ScalerOptions options = new ScalerOptions().historyCapacity(4096);
      doNotPileUp(16_000, () -> new GradScaler(context, options));
    }
  }

  @Test
  void listsDoNotPileUp() throws IOException {
    try (Context context = Context.cpu(1)) {
      final Tensor tensor = Tensor.allocate(DType.FP32, 10_000);
      final Tensor[] tensors = new Tensor[10_000];
      for (int i = 0; i < tensors.length; i++) {
        tensors[i] = tensor.slice(i, 1);
      }
      doNotPileUp(3_000, () -> new TensorList(context, tensors));
    }
  }

  /** Each has started its threads. */
  @Test
  void contextsDoNotPileUp() throws IOException {
    final Tensor tensor = Tensor.allocate(DType.FP32, 1 << 16);
    doNotPileUp(8_000, () -> {
      final Context context = Context.cpu(4);
      Ops.cast(context, tensor, tensor);
      return context;
    });
  }

  private static void doNotPileUp(int count, Supplier<Object> make) throws IOException {
    final long before = World.residentKilobytes();
    long most = before;
    for (int i = 0; i < count; i++) {
      make.get();
      if (i % 100 == 0) {
        most = Math.max(most, World.residentKilobytes());
      }
    }
    final long grown = most - before;
    assertTrue(grown < BOUND >> 10, () -> "grew by " + (grown >> 10) + " MiB, more than " + (BOUND >> 20));
  }

  @Test
  void closingGivesTheMemoryBackAtOnce() {
    final long none = NativeMemory.held();
    try (World w = new World(1 << 16)) {
      final long before = NativeMemory.held();
      final Optimizer optimizer = new Optimizer(w.context, OptimizerOptions.adam(), w.params, w.grads);
      final long state = NativeMemory.held() - before;
      assertTrue(state >= 2 * 4 << 16, () -> "counted " + state);
      optimizer.close();
      assertEquals(before, NativeMemory.held());
    }
    assertEquals(none, NativeMemory.held());
  }
}
