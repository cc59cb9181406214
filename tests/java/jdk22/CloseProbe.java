// SPDX-License-Identifier: Apache-2.0
import io.github.gradscaler.BadStateException;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Virtual threads: one of them trains, two close what it uses. Run with Java 21 or later. */
public final class CloseProbe {
  private static final int RACES = 3000;

  private CloseProbe() {}

  private static void train(GradScaler scaler, Optimizer optimizer) {
    try {
      while (true) {
        scaler.stepAndUpdate(optimizer);
        Thread.yield();
      }
    } catch (BadStateException e) {
      if (!e.getMessage().endsWith(" is closed")) {
        throw e;
      }
    }
  }

  public static void main(String[] args) throws Exception {
    final Tensor weights = Tensor.allocate(DType.FP32, 8);
    final Tensor gradients = Tensor.allocate(DType.FP32, 8);
    try (ExecutorService pool = Executors.newVirtualThreadPerTaskExecutor(); Context context = Context.cpu(1)) {
      for (int i = 0; i < RACES; i++) {
        final TensorList params = new TensorList(context, weights);
        final TensorList grads = new TensorList(context, gradients);
        final Optimizer optimizer = new Optimizer(context, OptimizerOptions.sgd(), params, grads);
        final GradScaler scaler = new GradScaler(context);
        final List<Future<?>> tasks = new ArrayList<>();
        tasks.add(pool.submit(() -> train(scaler, optimizer)));
        for (int closer = 0; closer < 2; closer++) {
          tasks.add(pool.submit(() -> {
            scaler.close();
            optimizer.close();
            params.close();
            grads.close();
          }));
        }
        for (Future<?> task : tasks) {
          task.get();
        }
      }
    }
    System.out.println(RACES + " races");
  }
}
