// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.util.function.Supplier;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Objects that are never closed: the collector sees none of their memory, and is asked to run all the same. */
class ForgottenObjectsTest {
  private static final long BOUND = 3 * Runtime.getRuntime().maxMemory();

  private static DynamicTest doNotPileUp(String name, int count, Supplier<Object> make) {
    return DynamicTest.dynamicTest(name, () -> {
      final long before = World.residentKilobytes();
      long most = before;
      for (int i = 0; i < count; i++) {
        make.get();
        if (i % (count / 80) == 0) {
          most = Math.max(most, World.residentKilobytes());
        }
      }
      final long grown = most - before;
      assertTrue(grown < BOUND >> 10, () -> "grew by " + (grown >> 10) + " MiB, more than " + (BOUND >> 20));
    });
  }

  /** Each kind has 2 GiB or more in all, or the threads of thousands of contexts. The heap is 160 MiB. */
  @TestFactory
  Stream<DynamicTest> doNotPileUp() {
    final Context context = Context.cpu(1);
    final TensorList params = new TensorList(context, Tensor.allocate(DType.FP32, 1 << 20));
    final TensorList grads = new TensorList(context, Tensor.allocate(DType.FP32, 1 << 20));
    final ScalerOptions longHistory = new ScalerOptions().historyCapacity(4096);
    final Tensor whole = Tensor.allocate(DType.FP32, 1 << 16);
    final Tensor[] parts = IntStream.range(0, 10_000).mapToObj(i -> whole.slice(i, 1)).toArray(Tensor[]::new);
    return Stream.of(
        doNotPileUp("optimizers", 400, () -> {
          final Optimizer optimizer = new Optimizer(context, OptimizerOptions.adam(), params, grads);
          optimizer.step();
          return optimizer;
        }),
        doNotPileUp("scalers", 16_000, () -> new GradScaler(context, longHistory)),
        doNotPileUp("lists", 3_000, () -> new TensorList(context, parts)),
        doNotPileUp("contexts", 8_000, () -> {
          final Context threads = Context.cpu(4);
          Ops.cast(threads, whole, whole);
          return threads;
        }));
  }

  @Test
  void closingGivesTheMemoryBackAtOnce() throws InterruptedException {
    World.collectAll();
    assertEquals(0, NativeMemory.held());
    try (World w = new World(1 << 16)) {
      final long before = NativeMemory.held();
      final Optimizer optimizer = new Optimizer(w.context, OptimizerOptions.adam(), w.params, w.grads);
      final long state = NativeMemory.held() - before;
      assertTrue(state >= 2 * 4 << 16, () -> "counted " + state);
      optimizer.close();
      assertEquals(before, NativeMemory.held());
    }
    assertEquals(0, NativeMemory.held());
  }
}
