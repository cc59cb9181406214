// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** That every method reaches the function it is named after, with its arguments in order. */
class ScalerTest {
  @Test
  void overflowSkipsAndBacksOff() {
    try (World w = new World(5)) {
      w.fill(0.5f);
      w.gradients.floats().put(3, Float.NaN);
      w.scaler.step(w.optimizer);
      w.scaler.update();
      assertEquals(512f, w.scaler.getScale());
      assertEquals(0, w.optimizer.unchanged());
      assertEquals(0f, w.weights.floats().get(0));
      assertEquals(1, w.optimizer.stepsSkipped());
      final Report report = w.scaler.report(w.grads);
      assertTrue(report.overflow());
      assertEquals(1, report.nanCount());
      assertEquals(0, report.firstTensor());
      assertEquals(3, report.firstElement());
      assertTrue(report.toString().endsWith(", nonfiniteCount=1, firstTensor=0, firstElement=3]"), report.toString());
      final List<HistoryEntry> history = w.scaler.history();
      assertEquals(1, history.size());
      assertTrue(history.get(0).overflow());
      assertEquals(512f, history.get(0).scale());
    }
  }

  @Test
  void spikesSkipAndAreReported() {
    try (World w = new World(1, new ScalerOptions(Preset.CHECK).skipNorm(10).historyCapacity(4))) {
      w.fill(4);
      w.scaler.stepAndUpdate(w.optimizer);
      w.fill(20);
      w.scaler.check(w.grads);
      final DeviceState words = w.scaler.deviceState(w.grads);
      assertEquals(10.0, read(w, words.normLimit(), DType.FP64).getDouble(0));
      assertEquals(1, read(w, words.spike(), DType.FP32).getInt(0)); // the bits
      assertEquals(0, w.scaler.deviceState(null).spike());
      w.scaler.stepAndUpdate(w.optimizer);
      assertEquals(-4f, w.weights.floats().get(0));
      final Report report = w.scaler.report();
      assertTrue(report.spike());
      assertFalse(report.overflow());
      assertEquals(1, report.spikes());
      assertEquals(10.0, report.normLimit());
      assertEquals(20.0, report.gradNorm());
      assertEquals(4.0, report.normAverage(), 1e-12);
      assertEquals(1, w.scaler.getState().spikes());
      final List<HistoryEntry> history = w.scaler.history();
      assertFalse(history.get(0).spike());
      assertTrue(history.get(1).spike());
      assertEquals(10.0, history.get(1).normLimit());
    }
  }

  /** The element at an address. */
  private static ByteBuffer read(World w, long address, DType dtype) {
    final Tensor copy = Tensor.allocate(dtype, 1);
    Ops.cast(w.context, Tensor.at(address, 1, dtype), copy);
    return copy.bytes();
  }

  @Test
  void scalesThatStay() {
    for (Preset preset : List.of(Preset.CHECK, Preset.STATIC_SCALE)) {
      final ScalerOptions options = new ScalerOptions(preset).growthInterval(1);
      assertTrue(options.staticScale());
      try (World w = new World(1, options)) {
        for (float gradient : new float[] {1, Float.NaN, 1}) {
          w.fill(gradient);
          w.scaler.stepAndUpdate(w.optimizer);
          assertEquals(preset == Preset.CHECK ? 1f : 128f, w.scaler.getScale());
        }
        assertEquals(-2f, w.weights.floats().get(0));
        assertEquals(1, w.scaler.report().skipped());
      }
    }
  }

  /** Of the second of two optimizers, after the update. */
  @Test
  void gradientsOfBeforeTheUpdateAreRefused() {
    try (World w = new World(1);
        TensorList params = new TensorList(w.context, Tensor.allocate(DType.FP32, 1));
        TensorList grads = new TensorList(w.context, Tensor.allocate(DType.FP32, 1));
        Optimizer second = new Optimizer(w.context, OptimizerOptions.sgd(), params, grads)) {
      final Tensor loss = Tensor.allocate(DType.FP32, 1);
      w.scaler.scale(loss, loss);
      w.scaler.stepAndUpdate(w.optimizer);
      World.badState("GradScaler.step: optimizer has gradients that are of before the last update: GradScaler.scale has not"
          + " been called since, and the scale may be another; step all optimizers of a backward pass before update",
          () -> w.scaler.step(second));
      w.scaler.scale(loss, loss);
      w.scaler.step(w.optimizer);
      w.scaler.step(second);
      w.scaler.update();
    }
  }

