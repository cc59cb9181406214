// SPDX-License-Identifier: Apache-2.0
package benchmarks;

import foreign.Foreign;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/** A step and an update of AdamW over one element: nearly nothing but the two calls, as tests/java/overhead.c in C. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Calls {
  private Arena arena;
  private Context context;
  private TensorList params;
  private TensorList grads;
  private Optimizer optimizer;
  private GradScaler scaler;

  private Foreign library;
  private MemorySegment foreignParams;
  private MemorySegment foreignGrads;
  private MemorySegment foreignOptimizer;
  private MemorySegment foreignScaler;

  /** Both ways, on memory of their own. */
  @Setup
  public void setUp() {
    arena = Arena.ofShared();
    context = Context.cpu(1);
    params = new TensorList(context, Tensor.of(arena.allocate(4, 64), DType.FP32));
    grads = new TensorList(context, Tensor.of(arena.allocate(4, 64), DType.FP32));
    optimizer = new Optimizer(context, OptimizerOptions.adamW(), params, grads);
    scaler = new GradScaler(context);

    library = new Foreign(Path.of(System.getProperty("gradscaler.so")));
    foreignParams = library.list(arena.allocate(4, 64), 1, Foreign.FP32);
    foreignGrads = library.list(arena.allocate(4, 64), 1, Foreign.FP32);
    foreignOptimizer = library.optimizer(foreignParams, foreignGrads);
    foreignScaler = library.scaler();
  }

  /** The package, which calls through JNI. */
  @Benchmark
  public void jni() {
    scaler.step(optimizer);
    scaler.update();
  }

  /** The C library through java.lang.foreign. */
  @Benchmark
  public void foreign() {
    library.step(foreignScaler, foreignOptimizer);
    library.update(foreignScaler);
  }

  /** Everything that setUp made. */
  @TearDown
  public void tearDown() {
    scaler.close();
    optimizer.close();
    grads.close();
    params.close();
    context.close();
    library.destroy("scaler", foreignScaler);
    library.destroy("optimizer", foreignOptimizer);
    library.destroy("tensor_list", foreignGrads);
    library.destroy("tensor_list", foreignParams);
    library.close();
    arena.close();
  }
}
