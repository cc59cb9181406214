// SPDX-License-Identifier: Apache-2.0
package digits;

import data.Dataset;
import io.github.gradscaler.Context;
import io.github.gradscaler.MasterFormat;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.StateFormat;
import java.io.IOException;
import java.nio.file.Path;

/**
 * Trains a small network on handwritten digits in fp16, with a loss so small that most of its gradients are lost
 * without loss scaling: once without, once with a GradScaler. A third run has a first scale that is far too large.
 * Fails if scaling does not do what it should. AdamW's state may be small: moments in 16 or 8 bits, and fp32 masters
 * split into the fp16 weights and what those leave out. How the library is used is in Training; the twin in C is
 * examples/c/digits.
 *
 * <pre>java -cp classes:gradscaler.jar:gradscaler-natives.jar digits.Digits digits.csv BITS8 SPLIT16</pre>
 */
public final class Digits {
  private static final float SMALL = 1e-5f;
  private static final int STEPS = 200;
  private static final OptimizerOptions ADAMW = OptimizerOptions.adamW().lr(2e-3);

  private Digits() {}

  public static void main(String[] args) throws IOException {
    if (args.length != 1 && args.length != 3) {
      System.err.println("usage: Digits digits.csv [FULL|BITS16|BITS8 NONE|SPLIT16|SPLIT8|STOCHASTIC]");
      System.exit(2);
    }
    if (args.length == 3) {
      ADAMW.stateFormat(StateFormat.valueOf(args[1])).masterFormat(MasterFormat.valueOf(args[2]));
    }
    System.out.println(Context.buildInfo());
    final Dataset all = Dataset.read(Path.of(args[0]));
    try (Context context = Context.cpu(1)) {
      final Training.Result plain = run("fp16, no scaling", context, all, false, 1 << 16, SMALL);
      final Training.Result scaled = run("fp16 + GradScaler", context, all, true, 1 << 16, SMALL);
      final Training.Result settling = run("from 2^30, loss x 1", context, all, true, 1 << 30, 1);
      require(plain.accuracy < 0.5, "unscaled fp16 fails");
      require(scaled.accuracy > 0.9, "scaled fp16 reaches 90 %");
      require(settling.accuracy > 0.9, "the run from 2^30 reaches 90 %");
      require(settling.skipped >= 5, "the run from 2^30 skips its first steps");
      require(settling.updates == STEPS, "the history has every update");
    }
  }

  private static Training.Result run(String name, Context context, Dataset all, boolean scaled, float initialScale,
      float magnitude) {
    final Training.Result result = Training.run(context, all, ADAMW, scaled, initialScale, magnitude, STEPS);
    System.out.printf("%-20s accuracy %5.1f %%, %2d steps skipped, scale %g, %.1f bytes of state a weight%n", name,
        100 * result.accuracy, result.skipped, result.scale, result.stateBytes);
    return result;
  }

  private static void require(boolean holds, String claim) {
    if (!holds) {
      System.err.println("digits: does not hold: " + claim);
      System.exit(1);
    }
  }
}
