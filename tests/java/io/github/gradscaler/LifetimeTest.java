// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Objects that are closed, forgotten, made by the million or used by many threads; and the buffers behind them. */
class LifetimeTest {
  private static void closed(Class<?> type, World.Body call) {
    World.badState(type.getSimpleName() + " is closed", call);
  }

  @Test
  void useAfterClose() {
    final World w = new World(2);
    w.close();
    closed(GradScaler.class, w.scaler::getScale);
    closed(GradScaler.class, w.scaler::update);
    closed(GradScaler.class, w.scaler::history);
    closed(Optimizer.class, w.optimizer::step);
    closed(Optimizer.class, w.optimizer::saveSize);
    closed(TensorList.class, w.grads::count);
    closed(TensorList.class, w.grads::diagnose);
    closed(Context.class, w.context::numThreads);
    closed(Context.class, () -> new GradScaler(w.context));
    closed(Context.class, () -> Ops.cast(w.context, new Tensor[0], new Tensor[0]));
    try (World other = new World(2)) {
      closed(TensorList.class, () -> other.scaler.check(w.grads));
      closed(TensorList.class, () -> other.scaler.report(w.grads));
      closed(Optimizer.class, () -> other.scaler.step(w.optimizer));
    }
  }

  /** The state's memory goes with the optimizer, and whatever was made of it is refused from then on. */
  @Test
  void stateOfAClosedOptimizerIsRefused() {
    try (World w = new World(4); World other = new World(4)) {
      final Optimizer optimizer = new Optimizer(w.context, OptimizerOptions.adamW(), w.params, w.grads);
      final Tensor state = optimizer.stateTensor(1, 0);
      final TensorList list = new TensorList(w.context, state.slice(0, 4).named("exp_avg_sq"));
      final Optimizer overState =
          new Optimizer(w.context, OptimizerOptions.sgd(), list, new TensorList(w.context, other.weights));
      final Tensor again = list.get(0);
      Ops.cast(w.context, state, other.weights);
      overState.step();
      optimizer.close();
      final String closed = ": the optimizer whose state it is is closed";
      World.badState("src[0]" + closed, () -> Ops.cast(w.context, state, other.weights));
      World.badState("dst[0]" + closed, () -> Ops.cast(w.context, other.weights, again));
      World.badState("tensors[0]" + closed, () -> new TensorList(w.context, state));
      World.badState("tensors[0]" + closed, list::diagnose);
      World.badState("tensors[0]" + closed, () -> list.get(0));
      World.badState("tensors[0]" + closed, overState::step);
      list.setTensors(other.grads.get(0));
      assertEquals(4, list.diagnose().get(0).count());
      overState.close();
    }
  }

  /** The memory of a tensor that a list hands out, and of one made of an address and its owner. */
  @Test
  void tensorsKeepTheirOwnersAlive() throws InterruptedException {
    final List<WeakReference<Object>> owners = new ArrayList<>();
    try (Context context = Context.cpu(1)) {
      final Tensor listed = listed(context, owners);
      final TensorList[] list = {ofAddress(context, owners)};
      World.collect();
      for (WeakReference<Object> owner : owners) {
        assertNotNull(owner.get());
      }
      assertEquals(5f, listed.floats().get(3));
      assertEquals(5.0, list[0].diagnose().get(0).amax());
      list[0].close();
      list[0] = null;
      assertTrue(World.isCollected(owners.get(1)));
    }
  }

  /** The view is that of the tensor, wherever the caller's buffer stands meanwhile. */
  @Test
  void bytesAfterTheBufferWasUsed() {
    final ByteBuffer buffer = World.direct(16);
    buffer.putFloat(8, 3f).position(8);
    final Tensor tensor = Tensor.of(buffer, DType.FP32);
    buffer.position(0).limit(4);
    assertEquals(8, tensor.bytes().remaining());
    assertEquals(3f, tensor.floats().get(0));
    assertEquals(3f, Tensor.at(tensor.address(), 2, DType.FP32, buffer).slice(0, 1).floats().get(0));
  }

  private static Tensor filled(List<WeakReference<Object>> owners) {
    final Tensor tensor = filled(1 << 16, 5);
    owners.add(new WeakReference<>(tensor.owner()));
    return tensor;
  }

  private static Tensor listed(Context context, List<WeakReference<Object>> owners) {
    try (TensorList list = new TensorList(context, filled(owners))) {
      return list.get(0);
    }
  }

  /** The owner is an object of which the package knows nothing. */
  private static TensorList ofAddress(Context context, List<WeakReference<Object>> owners) {
    final Tensor tensor = filled(owners);
    return new TensorList(context,
        Tensor.at(tensor.address(), tensor.count(), DType.FP32, new Object[] {tensor.owner()}));
  }

