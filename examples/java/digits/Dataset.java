// SPDX-License-Identifier: Apache-2.0
package digits;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** Images of 8 x 8 pixels, each a digit. Reading, splitting and sampling them. */
final class Dataset {
  static final int PIXELS = 64;
  static final int CLASSES = 10;

  final float[] pixels;
  final int[] labels;

  private Dataset(int count) {
    pixels = new float[count * PIXELS];
    labels = new int[count];
  }

  static Dataset read(Path file) throws IOException {
    final List<String> lines = Files.readAllLines(file);
    final Dataset all = new Dataset(lines.size());
    for (int i = 0; i < lines.size(); i++) {
      final String[] numbers = lines.get(i).split(",");
      if (numbers.length != PIXELS + 1) {
        throw new IOException(file + ":" + (i + 1) + ": not 64 pixels and a digit");
      }
      for (int j = 0; j < PIXELS; j++) {
        all.pixels[i * PIXELS + j] = Integer.parseInt(numbers[j]) / 16f;
      }
      all.labels[i] = Integer.parseInt(numbers[PIXELS]);
    }
    return all;
  }

  private void copy(int from, Dataset to, int at) {
    System.arraycopy(pixels, from * PIXELS, to.pixels, at * PIXELS, PIXELS);
    to.labels[at] = labels[from];
  }

  /** Images to learn from, and images to test with. */
  Dataset[] split(int trainCount, long seed) {
    final RandomSource random = new RandomSource(seed, 0);
    final int[] order = new int[labels.length];
    for (int i = 0; i < order.length; i++) {
      final int j = random.below(i + 1);
      order[i] = order[j];
      order[j] = i;
    }
    final Dataset[] parts = {new Dataset(trainCount), new Dataset(order.length - trainCount)};
    for (int i = 0; i < order.length; i++) {
      copy(order[i], i < trainCount ? parts[0] : parts[1], i < trainCount ? i : i - trainCount);
    }
    return parts;
  }

  void batch(RandomSource random, int rows, float[] toPixels, int[] toLabels) {
    for (int i = 0; i < rows; i++) {
      final int from = random.below(labels.length);
      System.arraycopy(pixels, from * PIXELS, toPixels, i * PIXELS, PIXELS);
      toLabels[i] = labels[from];
    }
  }
}
