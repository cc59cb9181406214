// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Small optimizer state: saved, loaded into another format, converted by hand, and with scales of the caller. */
class StateFormatTest {
  private static final int COUNT = 100; // three groups of 32, and a part of one

  /** AdamW on weights in bf16 with gradients from -0.5 to 0.5. */
  private static final class Training implements AutoCloseable {
    final Context context = Context.cpu(1);
    final Tensor weights = Tensor.allocate(DType.BF16, COUNT);
    final Tensor gradients = Tensor.allocate(DType.FP32, COUNT);
    final TensorList params = new TensorList(context, weights);
    final TensorList grads = new TensorList(context, gradients);
    final Optimizer optimizer;

    Training(StateFormat state, MasterFormat master) {
      optimizer = new Optimizer(context, OptimizerOptions.adamW().stateFormat(state).masterFormat(master), params, grads);
      for (int i = 0; i < COUNT; i++) {
        gradients.floats().put(i, (i - 50) / 100f);
      }
    }

    /** As fp32: a slot, or remainders with the weights. */
    float[] decoded(Tensor state) {
      final float[] values = new float[COUNT];
      converted(state, Tensor.allocate(DType.FP32, COUNT)).floats().get(values);
      return values;
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

  private static Tensor codes() {
    return Tensor.allocate(DType.FP8_E4M3, COUNT).withScales(Tensor.allocate(DType.FP8_E8M0, 4));
  }

  /** Loaded into fp32 state, every moment and every master has the value that convertState gives it. */
  @ParameterizedTest
  @EnumSource
  void savedLoadedAndConverted(StateFormat format) {
    try (Training from = new Training(format, MasterFormat.SPLIT16);
        Training full = new Training(StateFormat.FULL, MasterFormat.SPLIT16)) {
      for (int step = 0; step < 3; step++) {
        from.optimizer.step();
      }
      assertEquals(format == StateFormat.FULL ? 4 : format == StateFormat.BITS16 ? 2 : 1,
          from.optimizer.stateTensor(1, 0).dtype().size());
      final ByteBuffer saved = World.direct((int) from.optimizer.saveSize());
      from.optimizer.save(saved);
      full.weights.bytes().put(from.weights.bytes());
      full.optimizer.load(saved);
      saved.limit(saved.limit() - 1);
      World.invalid(() -> full.optimizer.load(saved));
      assertEquals(3, full.optimizer.stepsApplied());
      assertEquals(3, from.optimizer.stateCount());
      assertEquals("exp_avg", from.optimizer.stateName(0));
      assertEquals(COUNT, from.optimizer.stateTensor(0, 0).count());
      for (int slot = 0; slot < 3; slot++) {
        final float[] values = from.decoded(from.optimizer.stateTensor(slot, 0));
        assertArrayEquals(values, full.decoded(full.optimizer.stateTensor(slot, 0)));
        assertNotEquals(0f, values[0]);
      }
    }
  }

  /**
   * Codes of 8 bits for squares have other scales; means that move slowly are bf16 without any. With AMSGrad squares
   * have 16 bits.
   */
  @Test
  void scalesOfState() {
    for (StateFormat format : new StateFormat[] {StateFormat.BITS16, StateFormat.BITS8}) {
      try (Training training = new Training(format, MasterFormat.NONE);
          Optimizer slow = new Optimizer(training.context,
              OptimizerOptions.adamW().stateFormat(StateFormat.BITS8).beta1(0.999), training.params, training.grads);
          Optimizer maximum = new Optimizer(training.context,
              OptimizerOptions.adamW().stateFormat(StateFormat.BITS8).amsgrad(true), training.params, training.grads)) {
        for (int slot = 1; slot <= 2; ++slot) {
          assertEquals(DType.UFP16_E6M10, maximum.stateTensor(slot, 0).dtype());
          assertEquals(DType.FP8_E8M0, maximum.stateTensor(slot, 0).scales().dtype());
        }
        training.optimizer.step();
        slow.step();
        final boolean small = format == StateFormat.BITS8;
        final Tensor mean = training.optimizer.stateTensor(0, 0);
        final Tensor squares = training.optimizer.stateTensor(1, 0);
        assertEquals(small ? DType.FP8_E4M3 : DType.BF16, mean.dtype());
        assertEquals(small ? DType.FP8_E8M0 : null, small ? mean.scales().dtype() : mean.scales());
        assertEquals(small ? DType.UINT8_LOG : DType.UFP16_E6M10, squares.dtype());
        final DType scaleDType = small ? DType.INT16 : DType.FP8_E8M0;
        assertEquals(scaleDType, squares.scales().dtype());
        assertEquals(4, squares.scales().count());
        assertEquals(squares.scales().address() + (small ? 2 : 1), squares.slice(32, 8).scales().address());
        assertEquals(DType.BF16, slow.stateTensor(0, 0).dtype());
        assertNull(slow.stateTensor(0, 0).scales());
        assertEquals(DType.UINT8_LOG, slow.stateTensor(1, 0).dtype());
        // Into codes of the caller and back.
        final float[] values = training.decoded(squares);
        final Tensor codes = Tensor.allocate(squares.dtype(), COUNT).withScales(Tensor.allocate(scaleDType, 4));
        training.converted(squares, codes);
        assertArrayEquals(values, training.decoded(codes));
        assertEquals(0.5f * 0.5f * 0.001f, values[0], 1e-5f);
        World.invalid(() -> codes.withScales(Tensor.allocate(small ? DType.FP8_E8M0 : DType.INT16, 4)));
        World.invalid(() -> training.weights.withScales(codes.scales()));
      }
    }
  }

  /** Codes that the caller makes, and their scales, whose memory is kept and refused as that of the codes is. */
  @Test
  void scales() throws InterruptedException {
    final Tensor codes = codes();
    assertEquals(codes.scales().address() + 1, codes.slice(32, 8).scales().address());
    World.invalid(() -> codes.slice(16, 8));
    World.invalid(() -> codes.withScales(codes));
    World.invalid(() -> codes.withScales(Tensor.allocate(DType.FP8_E8M0, 3)));
    try (Training training = new Training(StateFormat.BITS8, MasterFormat.NONE)) {
      try (TensorList state = new TensorList(training.context, codes);
          Optimizer lion = new Optimizer(training.context, OptimizerOptions.lion(), training.params, training.grads, null,
              state)) {
        lion.step();
        assertEquals(0, codes.bytes().get(50));
        assertNotEquals(0, codes.bytes().get(99));
        assertNotEquals(0, codes.scales().bytes().get(3));
        final Tensor flash = Tensor.allocate(DType.INT8_SOFTSIGN, COUNT).withScales(Tensor.allocate(DType.FP16, 4));
        assertEquals(0.49f, training.decoded(training.converted(training.gradients, flash))[99], 0.01f);
        World.invalid(() -> flash.withScales(codes.scales()));
        World.invalid(() -> state.setTensors(codes()));
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
      assertTrue(World.isCollected(buffer));
    }
  }

  private static WeakReference<Object> forgottenScales(Context context, TensorList[] list) {
    final ByteBuffer scales = World.direct(4);
    list[0] = new TensorList(context, codes().withScales(Tensor.of(scales, DType.FP8_E8M0)));
    return new WeakReference<>(scales);
  }
}