  @Test
  void unscaleAndClip() {
    try (World w = new World(4)) {
      w.fill(1);
      w.scaler.unscale(w.grads);
      assertEquals(1f, w.gradients.floats().get(0));
      w.scaler.clipGradNorm(w.grads, 1.0);
      assertEquals(0.5f, w.gradients.floats().get(2), 1e-6f);
      w.scaler.clipGradValue(w.grads, 0.25);
      assertEquals(0.25f, w.gradients.floats().get(2));
      assertEquals(2.0, w.scaler.report(w.grads).gradNorm(), 1e-6);
      assertTrue(w.scaler.shouldStep(w.grads));
      w.scaler.update();
      w.fill(3);
      w.scaler.check(w.grads);
      w.scaler.clipGradNorm(w.grads, 3, Norm.INF);
      w.scaler.discard(w.grads);
      w.scaler.checkRange(w.grads, 0, 1);
      w.scaler.discardAll();
      assertEquals(3072f, w.gradients.floats().get(0));
      assertTrue(w.scaler.stepSlice(w.optimizer, 1) > 0);
      assertEquals(0, w.scaler.stepSlice(w.optimizer, 1 << 20));
      assertTrue(w.context.hostBytes() > 0);
      assertEquals(0, w.context.deviceBytes());
    }
  }

  @Test
  void scaleConverts() {
    try (World w = new World(1)) {
      final Tensor loss = Tensor.allocate(DType.FP32, 1);
      final Tensor half = Tensor.allocate(DType.FP16, 1);
      loss.floats().put(0, 0.5f);
      w.scaler.scale(loss, half);
      assertEquals(0x6000, half.bytes().getShort(0)); // 512 as binary16
    }
  }

  @Test
  void statesTravelAsBytes() {
    try (World a = new World(3);
        World b = new World(3)) {
      a.fill(Float.POSITIVE_INFINITY);
      a.scaler.stepAndUpdate(a.optimizer);
      a.scaler.setGrowthFactor(4);
      a.scaler.setBackoffFactor(0.25);
      a.scaler.setGrowthInterval(7);
      b.scaler.setState(ScalerState.fromBytes(a.scaler.getState().toBytes()));
      assertEquals(512f, b.scaler.getScale());
      assertEquals(4.0, b.scaler.getGrowthFactor());
      assertEquals(0.25, b.scaler.getBackoffFactor());
      assertEquals(7, b.scaler.getGrowthInterval());
      assertEquals(1, b.scaler.getState().skipped());
      World.invalid(() -> ScalerState.fromBytes(new byte[3]));
      World.invalid(() -> ScalerState.fromBytes(new byte[88]));
      World.invalid(() -> ScalerState.fromBytes(Arrays.copyOf(a.scaler.getState().toBytes(), 64)));
      final byte[] older = Arrays.copyOf(a.scaler.getState().toBytes(), 64); // without the last two fields
      ByteBuffer.wrap(older).order(ByteOrder.nativeOrder()).putInt(0, 64);
      b.scaler.setState(ScalerState.fromBytes(older));
      assertEquals(1, b.scaler.getState().updates());
      assertEquals(0, b.scaler.getState().skipped());
      World.invalid(() -> b.scaler.setState(new ScalerState()));
      assertEquals(512f, b.scaler.getScale());
    }
  }

  @Test
  void presets() {
    for (Preset preset : Preset.values()) {
      try (Context context = Context.cpu(1);
          GradScaler scaler = new GradScaler(context, new ScalerOptions(preset))) {
        scaler.setOptions(scaler.getOptions().growthInterval(3));
        assertEquals(3, scaler.getGrowthInterval());
      }
    }
    assertEquals(HysteresisRefill.ON_CLEAN_STEP, new ScalerOptions(Preset.APEX_HYSTERESIS).hysteresisRefill());
    assertEquals(GrowthTiming.ONE_LATER, new ScalerOptions(Preset.FLAX).growthTiming());
    try (World on = new World(1);
        World off = new World(1, new ScalerOptions().enabled(false))) {
      assertTrue(on.scaler.isEnabled());
      assertFalse(off.scaler.isEnabled());
    }
  }

