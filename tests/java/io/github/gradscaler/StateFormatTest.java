// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Small optimizer state: trained with, saved, loaded into another format, converted by hand, and as shards. */
class StateFormatTest {
  private static final int COUNT = 100; // three groups of 32, and a part of one

  /** Weights in bf16 that AdamW takes to their targets. */
  private static final class Training implements AutoCloseable {
    final Context context = Context.cpu(1);
    final Tensor weights = Tensor.allocate(DType.BF16, COUNT);
    final Tensor gradients = Tensor.allocate(DType.FP32, COUNT);
    final TensorList params = new TensorList(context, weights);
    final TensorList grads = new TensorList(context, gradients);
    final Optimizer optimizer;

    Training(StateFormat state, MasterFormat master) {
      optimizer = new Optimizer(context, OptimizerOptions.adamW().lr(0.02).weightDecay(0).stateFormat(state)
          .masterFormat(master).seed(3), params, grads);
    }

    void steps(int count) {
      for (int step = 0; step < count; step++) {
        Ops.cast(context, weights, gradients);
        for (int i = 0; i < COUNT; i++) {
          gradients.floats().put(i, gradients.floats().get(i) - target(i));
        }
        optimizer.step();
      }
    }

    ByteBuffer saved() {
      final ByteBuffer saved = World.direct((int) optimizer.saveSize());
      optimizer.save(saved);
      return saved;
    }

    /** As fp32: a slot, or remainders with the weights. */
    float[] decoded(Tensor state) {
      return floats(converted(state, Tensor.allocate(DType.FP32, COUNT)));
    }

    Tensor converted(Tensor from, Tensor to) {
      Ops.convertState(context, new Tensor[] {from}, new Tensor[] {weights}, new Tensor[] {to});
      return to;
    }

    @Override
    public void close() {
      optimizer.close();
      grads.close();
      params.close();
      context.close();
    }
  }

  private static float target(int i) {
    return (i - 50) / 64f;
  }

  private static float[] floats(Tensor tensor) {
    final float[] values = new float[COUNT];
    tensor.floats().get(values);
    return values;
  }

  private static Tensor codes() {
    return Tensor.allocate(DType.FP8_E4M3, COUNT).withScales(Tensor.allocate(DType.FP8_E8M0, 4));
  }

  @TestFactory
  Stream<DynamicTest> trainSaveLoadConvert() {
    return Arrays.stream(StateFormat.values()).flatMap(state -> Arrays.stream(MasterFormat.values()).map(
        master -> DynamicTest.dynamicTest(state + " " + master, () -> trainSaveLoadConvert(state, master))));
  }

  private static void trainSaveLoadConvert(StateFormat state, MasterFormat master) {
    try (Training from = new Training(state, master);
        Training full = new Training(StateFormat.FULL, master);
        Training same = new Training(state, master)) {
      from.steps(200);
      final Tensor reached = Tensor.allocate(DType.FP32, COUNT);
      Ops.cast(from.context, from.weights, reached);
      for (int i = 0; i < COUNT; i++) {
        // bf16 near 0.8 has steps of 2^-8; without masters smaller updates are lost.
        assertEquals(target(i), reached.floats().get(i), master == MasterFormat.NONE ? 0.05 : 0.02, "element " + i);
      }
      assertEquals(state == StateFormat.FULL ? 4 : state == StateFormat.BITS16 ? 2 : 1,
          from.optimizer.stateTensor(1, 0).dtype().size());
      // Loaded into fp32 state, every moment has the value that convertState gives it.
      full.weights.bytes().put(from.weights.bytes());
      full.optimizer.load(from.saved());
      assertEquals(200, full.optimizer.stepsApplied());
      for (int slot = 0; slot < from.optimizer.stateCount(); slot++) {
        final Tensor codes = from.optimizer.stateTensor(slot, 0);
        final float[] values = from.decoded(codes);
        assertArrayEquals(values, full.decoded(full.optimizer.stateTensor(slot, 0)));
        assertNotEquals(0f, values[0]);
        // And back.
        final Tensor made = Tensor.allocate(codes.dtype(), COUNT).withScales(
            codes.scales() == null ? null : Tensor.allocate(DType.FP8_E8M0, (int) codes.scales().count()));
        final Tensor source = Tensor.allocate(DType.FP32, COUNT);
        source.floats().put(values);
        assertArrayEquals(values, from.decoded(from.converted(source, made)));
      }
      // Training goes on with the same bits.
      same.weights.bytes().put(from.weights.bytes());
      same.optimizer.load(from.saved());
      from.steps(3);
      same.steps(3);
      assertEquals(from.weights.bytes(), same.weights.bytes());
      assertEquals(from.saved(), same.saved());
    }
  }

