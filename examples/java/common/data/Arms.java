// SPDX-License-Identifier: Apache-2.0
package data;

import java.util.Locale;

/**
 * The three ways to train that the examples compare, each from five seeds, on a loss so small that fp16 loses most of
 * its gradients: the table that they print, and what must hold of it.
 */
public enum Arms {
  FP32("fp32"),
  FP16("fp16, no scaling"),
  FP16_SCALED("fp16 + GradScaler");

  public static final int SEEDS = 5;
  public static final int STEPS = 200;
  public static final int BATCH = 64;
  public static final float LOSS_FACTOR = 1e-5f;
  public static final double LEARNING_RATE = 2e-3;

  private final String label;

  Arms(String label) {
    this.label = label;
  }

  /** Whether weights, activations and gradients are stored in fp16. */
  public boolean half() {
    return this != FP32;
  }

  public boolean scaled() {
    return this == FP16_SCALED;
  }

  /** What came out of one training. */
  public static final class Result {
    final double accuracy;
    final long skipped;
    final double scale;

    public Result(double accuracy, long skipped, double scale) {
      this.accuracy = accuracy;
      this.skipped = skipped;
      this.scale = scale;
    }
  }

  /** One training from a seed. */
  public interface Training {
    Result run(Arms arm, long seed) throws Exception;
  }

  /** Trains, prints the table, and ends the program with status 1 if scaling does not do what it should. */
  public static void compare(String title, Training training) throws Exception {
    compare(title, SEEDS, training);
  }

  /** The same with fewer seeds. */
  public static void compare(String title, int seeds, Training training) throws Exception {
    System.out.printf(Locale.ROOT, "%s: a 64-64-64-10 network on handwritten digits, %d steps of AdamW, %d seed%s.%n%n"
        + "%-7s  %-17s  %8s  %12s  %8s  %s%n", title, STEPS, seeds, seeds == 1 ? "" : "s", "loss x", "arm",
        "accuracy", "over seeds", "skipped", "final scale");
    final double[] means = new double[values().length];
    for (Arms arm : values()) {
      means[arm.ordinal()] = row(arm, seeds, training);
    }
    require(means[FP32.ordinal()] > 0.9, "fp32 reaches 90 %");
    require(means[FP16.ordinal()] < 0.6, "fp16 without scaling fails");
    require(means[FP16_SCALED.ordinal()] > means[FP32.ordinal()] - 0.01, "scaled fp16 comes within a point of fp32");
  }

  private static double row(Arms arm, int seeds, Training training) throws Exception {
    double sum = 0;
    double least = 1;
    double most = 0;
    long skipped = 0;
    double scale = 0;
    for (long seed = 0; seed < seeds; seed++) {
      final Result result = training.run(arm, seed);
      sum += result.accuracy;
      least = Math.min(least, result.accuracy);
      most = Math.max(most, result.accuracy);
      skipped += result.skipped;
      scale = result.scale;
    }
    final double mean = sum / seeds;
    System.out.printf(Locale.ROOT, "%-7s  %-17s  %6.1f %%  %5.1f..%-5.1f  %8s  %s%n",
        arm.ordinal() == 0 ? "1e-05" : "", arm.label, 100 * mean, 100 * least, 100 * most,
        arm.scaled() ? String.format(Locale.ROOT, "%.1f", (double) skipped / seeds) : "-",
        arm.scaled() ? String.format(Locale.ROOT, "2^%.0f", Math.log(scale) / Math.log(2)) : "-");
    return mean;
  }

  private static void require(boolean holds, String claim) {
    if (!holds) {
      System.err.println("does not hold: " + claim);
      System.exit(1);
    }
  }
}
