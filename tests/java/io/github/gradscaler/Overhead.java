// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** What a step and an update cost on a list of one element, in nanoseconds: the least of many rounds. */
final class Overhead {
  private static final int ROUNDS = 300;
  private static final int CALLS = 1000;

  private Overhead() {}

  public static void main(String[] args) {
    double least = Double.MAX_VALUE;
    try (World w = new World(1)) {
      for (int round = 0; round < ROUNDS; round++) {
        final long start = System.nanoTime();
        for (int i = 0; i < CALLS; i++) {
          w.scaler.step(w.optimizer);
          w.scaler.update();
        }
        least = Math.min(least, (double) (System.nanoTime() - start) / CALLS);
      }
    }
    System.out.println(Math.round(least));
  }
}
