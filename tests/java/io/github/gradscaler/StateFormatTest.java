// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
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
      optimizer = new Optimizer(context,
          OptimizerOptions.adamW().lr(0.02).weightDecay(0).stateFormat(state).masterFormat(master).seed(3), params, grads);
    }

    FloatBuffer values() {
      final Tensor values = Tensor.allocate(DType.FP32, COUNT);
      Ops.cast(context, weights, values);
      return values.floats();
    }

    void steps(int count) {
      for (int step = 0; step < count; step++) {
        final FloatBuffer now = values();
        IntStream.range(0, COUNT).forEach(i -> gradients.floats().put(i, now.get(i) - target(i)));
        optimizer.step();
      }
    }

    ByteBuffer saved() {
      final ByteBuffer saved = World.direct((int) optimizer.saveSize());
      optimizer.save(saved);
      return saved;
    }

    /** A slot as fp32, by {@link Ops#convertState}. */
    float[] decoded(int slot) {
      final Tensor state = optimizer.stateTensor(slot, 0);
      final Tensor full = Tensor.allocate(DType.FP32, COUNT);
      Ops.convertState(context, array(state), slot == 2 ? array(weights) : null, array(full));
      return floats(full);
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

  private static Tensor[] array(Tensor tensor) {
    return new Tensor[] {tensor};
  }

  private static float[] floats(Tensor tensor) {
    final float[] values = new float[COUNT];
    tensor.floats().get(values);
    return values;
  }

  @TestFactory
  Stream<DynamicTest> trainSaveLoadConvert() {
    final List<DynamicTest> tests = new ArrayList<>();
    for (StateFormat state : StateFormat.values()) {
      for (MasterFormat master : MasterFormat.values()) {
        tests.add(DynamicTest.dynamicTest(state + " " + master, () -> trainSaveLoadConvert(state, master)));
      }
    }
    return tests.stream();
  }

  private static void trainSaveLoadConvert(StateFormat state, MasterFormat master) {
    try (Training from = new Training(state, master);
        Training full = new Training(StateFormat.FULL, master);
        Training same = new Training(state, master)) {
      from.steps(200);
      final FloatBuffer reached = from.values();
      for (int i = 0; i < COUNT; i++) {
        // bf16 near 0.8 has steps of 2^-8; without masters smaller updates are lost.
        assertEquals(target(i), reached.get(i), master == MasterFormat.NONE ? 0.05 : 0.02, "element " + i);
      }
      assertEquals(state == StateFormat.FULL ? 4 : state == StateFormat.BITS16 ? 2 : 1,
          from.optimizer.stateTensor(1, 0).dtype().size());
      // Loaded into fp32 state, every moment has the value that convertState gives it.
      full.optimizer.load(from.saved());
      assertEquals(200, full.optimizer.stepsApplied());
      for (int slot = 0; slot < 2; slot++) {
        final float[] values = full.decoded(slot);
        assertArrayEquals(from.decoded(slot), values);
        assertTrue(IntStream.range(0, COUNT).anyMatch(i -> values[i] != 0));
      }
      // And back: the codes of values that are codes are these codes, so that training goes on with the same bits.
      same.weights.bytes().put(from.weights.bytes());
      same.optimizer.load(from.saved());
      assertEquals(from.saved(), same.saved());
      final Tensor slot = from.optimizer.stateTensor(0, 0);
      final Tensor codes = Tensor.allocate(slot.dtype(), COUNT)
          .withScales(slot.scales() == null ? null : Tensor.allocate(DType.FP8_E8M0, (int) slot.scales().count()));
      final Tensor values = full.optimizer.stateTensor(0, 0);
      Ops.convertState(from.context, array(values), null, array(codes));
      final Tensor again = Tensor.allocate(DType.FP32, COUNT);
      Ops.convertState(from.context, array(codes), null, array(again));
      assertArrayEquals(full.decoded(0), floats(again));
      from.steps(3);
      same.steps(3);
      assertEquals(from.weights.bytes(), same.weights.bytes());
      assertEquals(from.saved(), same.saved());
    }
  }

  @Test
  void mastersAreSplitAndJoined() {
    try (Training training = new Training(StateFormat.BITS8, MasterFormat.SPLIT16)) {
      training.steps(20);
      assertEquals("remainder", training.optimizer.stateName(2));
      final float[] masters = training.decoded(2);
      final FloatBuffer weights = training.values();
      assertTrue(IntStream.range(0, COUNT).anyMatch(i -> masters[i] != weights.get(i)));
      final Tensor joined = Tensor.allocate(DType.FP32, COUNT);
      joined.floats().put(masters);
      final Tensor rounded = Tensor.allocate(DType.BF16, COUNT);
      Ops.cast(training.context, joined, rounded);
      assertEquals(training.weights.bytes(), rounded.bytes());
      final Tensor remainders = Tensor.allocate(DType.INT16, COUNT);
      Ops.convertState(training.context, array(joined), array(training.weights), array(remainders));
      final Tensor again = Tensor.allocate(DType.FP32, COUNT);
      Ops.convertState(training.context, array(remainders), array(training.weights), array(again));
      assertArrayEquals(masters, floats(again));
      final InvalidArgumentException e = assertThrows(InvalidArgumentException.class,
          () -> Ops.convertState(training.context, array(joined), null, array(remainders)));
      assertTrue(e.getMessage().startsWith("Ops.convertState: weights"), e.getMessage());
    }
  }

  /** The second half of a tensor draws the bits of the whole where its offset says that it is the second half. */
  @Test
  void shardsHaveTheBitsOfTheWhole() {
    final OptimizerOptions options = OptimizerOptions.adamW().lr(0.01).stateFormat(StateFormat.BITS8)
        .masterFormat(MasterFormat.STOCHASTIC).seed(5);
    final ByteBuffer[] results = new ByteBuffer[3];
    for (int run = 0; run < 3; run++) {
      try (Context context = Context.cpu(1)) {
        final int first = run == 0 ? 0 : 64;
        final Tensor weights = Tensor.allocate(DType.BF16, 128 - first);
        final Tensor gradients = Tensor.allocate(DType.FP32, 128 - first);
        for (int i = first; i < 128; i++) {
          gradients.floats().put(i - first, (i % 7 - 3) / 5f);
        }
        try (TensorList params = new TensorList(context, weights);
            TensorList grads = new TensorList(context, gradients);
            Optimizer optimizer = new Optimizer(context, options, params, grads)) {
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
    }
    assertEquals(results[0], results[1]);
    assertNotEquals(results[0], results[2]);
  }

  /** Lists of codes that the caller makes: one tensor in 8 bits, one in fp32. */
  @Test
  void formatsByTensor() {
    try (World w = new World(4)) {
      final Tensor codes = Tensor.allocate(DType.FP8_E4M3, 40).withScales(Tensor.allocate(DType.FP8_E8M0, 2));
      final Tensor moments = Tensor.allocate(DType.FP32, 40);
      final Tensor gradients = Tensor.allocate(DType.FP32, 40);
      gradients.floats().put(39, 1f);
      try (TensorList params = new TensorList(w.context, Tensor.allocate(DType.FP32, 40), Tensor.allocate(DType.FP32, 40));
          TensorList grads = new TensorList(w.context, gradients, Tensor.allocate(DType.FP32, 40));
          TensorList state = new TensorList(w.context, codes, moments);
          Optimizer optimizer = new Optimizer(w.context, OptimizerOptions.lion(), params, grads, null, state)) {
        optimizer.step();
        assertEquals(0, codes.bytes().get(0));
        assertNotEquals(0, codes.bytes().get(39));
        assertNotEquals(0, codes.scales().bytes().get(1));
        assertEquals(codes.scales().address(), state.get(0).scales().address());
        assertEquals(8, codes.slice(32, 8).count());
        assertEquals(codes.scales().address() + 1, codes.slice(32, 8).scales().address());
      }
      final Tensor other = Tensor.allocate(DType.FP8_E4M3, 40).withScales(Tensor.allocate(DType.FP8_E8M0, 2));
      try (TensorList state = new TensorList(w.context, codes)) {
        assertThrows(InvalidArgumentException.class, () -> state.setTensors(other));
        state.setTensors(Tensor.allocate(DType.FP8_E4M3, 40).withScales(codes.scales()));
      }
      assertThrows(InvalidArgumentException.class, () -> codes.slice(16, 8));
      assertThrows(InvalidArgumentException.class, () -> codes.withScales(codes));
      assertThrows(InvalidArgumentException.class, () -> codes.withScales(Tensor.allocate(DType.FP8_E8M0, 3)));
    }
  }

  /** The memory of scales is kept and refused as that of the codes is. */
  @Test
  void scalesLiveAndDieAsCodesDo() throws InterruptedException {
    try (Training training = new Training(StateFormat.BITS8, MasterFormat.NONE)) {
      final Tensor scales = training.optimizer.stateTensor(0, 0).scales();
      final TensorList list =
          new TensorList(training.context, Tensor.allocate(DType.FP8_E4M3, COUNT).withScales(scales));
      assertEquals(scales.address(), list.get(0).scales().address());
      training.optimizer.close();
      assertThrows(BadStateException.class, () -> list.get(0));
      final List<WeakReference<Object>> buffers = new ArrayList<>();
      final TensorList[] owns = {listOfCodes(training.context, buffers)};
      System.gc();
      assertNotNull(buffers.get(0).get());
      owns[0].close();
      owns[0] = null;
      for (int i = 0; i < 200 && buffers.get(0).get() != null; i++) {
        System.gc();
        Thread.sleep(10);
      }
      assertNull(buffers.get(0).get());
    }
  }

  private static TensorList listOfCodes(Context context, List<WeakReference<Object>> buffers) {
    final ByteBuffer scales = World.direct(4);
    buffers.add(new WeakReference<>(scales));
    return new TensorList(context,
        Tensor.allocate(DType.FP8_E4M3, COUNT).withScales(Tensor.of(scales, DType.FP8_E8M0)));
  }
}
