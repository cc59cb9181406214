// SPDX-License-Identifier: Apache-2.0
import io.github.gradscaler.BadStateException;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.DeviceScalar;
import io.github.gradscaler.InvalidArgumentException;
import io.github.gradscaler.Ops;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;

/** Memory segments and their buffers: a step after the arena was closed is refused. Run with Java 22 or later. */
public final class SegmentProbe {
  private static int checks;

  private SegmentProbe() {}

  private static Tensor tensor(MemorySegment segment) {
    return Tensor.of(segment.asByteBuffer().order(ByteOrder.nativeOrder()), DType.FP32);
  }

  private static void check(boolean right, String otherwise) {
    if (!right) {
      throw new AssertionError(otherwise);
    }
  }

  private static void stepped(MemorySegment weights) {
    check(weights.getAtIndex(ValueLayout.JAVA_FLOAT, 7) == -2f, "the step missed the segment");
  }

  private static void refused(String part, Runnable call) {
    try {
      call.run();
    } catch (BadStateException | InvalidArgumentException e) {
      check(e.getMessage().contains(part), e.getMessage() + " does not say: " + part);
      checks++;
      return;
    }
    throw new AssertionError("not refused: " + part);
  }

  public static void main(String[] args) throws InterruptedException {
    try (Context context = Context.cpu(1)) {
      final Arena arena = Arena.ofConfined();
      final MemorySegment weights = arena.allocate(4 * 64, 64);
      final MemorySegment gradients = Arena.ofAuto().allocate(4 * 64, 64);
      gradients.setAtIndex(ValueLayout.JAVA_FLOAT, 7, 2f);
      final TensorList params = new TensorList(context, tensor(weights));
      final TensorList grads = new TensorList(context, tensor(gradients));
      final Optimizer optimizer = new Optimizer(context, OptimizerOptions.sgd().lr(1), params, grads);
      optimizer.step();
      stepped(weights);
      final Thread other = new Thread(() -> refused("confined to another thread", optimizer::step));
      other.start();
      other.join();

      final DeviceScalar lr = DeviceScalar.of(weights.asByteBuffer().order(ByteOrder.nativeOrder()).asFloatBuffer());
      final Tensor tensor = tensor(weights);
      arena.close();
      refused("tensors[0]: the arena of its memory is closed", optimizer::step);
      refused("tensors[0]: the arena of its memory is closed", params::diagnose);
      refused("dst[0]: the arena of its memory is closed",
          () -> Ops.cast(context, tensor(gradients), tensor));
      refused("buffer: the arena of its memory is closed", () -> tensor(weights));

      // The list can be pointed at memory that is there.
      final MemorySegment next = Arena.ofAuto().allocate(4 * 64, 64);
      params.setTensors(tensor(next));
      optimizer.step();
      refused("lr: the arena of its memory is closed", () -> optimizer.setDeviceLr(0, lr));
      stepped(next);
    }
    segments();
    check(checks == 10, checks + " checks");
    System.out.println("10 refusals");
  }

  /** The same without a buffer between. */
  private static void segments() {
    refused("segment is on the heap", () -> Tensor.of(MemorySegment.ofArray(new float[4]), DType.FP32));
    refused("segment is read-only", () -> Tensor.of(Arena.ofAuto().allocate(8, 8).asReadOnly(), DType.FP32));
    refused("segment has 6 bytes", () -> Tensor.of(Arena.ofAuto().allocate(6, 8), DType.FP32));
    try (Context context = Context.cpu(1); Arena arena = Arena.ofConfined()) {
      final Arena shorter = Arena.ofConfined();
      final MemorySegment weights = shorter.allocate(4 * 64, 64);
      final MemorySegment gradients = arena.allocate(2 * 64, 64);
      gradients.setAtIndex(ValueLayout.JAVA_SHORT, 7, Float.floatToFloat16(2f));
      try (TensorList params = new TensorList(context, Tensor.of(weights, DType.FP32).named("weights"));
          TensorList grads = new TensorList(context, Tensor.of(gradients, DType.FP16));
          Optimizer optimizer = new Optimizer(context, OptimizerOptions.sgd().lr(1), params, grads)) {
        optimizer.step();
        stepped(weights);
        shorter.close();
        refused("tensors[0]: the arena of its memory is closed", optimizer::step);
      }
    }
  }
}