  /** The second half of a tensor draws the bits of the whole where its offset says that it is the second half. */
  @Test
  void shardsHaveTheBitsOfTheWhole() {
    final ByteBuffer[] results = new ByteBuffer[3];
    for (int run = 0; run < 3; run++) {
      final int first = run == 0 ? 0 : 64;
      final Tensor weights = Tensor.allocate(DType.BF16, 128 - first);
      final Tensor gradients = Tensor.allocate(DType.FP32, 128 - first);
      for (int i = first; i < 128; i++) {
        gradients.floats().put(i - first, (i % 7 - 3) / 5f);
      }
      try (Context context = Context.cpu(1);
          TensorList params = new TensorList(context, weights);
          TensorList grads = new TensorList(context, gradients);
          Optimizer optimizer = new Optimizer(context, OptimizerOptions.adamW().stateFormat(StateFormat.BITS8)
              .masterFormat(MasterFormat.STOCHASTIC).seed(5), params, grads)) {
        if (run == 1) {
          optimizer.setOffsets(64);
        }
        for (int step = 0; step < 20; step++) {
          optimizer.step();
        }
        assertThrows(InvalidArgumentException.class, () -> optimizer.setOffsets(33));
        assertThrows(InvalidArgumentException.class, () -> optimizer.setOffsets(0, 32));
      }
      results[run] = weights.slice(64 - first, 64).bytes();
    }
    assertEquals(results[0], results[1]);
    assertNotEquals(results[0], results[2]);
  }

  /** Codes that the caller makes, and their scales, whose memory is kept and refused as that of the codes is. */
  @Test
  void scales() throws InterruptedException {
    final Tensor codes = codes();
    assertEquals(codes.scales().address() + 1, codes.slice(32, 8).scales().address());
    assertThrows(InvalidArgumentException.class, () -> codes.slice(16, 8));
    assertThrows(InvalidArgumentException.class, () -> codes.withScales(codes));
    assertThrows(InvalidArgumentException.class, () -> codes.withScales(Tensor.allocate(DType.FP8_E8M0, 3)));
    try (Training training = new Training(StateFormat.BITS8, MasterFormat.NONE)) {
      try (TensorList state = new TensorList(training.context, codes);
          Optimizer lion = new Optimizer(training.context, OptimizerOptions.lion(), training.params, training.grads, null,
              state)) {
        training.gradients.floats().put(99, 1f);
        lion.step();
        assertEquals(0, codes.bytes().get(0));
        assertNotEquals(0, codes.bytes().get(99));
        assertNotEquals(0, codes.scales().bytes().get(3));
        final Tensor flash = Tensor.allocate(DType.INT8_SOFTSIGN, COUNT).withScales(Tensor.allocate(DType.FP16, 4));
        assertEquals(1f, training.decoded(training.converted(training.gradients, flash))[99], 0.01f);
        assertThrows(InvalidArgumentException.class, () -> flash.withScales(codes.scales()));
        assertThrows(InvalidArgumentException.class, () -> state.setTensors(codes()));
        state.setTensors(codes().withScales(codes.scales()));
      }
      final Tensor scales = training.optimizer.stateTensor(0, 0).scales();
      final TensorList list = new TensorList(training.context, codes.withScales(scales));
      assertEquals(scales.address(), list.get(0).scales().address());
      training.optimizer.close();
      assertThrows(BadStateException.class, () -> list.get(0));
      final TensorList[] lists = new TensorList[1];
      final WeakReference<Object> buffer = forgottenScales(training.context, lists);
      System.gc();
      assertNotNull(buffer.get());
      lists[0].close();
      lists[0] = null;
      for (int i = 0; i < 200 && buffer.get() != null; i++) {
        System.gc();
        Thread.sleep(10);
      }
      assertNull(buffer.get());
    }
  }

  private static WeakReference<Object> forgottenScales(Context context, TensorList[] list) {
    final ByteBuffer scales = World.direct(4);
    list[0] = new TensorList(context, codes().withScales(Tensor.of(scales, DType.FP8_E8M0)));
    return new WeakReference<>(scales);
  }
}