  @Test
  void closingTwiceAndInAnyOrder() {
    final World w = new World(2);
    w.context.close();
    w.params.close();
    w.grads.close();
    w.fill(1);
    w.scaler.stepAndUpdate(w.optimizer);
    assertEquals(-1f, w.weights.floats().get(1));
    w.close();
    w.close();
  }

  @Test
  void manyAreMadeWithoutGrowth() throws IOException {
    try (Context context = Context.cpu(1)) {
      final Tensor tensor = Tensor.allocate(DType.FP32, 4);
      make(context, tensor, 50_000);
      final long before = World.residentKilobytes();
      make(context, tensor, 1_000_000);
      final long grown = World.residentKilobytes() - before;
      assertTrue(grown < 32 * 1024, () -> "grew by " + grown + " KiB");
    }
  }

  private static void make(Context context, Tensor tensor, int count) {
    for (int i = 0; i < count; i++) {
      new TensorList(context, tensor).close();
    }
  }

  /** The only reference to the buffers is the optimizer's. */
  @Test
  void optimizerKeepsBuffersAlive() throws InterruptedException {
    try (Context context = Context.cpu(1)) {
      final List<WeakReference<Object>> buffers = new ArrayList<>();
      final Optimizer optimizer = forgetful(context, buffers);
      World.collect();
      for (WeakReference<Object> buffer : buffers) {
        assertNotNull(buffer.get());
      }
      optimizer.step();
      optimizer.close();
      assertTrue(World.isCollected(buffers.get(0)));
    }
  }

  private static Optimizer forgetful(Context context, List<WeakReference<Object>> buffers) {
    final Tensor weights = Tensor.allocate(DType.FP32, 1 << 16);
    final Tensor gradients = Tensor.allocate(DType.FP32, 1 << 16);
    final Tensor exchanged = Tensor.allocate(DType.FP32, 1 << 16);
    buffers.add(new WeakReference<>(weights.owner()));
    buffers.add(new WeakReference<>(exchanged.owner()));
    try (TensorList params = new TensorList(context, weights);
        TensorList grads = new TensorList(context, gradients)) {
      final Optimizer optimizer = new Optimizer(context, OptimizerOptions.sgd(), params, grads);
      grads.setTensors(exchanged);
      return optimizer;
    }
  }

  @Test
  void buffersOfWhatACallbackClosesOutliveTheCall() {
    final List<WeakReference<Object>> buffers = new ArrayList<>();
    final List<Object> alive = new ArrayList<>();
    try (Context context = Context.cpu(1); GradScaler scaler = new GradScaler(context)) {
      final Optimizer optimizer = forgetful(context, buffers);
      scaler.setReducer(values -> {
        optimizer.close();
        World.collect();
        buffers.forEach(buffer -> alive.add(buffer.get()));
      });
      scaler.step(optimizer);
      scaler.update();
    }
    assertEquals(2, alive.size());
    alive.forEach(buffer -> assertNotNull(buffer));
  }

  /** While another thread collects garbage, calls on temporaries that nothing else refers to. */
  @Test
  void buffersLiveThroughTheCall() throws Exception {
    World.whileCollecting(() -> {
      try (Context context = Context.cpu(1)) {
        final int count = 1 << 14;
        final Tensor copy = Tensor.allocate(DType.FP32, count);
        for (int i = 1; i <= 200; i++) {
          Ops.cast(context, filled(count, i), copy);
          assertAll(copy, i);
          new Optimizer(context, OptimizerOptions.sgd().lr(1), new TensorList(context, copy),
              new TensorList(context, filled(count, 3f * i))).step();
          assertAll(copy, -2f * i);
        }
      }
    });
  }

  private static void assertAll(Tensor tensor, float value) {
    final FloatBuffer floats = tensor.floats();
    for (int i = 0; i < floats.capacity(); i++) {
      if (floats.get(i) != value) {
        assertEquals(value, floats.get(i), "element " + i);
      }
    }
  }

  private static Tensor filled(int count, float value) {
    final Tensor tensor = Tensor.allocate(DType.FP32, count);
    final FloatBuffer floats = tensor.floats();
    for (int i = 0; i < count; i++) {
      floats.put(i, value);
    }
    return tensor;
  }

  /** Each thread reads the failure of the call that it made. */
  @Test
  void errorsBelongToTheThread() throws Exception {
    final ExecutorService pool = Executors.newFixedThreadPool(4);
    World.onThreads(pool, IntStream.range(-4, 0).mapToObj(scale -> (World.Body) () -> {
      try (World w = new World(1)) {
        for (int i = 0; i < 2000; i++) {
          final Exception e = assertThrows(InvalidArgumentException.class, () -> w.scaler.setScale(scale));
          assertTrue(e.getMessage().contains("scale is " + scale + ";"), e.getMessage());
        }
      }
    }).toArray(World.Body[]::new));
    pool.shutdown();
  }
}
