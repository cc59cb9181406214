// SPDX-License-Identifier: Apache-2.0
package data;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.zip.GZIPInputStream;

/** Images of 8 x 8 pixels, each a digit. Reading, splitting and sampling them. */
public final class Dataset {
  public static final int PIXELS = 64;
  public static final int CLASSES = 10;
  public static final int TRAIN_IMAGES = 1437;

  public final float[] pixels;
  public final int[] labels;

  private Dataset(int count) {
    pixels = new float[count * PIXELS];
    labels = new int[count];
  }

  /** A file of lines with 64 pixels from 0 to 16 and a digit; packed if its name ends in .gz. */
  public static Dataset read(Path file) throws IOException {
    final List<String> lines;
    try (InputStream raw = Files.newInputStream(file);
        InputStream in = file.toString().endsWith(".gz") ? new GZIPInputStream(raw) : raw;
        BufferedReader reader = new BufferedReader(new InputStreamReader(in, StandardCharsets.US_ASCII))) {
      lines = reader.lines().collect(Collectors.toList());
    }
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

  public int count() {
    return labels.length;
  }

  private void copy(int from, Dataset to, int at) {
    System.arraycopy(pixels, from * PIXELS, to.pixels, at * PIXELS, PIXELS);
    to.labels[at] = labels[from];
  }

  /** Images to learn from, and images to test with. */
  public Dataset[] split(int trainCount, long seed) {
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

  /** Fills both arrays with images drawn at random. */
  public void batch(RandomSource random, int rows, float[] toPixels, int[] toLabels) {
    for (int i = 0; i < rows; i++) {
      final int from = random.below(labels.length);
      System.arraycopy(pixels, from * PIXELS, toPixels, i * PIXELS, PIXELS);
      toLabels[i] = labels[from];
    }
  }

  /** The share of images whose largest of ten numbers, image after image in scores, is that of its digit. */
  public double accuracy(float[] scores) {
    int right = 0;
    for (int i = 0; i < labels.length; i++) {
      int best = 0;
      for (int j = 1; j < CLASSES; j++) {
        best = scores[i * CLASSES + j] > scores[i * CLASSES + best] ? j : best;
      }
      right += best == labels[i] ? 1 : 0;
    }
    return (double) right / labels.length;
  }
}