  /** Each option set to another value changes that option alone, in the scaler too. */
  @Test
  void optionsReachTheLibrary() throws ReflectiveOperationException {
    final ScalerOptions options = new ScalerOptions().maxScale(1 << 20);
    for (Method setter : ScalerOptions.class.getMethods()) {
      if (setter.getParameterCount() != 1 || setter.getReturnType() != ScalerOptions.class) {
        continue;
      }
      final Map<String, Object> before = values(options);
      final Object was = before.get(setter.getName());
      final Object next = was instanceof Boolean ? (Object) !(Boolean) was
          : was instanceof Float ? (Object) ((Float) was + 1) : was instanceof Double ? (Object) ((Double) was + 1)
          : was instanceof Integer ? (Object) ((Integer) was + 1)
          : was.getClass().getEnumConstants()[1];
      setter.invoke(options, next);
      before.put(setter.getName(), next);
      assertEquals(before, values(options));
    }
    options.enabled(true).backoffFactor(0.25).overflowTolerance(0.5);
    try (World w = new World(1, options)) {
      assertEquals(values(options), values(w.scaler.getOptions()));
    }
  }

  private static Map<String, Object> values(ScalerOptions options) throws ReflectiveOperationException {
    final Map<String, Object> values = new TreeMap<>();
    for (Method getter : ScalerOptions.class.getDeclaredMethods()) {
      if (Modifier.isPublic(getter.getModifiers()) && getter.getParameterCount() == 0
          && !getter.getName().equals("toString")) {
        values.put(getter.getName(), getter.invoke(options));
      }
    }
    return values;
  }

  @Test
  void groupsAndLearningRates() {
    try (Context context = Context.cpu(1)) {
      final Tensor p = Tensor.allocate(DType.FP32, 2);
      final Tensor g = Tensor.allocate(DType.FP32, 2);
      try (TensorList params = new TensorList(context, p.slice(0, 1), p.slice(1, 1));
          TensorList grads = new TensorList(context, g.slice(0, 1), g.slice(1, 1));
          Optimizer optimizer = new Optimizer(context, OptimizerOptions.sgd().lr(1), params, grads)) {
        assertEquals(1, optimizer.addGroup(1, 1, OptimizerOptions.sgd().lr(10)));
        assertEquals(2, optimizer.groupCount());
        g.floats().put(0, 1f).put(1, 1f);
        optimizer.step();
        assertEquals(-1f, p.floats().get(0));
        assertEquals(-10f, p.floats().get(1));
        optimizer.setLr(1, 2);
        assertEquals(2.0, optimizer.getOptions(1).lr());
        optimizer.setDeviceLr(0, DeviceScalar.of(World.direct(4).putFloat(0, 5f).asFloatBuffer()));
        optimizer.step();
        assertEquals(-6f, p.floats().get(0));
        assertEquals(-12f, p.floats().get(1));
        grads.setDeviceFactor(DeviceScalar.of(World.direct(4).putFloat(0, 0.5f).asFloatBuffer()));
        optimizer.step();
        assertEquals(-8.5f, p.floats().get(0));
        grads.setDeviceFactor(null);
        World.invalid(() -> grads.setDeviceFactor(DeviceScalar.of(World.direct(4).asIntBuffer())));
        World.invalid(() -> grads.setDeviceNorms(DeviceScalar.of(World.direct(8).asDoubleBuffer())));
        final DoubleBuffer norms = World.direct(16).asDoubleBuffer();
        grads.setDeviceNorms(DeviceScalar.of(norms));
        grads.setDeviceNorms(null);
        optimizer.zeroGrads();
        assertEquals(0f, g.floats().get(1));
        optimizer.setSteps(40, 2);
        assertEquals(40, optimizer.stepsApplied());
        assertEquals(2, optimizer.stepsSkipped());
        grads.setPresent(false, true);
        optimizer.step();
        assertEquals(-8.5f, p.floats().get(0));
        assertArrayEquals(new long[] {40, 41}, optimizer.tensorSteps());
        World.invalid(() -> grads.setPresent(true));
        optimizer.setTensorSteps(5, 3);
        assertArrayEquals(new long[] {5, 3}, optimizer.tensorSteps());
        optimizer.setOffsets(64, 32);
        World.invalid(() -> optimizer.setOffsets(64, 33));
        assertEquals(0, optimizer.evaluating());
        assertEquals(5, optimizer.stepsApplied());
      }
    }
  }

  @Test
  void modelCopyIsWrittenInTheSamePass() {
    try (Context context = Context.cpu(1)) {
      final Tensor p = Tensor.allocate(DType.FP32, 3);
      final Tensor g = Tensor.allocate(DType.FP16, 3);
      final Tensor half = Tensor.allocate(DType.FP16, 3);
      try (TensorList params = new TensorList(context, p);
          TensorList grads = new TensorList(context, g);
          TensorList copy = new TensorList(context, half);
          Optimizer optimizer = new Optimizer(context, OptimizerOptions.sgd().lr(1), params, grads, copy)) {
        g.bytes().putShort(2, (short) 0x3c00); // 1 as binary16
        optimizer.stepScaled(DeviceScalar.of(World.direct(4).putFloat(0, 0.5f).asFloatBuffer()), null);
        assertEquals((short) 0xb800, half.bytes().getShort(2)); // -0.5
      }
    }
  }

