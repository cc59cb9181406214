// SPDX-License-Identifier: Apache-2.0
package integrations;

import static org.junit.jupiter.api.Assertions.*;

import ai.djl.Device;
import ai.djl.Model;
import ai.djl.engine.Engine;
import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDList;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.DataType;
import ai.djl.ndarray.types.Shape;
import ai.djl.nn.core.Linear;
import ai.djl.training.DefaultTrainingConfig;
import ai.djl.training.GradientCollector;
import ai.djl.training.Trainer;
import ai.djl.training.loss.Loss;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.Ops;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.ScalerOptions;
import io.github.gradscaler.Tensor;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** DJL's memory is used in place, what would be misread is refused, and the optimizer skips as a whole. */
class DjlArraysTest {
  private static void refused(Class<? extends Exception> type, String part, Executable call) {
    final Exception e = assertThrows(type, call);
    assertTrue(e.getMessage().contains(part), e.getMessage());
  }

  private static void refused(String part, NDArray array) {
    refused(IllegalArgumentException.class, part, () -> DjlArrays.tensor(array));
  }

  private static ScaledOptimizer forOneParameter(Context context) {
    return ScaledOptimizer.builder(context, OptimizerOptions.sgd(), new ScalerOptions(), 1).build();
  }

  @Test
  void memoryIsUsedInPlace() {
    final DataType[] types = {DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64};
    final DType[] dtypes = {DType.FP16, DType.FP32, DType.FP64};
    try (NDManager manager = NDManager.newBaseManager("PyTorch"); Context context = Context.cpu(1)) {
      for (int i = 0; i < types.length; i++) {
        final NDArray array = manager.arange(6f).reshape(2, 3).toType(types[i], true);
        final Tensor tensor = DjlArrays.tensor(array);
        assertEquals(dtypes[i], tensor.dtype());
        assertEquals(6, tensor.count());
        assertEquals(tensor.address(), DjlArrays.tensor(array).address());
        Ops.scale(context, new Tensor[] {tensor}, new Tensor[] {tensor},
            io.github.gradscaler.DeviceScalar.of(Tensor.allocate(DType.FP32, 1).floats().put(0, 2f)));
        assertArrayEquals(new float[] {0, 2, 4, 6, 8, 10}, array.toType(DataType.FLOAT32, true).toFloatArray());
      }
    }
  }

  @Test
  void otherArraysAreRefused() {
    try (NDManager manager = NDManager.newBaseManager("PyTorch")) {
      refused("of type int32", manager.arange(6).toType(DataType.INT32, true));
      refused("of type int64", manager.arange(6).toType(DataType.INT64, true));
      refused("not contiguous", manager.arange(6f).reshape(2, 3).transpose());
      refused("not contiguous", manager.arange(6f).reshape(2, 3).get(":,0:2"));
    }
  }

  /** An overflow in one parameter's gradient: no parameter moves, the scale is halved, and the next step is as ever. */
  @ParameterizedTest
  @EnumSource(names = {"FLOAT32", "FLOAT16"})
  void aStepIsSkippedAsAWhole(DataType type) {
    try (Context context = Context.cpu(1);
        ScaledOptimizer optimizer = ScaledOptimizer.builder(context, OptimizerOptions.sgd().lr(1),
            new ScalerOptions().initScale(8), 2).build();
        Model model = Model.newInstance("one", Device.cpu(), "PyTorch")) {
      model.setBlock(Linear.builder().setUnits(2).build());
      model.setDataType(type);
      try (Trainer trainer = model.newTrainer(new DefaultTrainingConfig(Loss.l2Loss())
          .optDevices(new Device[] {Device.cpu()}).optOptimizer(optimizer))) {
        trainer.initialize(new Shape(1, 3));
        final NDArray weight = model.getBlock().getParameters().get(0).getValue().getArray();
        final NDArray bias = model.getBlock().getParameters().get(1).getValue().getArray();
        final float[] before = floats(weight);
        backward(trainer, type, optimizer.scale() * Float.POSITIVE_INFINITY);
        assertArrayEquals(before, floats(weight));
        assertArrayEquals(new float[2], floats(bias));
        assertEquals(4f, optimizer.scale());
        assertEquals(1, optimizer.skipped());

        // The gradient of the sum of x W + b: x for each row of W, 1 for b.
        backward(trainer, type, optimizer.scale());
        final float[] after = floats(weight);
        for (int i = 0; i < after.length; i++) {
          assertEquals(before[i] - (i % 3 + 1), after[i], type == DataType.FLOAT32 ? 1e-5f : 1 / 512f);
        }
        assertArrayEquals(new float[] {-1, -1}, floats(bias));
      }
    }
  }

  private static float[] floats(NDArray array) {
    return array.toType(DataType.FLOAT32, true).toFloatArray();
  }

  @Test
  void aStepBeforeTheFirstBackwardPassIsRefused() {
    try (Context context = Context.cpu(1); ScaledOptimizer optimizer = forOneParameter(context);
        NDManager manager = NDManager.newBaseManager("PyTorch")) {
      final NDArray a = manager.ones(new Shape(2));
      a.setRequiresGradient(true);
      refused(IllegalStateException.class, "no backward pass", () -> optimizer.update("a", a, a));
    }
  }

  private static void backward(Trainer trainer, DataType type, float factor) {
    try (NDManager manager = trainer.getManager().newSubManager();
        GradientCollector collector = trainer.newGradientCollector()) {
      final NDArray x = manager.create(new float[] {1, 2, 3}, new Shape(1, 3)).toType(type, false);
      collector.backward(trainer.forward(new NDList(x)).singletonOrThrow().sum().mul(factor));
      trainer.step();
    }
  }

  @Test
  void aWrongNumberOfParametersIsRefused() {
    try (Context context = Context.cpu(1); ScaledOptimizer optimizer = forOneParameter(context);
        NDManager manager = NDManager.newBaseManager("PyTorch")) {
      final NDArray a = manager.ones(new Shape(2));
      final NDArray b = manager.ones(new Shape(2));
      a.setRequiresGradient(true);
      try (GradientCollector collector = Engine.getEngine("PyTorch").newGradientCollector()) {
        collector.backward(a.sum());
      }
      optimizer.update("a", a, a);
      refused(IllegalStateException.class, "b is on a second device, or a parameter more than the 1",
          () -> optimizer.update("b", b, b));
    }
  }
}
