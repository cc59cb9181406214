// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.function.Executable;

/**
 * Wrong arguments that only Java has, such as null and unfit buffers, are refused with the right exception, whose message
 * says what is wrong. tests/capi/bad_input* have what the library refuses.
 */
class BadInputTest {
  private final List<DynamicTest> table = new ArrayList<>();

  private void refused(String part, Executable call) {
    table.add(DynamicTest.dynamicTest(part, () -> {
      final InvalidArgumentException e = assertThrows(InvalidArgumentException.class, call);
      assertSame(Status.INVALID_ARGUMENT, e.status());
      assertTrue(e.getMessage().contains(part), () -> e.getMessage() + " does not say: " + part);
    }));
  }

  @TestFactory
  Stream<DynamicTest> buffers() {
    refused("buffer is null", () -> Tensor.of((FloatBuffer) null));
    refused("buffer is null", () -> Tensor.of((ByteBuffer) null, DType.FP32));
    refused("dtype is null", () -> Tensor.of(World.direct(4), null));
    refused("not a direct buffer", () -> Tensor.of(FloatBuffer.allocate(4)));
    refused("owner is null", () -> Tensor.at(4096, 1, DType.FP32, null));
    refused("not lie in the ByteBuffer", () -> Tensor.at(4096, 1, DType.FP32, World.direct(4)).bytes());
    refused("not a direct buffer", () -> Tensor.of(ByteBuffer.allocate(4).order(ByteOrder.nativeOrder()), DType.FP32));
    refused("byte order", () -> Tensor.of(ByteBuffer.allocateDirect(8).order(foreign()), DType.FP32));
    refused("byte order", () -> Tensor.of(ByteBuffer.allocateDirect(8).order(foreign()).asFloatBuffer()));
    final ByteBuffer readOnly = World.direct(4).asReadOnlyBuffer().order(ByteOrder.nativeOrder());
    refused("read-only", () -> Tensor.of(readOnly, DType.FP32));
    // Filled, and not rewound.
    refused("its position, 2, and its limit, 2: call rewind()",
        () -> Tensor.of(World.direct(8).asFloatBuffer().put(1f).put(2f)));
    refused("its position, 0, and its limit, 0", () -> Tensor.of(World.direct(8).limit(0), DType.FP16));
    refused("no multiple of the 4", () -> Tensor.of(World.direct(7), DType.FP32));
    refused("no shorts", () -> Tensor.of(World.direct(8).asShortBuffer(), DType.FP32));
    refused("outside of the 4", () -> Tensor.allocate(DType.FP16, 4).slice(3, 2));
    refused("outside of the 4", () -> Tensor.allocate(DType.FP16, 4).slice(1, Long.MAX_VALUE));
    refused("count is -1", () -> Tensor.allocate(DType.FP16, -1));
    refused("of FP16, not of FP32", () -> Tensor.allocate(DType.FP16, 1).floats());
    return table.stream();
  }

  private static ByteOrder foreign() {
    return ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN ? ByteOrder.LITTLE_ENDIAN : ByteOrder.BIG_ENDIAN;
  }

  @TestFactory
  Stream<DynamicTest> lists() {
    final World w = new World(4);
    final Tensor t = Tensor.allocate(DType.FP32, 4);
    refused("tensors is null", () -> new TensorList(w.context, (Tensor[]) null));
    refused("tensors[1] is null", () -> new TensorList(w.context, t, null));
    refused("zero character", () -> new TensorList(w.context, t.named("a\0b")));
    refused("index", () -> w.grads.diagnose().get(1));
    refused("index", () -> w.grads.get(1));
    refused("index", () -> w.grads.get(-1));
    refused("count", () -> w.grads.setTensors());
    refused("count", () -> w.grads.setTensors(t, t));
    refused("tensors[0] has count 3", () -> w.grads.setTensors(t.slice(0, 3)));
    refused("tensors[0] has count 4 and dtype FP64", () -> w.grads.setTensors(Tensor.allocate(DType.FP64, 4)));
    return table.stream();
  }

  @TestFactory
  Stream<DynamicTest> scalers() {
    final World w = new World(4);
    refused("context is null", () -> new GradScaler(null));
    refused("options is null", () -> new GradScaler(w.context, null));
    refused("grads is null", () -> w.scaler.check(null));
    refused("optimizer is null", () -> w.scaler.step(null));
    refused("state is null", () -> w.scaler.setState(null));
    refused("floorAction is null", () -> new ScalerOptions().floorAction(null));
    refused("preset is null", () -> new ScalerOptions((Preset) null));
    refused("grads is null", () -> w.scaler.report(null));
    refused("norm is null", () -> w.scaler.clipGradNorm(w.grads, 1, null));
    return table.stream();
  }