  @Test
  void diagnosis() {
    try (Context context = Context.cpu(1)) {
      final Tensor t = Tensor.allocate(DType.FP32, 4).named("decoder.weight");
      try (TensorList list = new TensorList(context, t)) {
        t.floats().put(new float[] {0f, 4f, Float.NaN, Float.NEGATIVE_INFINITY});
        final Diagnosis found = list.diagnose();
        assertEquals(1, found.count());
        assertEquals(1, found.get(0).infCount());
        assertEquals(1, found.get(0).nanCount());
        assertEquals(2, found.get(0).firstNonfinite());
        assertEquals(4.0, found.get(0).amax());
        final long[] expected = new long[Diagnosis.EXPONENT_BINS];
        expected[2 - Diagnosis.EXPONENT_MIN] = 1;
        assertArrayEquals(expected, found.histogram(0));
        final Recommendation recommendation = found.recommend(1, DType.FP16);
        assertEquals(2048f, recommendation.scale()); // 4 * 2048 = 2^13, two binades below 2^15
        assertEquals("decoder.weight", list.get(0).name());
        try (TensorList other = new TensorList(context, t.named("häd\uD83D\uDE00"))) {
          assertEquals("häd\uD83D\uDE00", other.get(0).name());
        }
      }
    }
  }

  @Test
  void ops() {
    try (Context context = Context.cpu(1)) {
      final Tensor a = Tensor.allocate(DType.FP32, 4);
      final Tensor b = Tensor.allocate(DType.FP32, 4);
      final DeviceScalar found = DeviceScalar.of(World.direct(4).asFloatBuffer());
      final ByteBuffer words = World.direct(16);
      a.floats().put(new float[] {1, 2, 3, 4});
      Ops.cast(context, a, b);
      Ops.axpby(context, 2, new Tensor[] {a}, 10, new Tensor[] {b});
      assertEquals(48f, b.floats().get(3));
      words.putFloat(0, 0.5f);
      Ops.unscaleCheck(context, new Tensor[] {b}, found, DeviceScalar.of(words.asFloatBuffer()));
      assertEquals(24f, b.floats().get(3));
      Ops.scale(context, new Tensor[] {b}, new Tensor[] {a}, DeviceScalar.of(words.asFloatBuffer()));
      assertEquals(12f, a.floats().get(3));
      words.position(8);
      final DeviceScalar norm = DeviceScalar.of(words.slice().order(words.order()).asDoubleBuffer());
      Ops.norm(context, new Tensor[] {a}, Norm.INF, norm, null);
      assertEquals(12.0, words.getDouble(8));
      words.putFloat(0, 64f).putInt(4, 0);
      final ByteBuffer tracker = World.direct(4);
      words.position(0);
      Ops.updateScale(context, DeviceScalar.of(words.asFloatBuffer()), DeviceScalar.of(tracker.asIntBuffer()), found, 2, 0.5, 1);
      assertEquals(128f, words.getFloat(0));
    }
  }

  @Test
  void devicesAndWords() {
    assertEquals(1, Context.deviceCount(DeviceType.CPU));
    assertEquals(DeviceType.CPU, Context.deviceInfo(DeviceType.CPU, 0).type());
    assertThrows(UnavailableException.class, () -> Context.cuda(99, true));
    assertTrue(Context.version().matches("\\d+\\.\\d+\\.\\d+"));
    assertTrue(Context.buildInfo().contains(Context.version()));
    try (World w = new World(1)) {
      assertEquals(1, w.context.numThreads());
      assertNotEquals(CpuTarget.BEST, w.context.cpuTarget());
      w.scaler.check(w.grads);
      final DeviceState state = w.scaler.deviceState(w.grads);
      assertNotEquals(0, state.foundInf());
      assertEquals(0, w.scaler.deviceState(null).foundInf());
      final Tensor scale = Tensor.allocate(DType.FP32, 1);
      Ops.cast(w.context, Tensor.at(state.scale(), 1, DType.FP32), scale);
      assertEquals(1024f, scale.floats().get(0));
    }
  }
}
