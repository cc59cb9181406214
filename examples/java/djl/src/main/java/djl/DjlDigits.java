// SPDX-License-Identifier: Apache-2.0
package djl;

import ai.djl.Device;
import ai.djl.Model;
import ai.djl.engine.Engine;
import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDList;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.DataType;
import ai.djl.ndarray.types.Shape;
import ai.djl.nn.Activation;
import ai.djl.nn.Block;
import ai.djl.nn.Parameter;
import ai.djl.nn.SequentialBlock;
import ai.djl.nn.core.Linear;
import ai.djl.training.DefaultTrainingConfig;
import ai.djl.training.GradientCollector;
import ai.djl.training.Trainer;
import ai.djl.training.initializer.XavierInitializer;
import ai.djl.training.loss.Loss;
import data.Arms;
import data.Dataset;
import data.RandomSource;
import integrations.ScaledOptimizer;
import io.github.gradscaler.Context;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import java.nio.file.Path;

/** The digits network in DJL on the PyTorch engine, with a Trainer, in fp32 or fp16. */
public final class DjlDigits {
  private DjlDigits() {}

  private static Block network() {
    return new SequentialBlock().add(Linear.builder().setUnits(64).build()).add(Activation::relu)
        .add(Linear.builder().setUnits(64).build()).add(Activation::relu)
        .add(Linear.builder().setUnits(Dataset.CLASSES).build());
  }

  private static Arms.Result train(Context context, Dataset[] split, Arms arm, long seed) {
    final DataType type = arm.half() ? DataType.FLOAT16 : DataType.FLOAT32;
    Engine.getEngine("PyTorch").setRandomSeed((int) seed);
    try (Model model = Model.newInstance("digits", Device.cpu(), "PyTorch");
        ScaledOptimizer optimizer = ScaledOptimizer.builder(context, OptimizerOptions.adamW().lr(Arms.LEARNING_RATE),
            new ScalerOptions().enabled(arm.scaled()).growthInterval(50), 6).build()) {
      model.setBlock(network());
      model.setDataType(type);
      final Loss loss = Loss.softmaxCrossEntropyLoss();
      final DefaultTrainingConfig config = new DefaultTrainingConfig(loss).optDevices(new Device[] {Device.cpu()})
          .optOptimizer(optimizer).optInitializer(new XavierInitializer(), Parameter.Type.WEIGHT);
      try (Trainer trainer = model.newTrainer(config)) {
        trainer.initialize(new Shape(Arms.BATCH, Dataset.PIXELS));
        final RandomSource batches = new RandomSource(seed, 2);
        final float[] pixels = new float[Arms.BATCH * Dataset.PIXELS];
        final int[] labels = new int[Arms.BATCH];
        for (int step = 0; step < Arms.STEPS; step++) {
          split[0].batch(batches, Arms.BATCH, pixels, labels);
          // What the step allocates goes at its end.
          try (NDManager manager = trainer.getManager().newSubManager();
              GradientCollector collector = trainer.newGradientCollector()) {
            final NDArray scores = trainer.forward(images(manager, pixels, type)).singletonOrThrow();
            // Cast to fp32 by type promotion: in this engine toType() leaves the graph of autograd.
            final NDArray value =
                loss.evaluate(new NDList(manager.create(labels)), new NDList(scores.mul(manager.ones(new Shape(1)))));
            collector.backward(value.mul(Arms.LOSS_FACTOR * optimizer.scale()));
            trainer.step();
          }
        }
        try (NDManager manager = trainer.getManager().newSubManager()) {
          final float[] scores = trainer.evaluate(images(manager, split[1].pixels, type)).singletonOrThrow()
              .toType(DataType.FLOAT32, false).toFloatArray();
          return new Arms.Result(split[1].accuracy(scores), optimizer.skipped(), optimizer.scale());
        }
      }
    }
  }

  private static NDList images(NDManager manager, float[] pixels, DataType type) {
    return new NDList(
        manager.create(pixels, new Shape(pixels.length / Dataset.PIXELS, Dataset.PIXELS)).toType(type, false));
  }

  public static void main(String[] args) throws Exception {
    final Dataset all = Dataset.read(Path.of(args[0]));
    try (Context context = Context.cpu(1)) {
      Arms.compare("DJL, PyTorch engine",
          (arm, seed) -> train(context, all.split(Dataset.TRAIN_IMAGES, seed), arm, seed));
    }
  }
}