  @TestFactory
  Stream<DynamicTest> optimizersAndOps() {
    final World w = new World(4);
    final Tensor t = Tensor.allocate(DType.FP32, 3);
    final TensorList shorter = new TensorList(w.context, t);
    final DeviceScalar real = DeviceScalar.of(World.direct(4).asFloatBuffer());
    final DeviceScalar whole = DeviceScalar.of(World.direct(4).asIntBuffer());
    refused("params", () -> new Optimizer(w.context, OptimizerOptions.adamW(), null, w.grads));
    refused("5 lists", () -> new Optimizer(w.context, OptimizerOptions.sgd(), w.params, w.grads, null, shorter,
        shorter, shorter, shorter, shorter));
    refused("state[0] is null", () -> new Optimizer(w.context, OptimizerOptions.sgd(), w.params, w.grads, null,
        (TensorList) null));
    refused("slot", () -> w.optimizer.stateTensor(9, 0));
    refused("different numbers", () -> Ops.cast(w.context, new Tensor[] {t}, new Tensor[0]));
    refused("lr is a device scalar of kind INT", () -> w.optimizer.setDeviceLr(0, whole));
    refused("not a direct buffer", () -> w.optimizer.save(ByteBuffer.allocate(64)));
    refused("read-only", () -> w.optimizer.save(World.direct(64).asReadOnlyBuffer()));
    refused("growthTracker is a device scalar of kind FLOAT", () -> Ops.updateScale(w.context, real, real, real, 2, 0.5, 1));
    refused("each has room for 1 elements, needs 2", () -> Ops.norm(w.context, new Tensor[] {t, t}, Norm.L2,
        DeviceScalar.of(World.direct(8).asDoubleBuffer()), DeviceScalar.of(World.direct(8).asDoubleBuffer())));
    return table.stream();
  }

  @Test
  void floorErrorCarriesTheReport() {
    final ScalerOptions options = new ScalerOptions().initScale(4).minScale(4).floorAction(FloorAction.ERROR);
    try (World w = new World(2, options)) {
      w.fill(Float.NaN);
      w.scaler.stepAndUpdate(w.optimizer);
      final ScaleFloorException e = assertThrows(ScaleFloorException.class, () -> w.scaler.report());
      assertSame(Status.SCALE_FLOOR, e.status());
      assertTrue(e.report().atFloor());
      assertEquals(4f, e.report().scale());
    }
  }

  @Test
  void spikesErrorCarriesTheReport() {
    final ScalerOptions options =
        new ScalerOptions(Preset.CHECK).skipNorm(10).spikePatience(2).spikeAction(SpikeAction.ERROR);
    try (World w = new World(1, options)) {
      w.fill(20);
      w.scaler.stepAndUpdate(w.optimizer);
      assertTrue(w.scaler.report().spike());
      assertFalse(w.scaler.report().spikesPersist());
      w.scaler.stepAndUpdate(w.optimizer);
      final SpikesException e = assertThrows(SpikesException.class, () -> w.scaler.report());
      assertSame(Status.SPIKES, e.status());
      assertTrue(e.getMessage().startsWith("GradScaler.report: the gradient norm 20 is above its limit"), e.getMessage());
      assertTrue(e.report().spikesPersist());
      assertEquals(2, e.report().consecutiveSkips());
      assertEquals(20.0, assertThrows(ReportException.class, () -> w.scaler.report(w.grads)).report().gradNorm());
      final ReportBuffer buffer = new ReportBuffer();
      w.scaler.readReportAsync(w.grads, buffer, 0);
      assertTrue(buffer.get().spikesPersist());
      w.fill(1);
      w.scaler.stepAndUpdate(w.optimizer);
      assertFalse(w.scaler.report().spike());
    }
  }

  /** A count that fits no int reaches the library as it is, and so does an address. */
  @Test
  void longsAreNotCut() {
    final long count = (1L << 33) + 5;
    final long address = 1L << 40;
    try (Context context = Context.cpu(1);
        TensorList list = new TensorList(context, Tensor.at(address, count, DType.FP32))) {
      assertEquals(count, list.get(0).count());
      assertEquals(address, list.get(0).address());
    }
  }

  @Test
  void emptyBuffersAreFine() {
    try (World w = new World(0)) {
      w.scaler.stepAndUpdate(w.optimizer);
      assertEquals(0, w.grads.get(0).count());
      Ops.cast(w.context, new Tensor[0], new Tensor[0]);
      try (TensorList none = new TensorList(w.context);
          TensorList nowhere = new TensorList(w.context, Tensor.at(0, 0, DType.FP16))) {
        assertEquals(0, none.count());
        assertEquals(1, nowhere.count());
      }
    }
  }

  @Test
  void positionAndLimitAreHonoured() {
    try (World w = new World(1)) {
      final ByteBuffer buffer = World.direct(16);
      buffer.putFloat(0, 1f).putFloat(4, 2f).putFloat(8, 3f).putFloat(12, 4f);
      buffer.position(4).limit(12);
      final DeviceScalar zero = DeviceScalar.of(World.direct(4).asFloatBuffer());
      final Tensor[] middle = {Tensor.of(buffer, DType.FP32)};
      Ops.scale(w.context, middle, middle, zero);
      final FloatBuffer rest = buffer.clear().order(ByteOrder.nativeOrder()).asFloatBuffer();
      assertEquals(FloatBuffer.wrap(new float[] {1, 0, 0, 4}), rest);
      rest.position(3);
      final Tensor[] last = {Tensor.of(rest)};
      Ops.scale(w.context, last, last, zero);
      assertEquals(0f, buffer.getFloat(12));
      assertEquals(1f, buffer.getFloat(0));
    }
  }
}
