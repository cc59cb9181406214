// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** A context, a list of parameters and one of gradients, SGD of learning rate 1 over them, and a scaler. */
final class World implements AutoCloseable {
  final Context context = Context.cpu(1);
  final Tensor weights;
  final Tensor gradients;
  final TensorList params;
  final TensorList grads;
  final Optimizer optimizer;
  final GradScaler scaler;

  World(int count) {
    this(count, new ScalerOptions().initScale(1024));
  }

  World(int count, ScalerOptions options) {
    weights = Tensor.allocate(DType.FP32, count);
    gradients = Tensor.allocate(DType.FP32, count);
    params = new TensorList(context, weights);
    grads = new TensorList(context, gradients);
    optimizer = new Optimizer(context, OptimizerOptions.sgd().lr(1), params, grads);
    scaler = new GradScaler(context, options);
  }

  /** As a backward pass would: every gradient has this value before it is scaled. */
  void fill(float trueValue) {
    final FloatBuffer values = gradients.floats();
    final float value = trueValue * scaler.getScale();
    for (int i = 0; i < values.capacity(); i++) {
      values.put(i, value);
    }
  }

  static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }

  interface Body {
    void run() throws Exception;
  }

  /** Expects a call to be refused for its arguments. */
  static void invalid(Body call) {
    assertThrows(InvalidArgumentException.class, call::run);
  }

  /** Expects a call to be refused for the state of its objects. */
  static void badState(String message, Body call) {
    assertEquals(message, assertThrows(BadStateException.class, call::run).getMessage());
  }

  /** Runs each on a thread of the pool, and throws what one of them has thrown. */
  static void onThreads(ExecutorService pool, Body... bodies) throws Exception {
    final List<Future<?>> threads = new ArrayList<>();
    for (Body body : bodies) {
      threads.add(pool.submit(() -> {
        body.run();
        return null;
      }));
    }
    for (Future<?> thread : threads) {
      thread.get(60, TimeUnit.SECONDS);
    }
  }

  /** What a JVM with these arguments prints. */
  static String java(int exitStatus, String... arguments) throws IOException, InterruptedException {
    final List<String> command = new ArrayList<>(List.of(arguments));
    command.add(0, Path.of(System.getProperty("java.home"), "bin", "java").toString());
    final Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    final String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(exitStatus, process.waitFor(), output);
    return output;
  }

  /** Runs it while another thread collects garbage. */
  static void whileCollecting(Body body) throws Exception {
    final AtomicBoolean stop = new AtomicBoolean();
    final Thread collector = new Thread(() -> {
      while (!stop.get()) {
        System.gc();
      }
    });
    collector.start();
    try {
      body.run();
    } finally {
      stop.set(true);
      collector.join();
    }
  }

  /** Collects garbage, with allocations between that reuse what was freed. */
  static void collect() throws InterruptedException {
    for (int i = 0; i < 20; i++) {
      Tensor.allocate(DType.FP32, 1 << 16);
      System.gc();
      Thread.sleep(5);
    }
  }

  /** Collects what earlier tests forgot. */
  static void collectAll() throws InterruptedException {
    for (int i = 0; i < 600 && NativeMemory.held() > 0; i++) {
      collect();
    }
  }

  /** Whether the collector takes the object within seconds. */
  static boolean isCollected(WeakReference<?> reference) throws InterruptedException {
    for (int i = 0; i < 300 && reference.get() != null; i++) {
      System.gc();
      Thread.sleep(10);
    }
    return reference.get() == null;
  }

  static long residentKilobytes() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) {
        return Long.parseLong(line.replaceAll("\\D+", ""));
      }
    }
    throw new IOException("no VmRSS");
  }

  @Override
  public void close() {
    scaler.close();
    optimizer.close();
    grads.close();
    params.close();
    context.close();
  }
}
