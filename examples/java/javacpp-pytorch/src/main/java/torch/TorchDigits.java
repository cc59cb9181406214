// SPDX-License-Identifier: Apache-2.0
package torch;

import static org.bytedeco.pytorch.global.torch.cross_entropy;
import static org.bytedeco.pytorch.global.torch.from_blob;
import static org.bytedeco.pytorch.global.torch.matmul;
import static org.bytedeco.pytorch.global.torch.relu;
import static org.bytedeco.pytorch.global.torch.zeros_like;

import data.Arms;
import data.Dataset;
import data.RandomSource;
import integrations.JavaCppPyTorch;
import io.github.gradscaler.Context;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import io.github.gradscaler.TensorList;
import java.nio.file.Path;
import java.util.Arrays;
import org.bytedeco.javacpp.FloatPointer;
import org.bytedeco.javacpp.LongPointer;
import org.bytedeco.javacpp.PointerScope;
import org.bytedeco.pytorch.Scalar;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.global.torch;
import org.bytedeco.pytorch.global.torch.ScalarType;

/** The digits network with autograd of javacpp-pytorch, in fp32 or fp16. */
public final class TorchDigits {
  private static final int[] WIDTHS = {Dataset.PIXELS, 64, 64, Dataset.CLASSES};

  private final ScalarType type;
  /** A matrix (inputs x outputs) and a bias a layer. */
  private final Tensor[] master = new Tensor[6];
  private final Tensor[] weights = new Tensor[6];
  /** Where autograd accumulates, so that their addresses stay. */
  private final Tensor[] grads = new Tensor[6];

  private TorchDigits(ScalarType type, long seed) {
    this.type = type;
    final RandomSource random = new RandomSource(seed, 1);
    for (int i = 0; i < master.length; i++) {
      final int in = WIDTHS[i / 2];
      final int out = WIDTHS[i / 2 + 1];
      final float[] values = new float[i % 2 == 0 ? in * out : out];
      for (int j = 0; i % 2 == 0 && j < values.length; j++) {
        values[j] = (float) Math.sqrt(2.0 / in) * random.normal();
      }
      final Tensor flat = floats(values);
      master[i] = i % 2 == 0 ? flat.view(in, out) : flat;
      weights[i] = type == ScalarType.Float ? master[i] : master[i].to(type);
      weights[i].set_requires_grad(true);
      grads[i] = zeros_like(weights[i].detach());
      weights[i].mutable_grad().put(grads[i]);
    }
  }

  private static Tensor floats(float[] values) {
    return from_blob(new FloatPointer(values), values.length).clone();
  }

  private Tensor forward(float[] pixels) {
    Tensor x = floats(pixels).view(-1, Dataset.PIXELS).to(type);
    for (int layer = 0; layer < 3; layer++) {
      x = matmul(x, weights[2 * layer]).add(weights[2 * layer + 1]);
      x = layer < 2 ? relu(x) : x;
    }
    return x.to(ScalarType.Float);
  }

  private static io.github.gradscaler.Tensor[] tensors(Tensor[] sources) {
    return Arrays.stream(sources).map(Tensor::detach).map(JavaCppPyTorch::tensor)
        .toArray(io.github.gradscaler.Tensor[]::new);
  }

  private static Arms.Result train(Context context, Dataset[] split, Arms arm, long seed) {
    final TorchDigits network = new TorchDigits(arm.half() ? ScalarType.Half : ScalarType.Float, seed);
    final ScalerOptions policy = new ScalerOptions().enabled(arm.scaled()).growthInterval(50);
    try (TensorList params = new TensorList(context, tensors(network.master));
        TensorList grads = new TensorList(context, tensors(network.grads));
        // Written in the same pass that updates the master weights: the weights of the next forward pass.
        TensorList copy = arm.half() ? new TensorList(context, tensors(network.weights)) : null;
        Optimizer optimizer =
            new Optimizer(context, OptimizerOptions.adamW().lr(Arms.LEARNING_RATE), params, grads, copy);
        GradScaler scaler = new GradScaler(context, policy)) {
      final RandomSource batches = new RandomSource(seed, 2);
      final float[] pixels = new float[Arms.BATCH * Dataset.PIXELS];
      final int[] labels = new int[Arms.BATCH];
      for (int step = 0; step < Arms.STEPS; step++) {
        // What the step allocates on the native side goes at its end.
        try (PointerScope scope = new PointerScope()) {
          split[0].batch(batches, Arms.BATCH, pixels, labels);
          final LongPointer wanted = new LongPointer(Arrays.stream(labels).asLongStream().toArray());
          final Tensor loss = cross_entropy(network.forward(pixels),
              from_blob(wanted, new long[] {Arms.BATCH}, new org.bytedeco.pytorch.TensorOptions(ScalarType.Long)));
          loss.mul(new Scalar(Arms.LOSS_FACTOR * scaler.getScale())).backward();
          if (network.weights[0].grad().data_ptr().address() != network.grads[0].data_ptr().address()) {
            throw new IllegalStateException("autograd has made gradients of its own");
          }
          scaler.step(optimizer);
          scaler.update();
          for (Tensor gradient : network.grads) {
            gradient.zero_();
          }
        }
      }
      final float[] scores = new float[split[1].count() * Dataset.CLASSES];
      new FloatPointer(network.forward(split[1].pixels).detach().data_ptr()).get(scores);
      return new Arms.Result(split[1].accuracy(scores), optimizer.stepsSkipped(), scaler.getScale());
    }
  }

  public static void main(String[] args) throws Exception {
    final Dataset all = Dataset.read(Path.of(args[0]));
    torch.set_num_threads(1);
    try (Context context = Context.cpu(1)) {
      Arms.compare("javacpp-pytorch", (arm, seed) -> train(context, all.split(Dataset.TRAIN_IMAGES, seed), arm, seed));
    }
  }
}
