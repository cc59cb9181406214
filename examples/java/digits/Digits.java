// SPDX-License-Identifier: Apache-2.0
package digits;

import data.Dataset;
import io.github.gradscaler.Context;
import java.io.IOException;
import java.nio.file.Path;

/**
 * Trains a small network on handwritten digits in fp16, with a loss so small that most of its gradients are lost
 * without loss scaling: once without, once with a GradScaler. A third run has a first scale that is far too large.
 * Fails if scaling does not do what it should. How the library is used is in Training; the twin in C is
 * examples/c/digits.
 *
 * <pre>java -cp classes:gradscaler.jar:gradscaler-natives.jar digits.Digits digits.csv</pre>
 */
public final class Digits {
  private static final float SMALL = 1e-5f;
  private static final int STEPS = 200;

  private Digits() {}

  public static void main(String[] args) throws IOException {
    if (args.length != 1) {
      System.err.println("usage: Digits digits.csv");
      System.exit(2);
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
    final Training.Result result = Training.run(context, all, scaled, initialScale, magnitude, STEPS);
    System.out.printf("%-20s accuracy %5.1f %%, %2d steps skipped, scale %g%n", name, 100 * result.accuracy,
        result.skipped, result.scale);
    return result;
  }

  private static void require(boolean holds, String claim) {
    if (!holds) {
      System.err.println("digits: does not hold: " + claim);
      System.exit(1);
    }
  }
}
