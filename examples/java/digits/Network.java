// SPDX-License-Identifier: Apache-2.0
package digits;

import data.Dataset;
import data.RandomSource;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.Ops;
import io.github.gradscaler.Tensor;
import java.nio.FloatBuffer;

/**
 * A 64-64-64-10 network with ReLU whose weights, activations and gradients are stored in fp16. Products are accumulated
 * in fp32 and rounded once, as tensor cores do. The library converts between the two; there is no fp16 type here.
 */
final class Network {
  private static final int[] WIDTHS = {Dataset.PIXELS, 64, 64, Dataset.CLASSES};
  private static final int LAYERS = 3;

  /** Matrix (inputs x outputs) and bias of layer after layer. */
  final Tensor[] weights = new Tensor[2 * LAYERS];
  final Tensor[] grads = new Tensor[2 * LAYERS];
  private final Tensor[] activations = new Tensor[LAYERS + 1];
  private final Tensor[] deltas = new Tensor[LAYERS];
  private final Context context;
  private final int rows;
  private final Tensor room;

  Network(Context context, int rows) {
    this.context = context;
    this.rows = rows;
    room = Tensor.allocate(DType.FP32, Math.max(rows, 64) * 64);
    for (int i = 0; i < weights.length; i++) {
      final String name = "layer" + i / 2 + (i % 2 == 0 ? ".weight" : ".bias");
      weights[i] = Tensor.allocate(DType.FP16, size(i)).named(name);
      grads[i] = Tensor.allocate(DType.FP16, size(i)).named(name);
    }
    for (int i = 0; i <= LAYERS; i++) {
      activations[i] = Tensor.allocate(DType.FP16, rows * WIDTHS[i]);
    }
    for (int i = 0; i < LAYERS; i++) {
      deltas[i] = Tensor.allocate(DType.FP16, rows * WIDTHS[i + 1]);
    }
  }

  private static int size(int tensor) {
    final int layer = tensor / 2;
    return tensor % 2 == 0 ? WIDTHS[layer] * WIDTHS[layer + 1] : WIDTHS[layer + 1];
  }

  /** fp32 values for the weights, by He's initialisation. */
  Tensor[] masterWeights(long seed) {
    final RandomSource random = new RandomSource(seed, 1);
    final Tensor[] master = new Tensor[weights.length];
    for (int i = 0; i < master.length; i++) {
      master[i] = Tensor.allocate(DType.FP32, size(i)).named(weights[i].name());
      final FloatBuffer values = master[i].floats();
      final float spread = (float) Math.sqrt(2.0 / WIDTHS[i / 2]);
      for (int j = 0; i % 2 == 0 && j < size(i); j++) {
        values.put(j, spread * random.normal());
      }
    }
    return master;
  }

  private float[] unpack(Tensor stored) {
    final int count = (int) stored.count();
    final float[] values = new float[count];
    Ops.cast(context, stored, room.slice(0, count));
    room.floats().get(values);
    return values;
  }

  private void pack(float[] values, Tensor stored) {
    room.floats().put(values);
    Ops.cast(context, room.slice(0, values.length), stored);
  }

  void forward(float[] pixels) {
    pack(pixels, activations[0]);
    for (int layer = 0; layer < LAYERS; layer++) {
      final int out = WIDTHS[layer + 1];
      final float[] z = product(unpack(activations[layer]), unpack(weights[2 * layer]), rows, WIDTHS[layer], out);
      final float[] bias = unpack(weights[2 * layer + 1]);
      for (int i = 0; i < z.length; i++) {
        z[i] += bias[i % out];
        if (layer < LAYERS - 1 && z[i] < 0) {
          z[i] = 0;
        }
      }
      pack(z, activations[layer + 1]);
    }
  }

  /** Gradient of the mean cross-entropy with respect to the logits, times the magnitude. */
  void lossGradient(int[] labels, float magnitude, Tensor gradient) {
    final int classes = Dataset.CLASSES;
    final float[] g = unpack(activations[LAYERS]);
    for (int i = 0; i < rows; i++) {
      float largest = g[i * classes];
      float sum = 0;
      for (int j = 1; j < classes; j++) {
        largest = Math.max(largest, g[i * classes + j]);
      }
      for (int j = 0; j < classes; j++) {
        g[i * classes + j] = (float) Math.exp(g[i * classes + j] - largest);
        sum += g[i * classes + j];
      }
      for (int j = 0; j < classes; j++) {
        g[i * classes + j] = (g[i * classes + j] / sum - (j == labels[i] ? 1 : 0)) / rows * magnitude;
      }
    }
    gradient.floats().put(g);
  }

  /** Where the caller stores the gradient that the backward pass starts from. */
  Tensor firstDelta() {
    return deltas[LAYERS - 1];
  }

  void backward() {
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
      final int in = WIDTHS[layer];
      final int out = WIDTHS[layer + 1];
      final float[] input = unpack(activations[layer]);
      final float[] delta = unpack(deltas[layer]);
      pack(product(transpose(input, rows, in), delta, in, rows, out), grads[2 * layer]);
      final float[] bias = new float[out];
      for (int i = 0; i < delta.length; i++) {
        bias[i % out] += delta[i];
      }
      pack(bias, grads[2 * layer + 1]);
      if (layer > 0) {
        final float[] below = product(delta, transpose(unpack(weights[2 * layer]), in, out), rows, out, in);
        for (int i = 0; i < below.length; i++) {
          below[i] = input[i] > 0 ? below[i] : 0;
        }
        pack(below, deltas[layer - 1]);
      }
    }
  }

  double accuracy(Dataset test) {
    final float[] batch = new float[rows * Dataset.PIXELS];
    int right = 0;
    for (int first = 0; first < test.labels.length; first += rows) {
      final int count = Math.min(rows, test.labels.length - first);
      System.arraycopy(test.pixels, first * Dataset.PIXELS, batch, 0, count * Dataset.PIXELS);
      forward(batch);
      final float[] logits = unpack(activations[LAYERS]);
      for (int i = 0; i < count; i++) {
        int best = 0;
        for (int j = 1; j < Dataset.CLASSES; j++) {
          if (logits[i * Dataset.CLASSES + j] > logits[i * Dataset.CLASSES + best]) {
            best = j;
          }
        }
        right += best == test.labels[first + i] ? 1 : 0;
      }
    }
    return (double) right / test.labels.length;
  }

  private static float[] product(float[] a, float[] b, int n, int k, int m) {
    final float[] out = new float[n * m];
    for (int i = 0; i < n; i++) {
      for (int p = 0; p < k; p++) {
        final float factor = a[i * k + p];
        for (int j = 0; j < m; j++) {
          out[i * m + j] += factor * b[p * m + j];
        }
      }
    }
    return out;
  }

  private static float[] transpose(float[] a, int rows, int columns) {
    final float[] out = new float[a.length];
    for (int i = 0; i < rows; i++) {
      for (int j = 0; j < columns; j++) {
        out[j * rows + i] = a[i * columns + j];
      }
    }
    return out;
  }
}
