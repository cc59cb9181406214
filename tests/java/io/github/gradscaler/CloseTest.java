// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** close() while a call is in progress: the call ends as if nothing had happened, and the next one is refused. */
class CloseTest {
  private static final int RACES = 4000;

  /** Otherwise the collector would take it while a test counts memory. */
  @BeforeEach
  void collectWhatOtherTestsForgot() throws InterruptedException {
    World.collectAll();
  }

  /** Calls every object until it is closed. */
  private static void useUntilClosed(World w) {
    try {
      while (true) {
        w.scaler.step(w.optimizer);
        w.scaler.update();
        w.optimizer.stepsApplied();
        w.grads.diagnose();
        new TensorList(w.context, w.weights).close();
        Thread.yield();
      }
    } catch (BadStateException e) {
      assertTrue(e.getMessage().endsWith(" is closed"), e.getMessage());
    }
  }

  private static void closeInTurn(World w, int first) {
    final List<AutoCloseable> objects = List.of(w.scaler, w.optimizer, w.grads, w.params, w.context);
    for (int i = 0; i < objects.size(); i++) {
      try {
        objects.get((first + i) % objects.size()).close();
      } catch (Exception e) {
        throw new AssertionError(e);
      }
    }
  }

  /** Virtual threads where Java has them. */
  private static ExecutorService threads(int count) throws ReflectiveOperationException {
    try {
      return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    } catch (NoSuchMethodException e) {
      return Executors.newFixedThreadPool(count);
    }
  }

  /** The thread that calls has made the objects, or has not. */
  @Test
  void twoClosersAndACall() throws Exception {
    final ExecutorService pool = threads(3);
    final CyclicBarrier start = new CyclicBarrier(3);
    final AtomicReference<World> made = new AtomicReference<>();
    for (int i = 0; i < RACES; i++) {
      final int first = i;
      if (i % 2 == 0) {
        made.set(new World(8));
      }
      final World.Body closer = () -> {
        start.await();
        closeInTurn(made.get(), first);
      };
      World.onThreads(pool, () -> {
        if (first % 2 != 0) {
          made.set(new World(8));
        }
        start.await();
        useUntilClosed(made.get());
      }, closer, closer);
    }
    pool.shutdown();
  }

  /** Two threads ask an object at once for what only reads. */
  @Test
  void twoCallersAndACloser() throws Exception {
    final ExecutorService pool = threads(3);
    for (int i = 0; i < RACES; i++) {
      final Context context = Context.cpu(1);
      final World.Body caller = () -> World.badState("Context is closed", () -> {
        while (true) {
          context.numThreads();
          Thread.yield();
        }
      });
      World.onThreads(pool, caller, caller, context::close);
    }
    pool.shutdown();
  }

  /** The callback runs inside of the call that uses what it closes. */
  @Test
  void inACallback() {
    for (int i = 0; i < 200; i++) {
      final World w = new World(8);
      final int first = i;
      w.scaler.setReducer(values -> closeInTurn(w, first));
      w.scaler.step(w.optimizer);
      World.badState("GradScaler is closed", w.scaler::update);
      World.badState("Optimizer is closed", w.optimizer::step);
    }
  }

  /**
   * The call goes on with the state of an optimizer that its callback closes: the list over it holds the memory, until
   * another thread closes that.
   */
  @Test
  void onTheStateOfAnotherOptimizer() throws Exception {
    try (World w = new World(4 << 20)) {
      final long before = NativeMemory.held();
      final Optimizer owner = new Optimizer(w.context, OptimizerOptions.adamW(), w.params, w.grads);
      final TensorList state = new TensorList(w.context, owner.stateTensor(0, 0));
      final Optimizer overState = new Optimizer(w.context, OptimizerOptions.sgd().lr(1), state, w.grads);
      w.scaler.setReducer(values -> owner.close());
      w.scaler.step(overState);
      World.badState("tensors[0]: the optimizer whose state it is is closed", overState::step);
      overState.close();
      final Thread closer = new Thread(state::close);
      closer.start();
      closer.join();
      assertEquals(before, NativeMemory.held());
    }
  }

  /** A refused call holds none of the objects that it was given. */
  @Test
  void aRefusedCallLeavesNothingInUse() {
    try (World w = new World(8)) {
      final World other = new World(8);
      other.grads.close();
      final long before = NativeMemory.held();
      final TensorList params = new TensorList(w.context, w.weights);
      World.badState("TensorList is closed",
          () -> new Optimizer(w.context, OptimizerOptions.sgd(), params, other.grads));
      params.close();
      assertEquals(before, NativeMemory.held());
      other.close();
    }
  }

  /** The collector frees what is forgotten while other threads make calls and close. */
  @Test
  void besideTheCollector() throws Exception {
    World.whileCollecting(() -> {
      for (int i = 0; i < 300; i++) {
        final World w = new World(8);
        w.scaler.step(w.optimizer);
        if (i % 2 == 0) {
          w.optimizer.close();
        }
        final Thread closer = new Thread(w.scaler::close);
        closer.start();
        new World(8).scaler.getScale();
        closer.join();
      }
    });
  }

  /** A hook closes what other threads use when the JVM ends. */
  @Test
  void inAShutdownHook() throws Exception {
    for (int i = 0; i < 10; i++) {
      assertEquals("", World.java(3, "-XX:+UseSerialGC", "-Xmx64m", "-cp", System.getProperty("java.class.path"),
          Exit.class.getName()));
    }
  }

  /** Ends the JVM while threads are in calls. */
  static final class Exit {
    private Exit() {}

    public static void main(String[] args) throws InterruptedException {
      for (int i = 0; i < 4; i++) {
        final World w = new World(8);
        final int first = i;
        final Thread user = new Thread(() -> useUntilClosed(w));
        user.setDaemon(true);
        user.start();
        if (i < 2) {
          Runtime.getRuntime().addShutdownHook(new Thread(() -> closeInTurn(w, first)));
        }
      }
      Thread.sleep(20);
      System.exit(3);
    }
  }
}
