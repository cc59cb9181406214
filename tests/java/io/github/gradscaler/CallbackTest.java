// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What the library calls back, and reports without waiting: the log, the sum over ranks, memory of the caller. */
class CallbackTest {
  private static ScalerOptions atFloor() {
    return new ScalerOptions().initScale(4).minScale(4).floorAction(FloorAction.REPORT).floorPatience(1);
  }

  private static void overflow(World w) {
    w.fill(Float.NaN);
    w.scaler.stepAndUpdate(w.optimizer);
  }

  @Test
  void logReachesItsReceiver() {
    final List<String> messages = new ArrayList<>();
    try (World w = new World(2, atFloor())) {
      w.context.setLog((level, message) -> messages.add(level + ": " + message));
      overflow(w);
      assertEquals(1, messages.size());
      assertTrue(messages.get(0).startsWith("WARNING: loss scale 4 cannot be lowered"), messages.get(0));
      w.context.setLog(null);
      overflow(w);
      assertEquals(1, messages.size());
      w.context.setLog((level, message) -> {
        messages.add(message);
        throw new IllegalStateException("of the receiver");
      });
      overflow(w);
      assertEquals(2, messages.size());
      assertEquals(3, w.scaler.report().skipped());
    }
  }

  /** The receiver hears what a scaler says after its context is closed and forgotten, and no longer than the scaler. */
  @Test
  void receiverLivesAsLongAsTheLastObject() throws InterruptedException {
    final List<WeakReference<Object>> receivers = new ArrayList<>();
    final int[] heard = {0};
    final Object[] objects = withoutContext(receivers, heard);
    World.collect();
    assertNotNull(receivers.get(0).get());
    ((Tensor) objects[2]).floats().put(0, Float.NaN);
    ((GradScaler) objects[0]).stepAndUpdate((Optimizer) objects[1]);
    assertEquals(1, heard[0]);
    objects[0] = null;
    objects[1] = null;
    assertTrue(World.isCollected(receivers.get(0)));
  }

  private static Object[] withoutContext(List<WeakReference<Object>> receivers, int[] heard) {
    try (Context context = Context.cpu(1)) {
      final Object marker = new Object();
      receivers.add(new WeakReference<>(marker));
      context.setLog((level, message) -> heard[0] += marker == null ? 0 : 1);
      final Tensor gradient = Tensor.allocate(DType.FP32, 1);
      try (TensorList params = new TensorList(context, Tensor.allocate(DType.FP32, 1));
          TensorList grads = new TensorList(context, gradient)) {
        return new Object[] {new GradScaler(context, atFloor()),
            new Optimizer(context, OptimizerOptions.sgd().lr(1), params, grads), gradient};
      }
    }
  }

  /** Of other ranks come three times the squares, and then an overflow. */
  @Test
  void reducerReplacesTheSums() {
    try (World w = new World(1)) {
      w.scaler.setReducer(values -> values[1] *= 4);
      w.fill(3);
      w.scaler.check(w.grads);
      assertEquals(6, w.scaler.report(w.grads).gradNorm(), 1e-6);
      w.scaler.stepAndUpdate(w.optimizer);
      w.scaler.setReducer(values -> values[0]++);
      w.scaler.stepAndUpdate(w.optimizer);
      assertEquals(-3f, w.weights.floats().get(0));
      assertTrue(w.scaler.report().overflow());
      assertEquals(1, w.scaler.report().nonfiniteCount());
      assertEquals(512f, w.scaler.getScale());
    }
  }

  /** 20,000 exceptions: none is kept, no memory grows, no step is taken, and the next call works. */
  @Test
  void exceptionsLeaveNothingBehind() throws Exception {
    final List<WeakReference<Throwable>> thrown = new ArrayList<>();
    try (World w = new World(2, atFloor())) {
      throwFromCallbacks(w, 1_000, thrown);
      final long before = World.residentKilobytes();
      throwFromCallbacks(w, 10_000, thrown);
      final long grown = World.residentKilobytes() - before;
      assertTrue(grown < 8 * 1024, () -> "grew by " + grown + " KiB");
      w.fill(1);
      w.scaler.stepAndUpdate(w.optimizer);
      assertEquals(-1f, w.weights.floats().get(0));
    }
    for (WeakReference<Throwable> each : thrown) {
      assertTrue(World.isCollected(each));
    }
  }

  /** Two each time: from a reducer and from a log. Every hundredth is noted. */
  private static void throwFromCallbacks(World w, int count, List<WeakReference<Throwable>> thrown) {
    for (int i = 0; i < count; i++) {
      final IOException lost = new IOException("a rank is gone");
      if (i % 100 == 0) {
        thrown.add(new WeakReference<>(lost));
      }
      w.scaler.setReducer(values -> {
        throw lost;
      });
      final GradScalerException e = assertThrows(GradScalerException.class, () -> w.scaler.step(w.optimizer));
      assertSame(Status.CALLBACK, e.status());
      assertSame(lost, e.getCause());
      w.scaler.discardAll();
      w.scaler.setReducer(null);
      w.context.setLog((level, message) -> {
        throw new UncheckedIOException(lost);
      });
      overflow(w);
    }
    w.context.setLog(null);
  }

  @Test
  void deviceReducerGetsMemory() {
    try (World w = new World(2)) {
      final List<Long> got = new ArrayList<>();
      w.scaler.setDeviceReducer((values, count, stream) -> {
        got.add(count);
        got.add(stream);
        final Tensor sums = Tensor.at(values, count, DType.FP64);
        Ops.axpby(w.context, 1, new Tensor[] {sums}, 1, new Tensor[] {sums});
      });
      w.fill(3);
      w.scaler.check(w.grads);
      assertEquals(List.of(2L, 0L), got);
      assertEquals(6, w.scaler.report(w.grads).gradNorm(), 1e-6);
    }
  }

  @Test
  void reportWithoutWaiting() {
    try (World w = new World(2, atFloor().floorAction(FloorAction.ERROR))) {
      final ReportBuffer own = new ReportBuffer();
      final ByteBuffer memory = World.direct(ReportBuffer.size());
      final ReportBuffer callers = ReportBuffer.at(NativeCallsJNI.bufferAddress(memory));
      assertEquals(0, own.get().updates());
      overflow(w);
      for (ReportBuffer each : new ReportBuffer[] {own, callers}) {
        w.scaler.readReportAsync(null, each, 0);
        assertTrue(each.get().atFloor());
        assertEquals(2, each.get().nonfiniteCount());
        assertEquals(1, each.get().updates());
      }
      w.scaler.readReportAsync(w.grads, own, 0);
      assertEquals(0, own.get().firstTensor());
      World.invalid(() -> w.scaler.readReportAsync(w.grads, null, 0));
      World.invalid(() -> ReportBuffer.at(0));
      World.invalid(() -> ReportBuffer.at(12));
    }
  }
}
