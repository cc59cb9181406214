// SPDX-License-Identifier: Apache-2.0
import io.github.gradscaler.BadStateException;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.DeviceScalar;
import io.github.gradscaler.Ops;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;

/** Buffers of memory segments: a step after the arena was closed is refused. Run with Java 22 or later. */
public final class SegmentProbe {
  private static int checks;

  private SegmentProbe() {}

  private static Tensor tensor(MemorySegment segment) {
    return Tensor.of(segment.asByteBuffer().order(ByteOrder.nativeOrder()), DType.FP32);
  }

  private static void refused(String part, Runnable call) {
    try {
      call.run();
    } catch (BadStateException e) {
      if (!e.getMessage().contains(part)) {
        throw new AssertionError(e.getMessage() + " does not say: " + part);
      }
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
      if (weights.getAtIndex(ValueLayout.JAVA_FLOAT, 7) != -2f) {
        throw new AssertionError("the step missed the segment");
      }
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
      if (next.getAtIndex(ValueLayout.JAVA_FLOAT, 7) != -2f) {
        throw new AssertionError("the step missed the new segment");
      }
    }
    if (checks != 6) {
      throw new AssertionError(checks + " checks");
    }
    System.out.println("6 refusals");
  }
}
