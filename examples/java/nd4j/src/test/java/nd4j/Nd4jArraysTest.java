// SPDX-License-Identifier: Apache-2.0
package nd4j;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import integrations.Nd4jArrays;
import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.Ops;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.OptimizerOptions;
import io.github.gradscaler.Tensor;
import io.github.gradscaler.TensorList;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.memory.MemoryWorkspace;
import org.nd4j.linalg.api.memory.conf.WorkspaceConfiguration;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;
import org.nd4j.linalg.indexing.NDArrayIndex;

/** What Nd4jArrays takes is what gradscaler then reads and writes; what would be paired wrongly is refused. */
class Nd4jArraysTest {
  private static void refused(String part, INDArray array) {
    final IllegalArgumentException e =
        assertThrows(IllegalArgumentException.class, () -> Nd4jArrays.tensor(array));
    assertTrue(e.getMessage().contains(part), e.getMessage());
  }

  private static INDArray matrix() {
    return Nd4j.create(new float[] {1, 2, 3, 4, 5, 6}, new long[] {2, 3}, 'c');
  }

  /** The next cycle of a workspace puts other arrays into the same memory. */
  @Test
  void arraysOfWorkspacesAreRefused() {
    final WorkspaceConfiguration small = WorkspaceConfiguration.builder().initialSize(1 << 16).build();
    final INDArray kept;
    try (MemoryWorkspace workspace = Nd4j.getWorkspaceManager().getAndActivateWorkspace(small, "gradients")) {
      final INDArray made = matrix().add(0);
      refused("workspace", made);
      kept = made.detach();
    }
    assertEquals(6, Nd4jArrays.tensor(kept).count());
  }

  /** Element by element, weight minus gradient, for gradients in every order that ND4J makes. */
  @Test
  void aStepPairsEveryGradientWithItsWeight() {
    final INDArray a = Nd4j.create(new float[] {1, 2, 3, 4, 5, 6, 7, 8}, new long[] {4, 2}, 'c');
    final INDArray b = Nd4j.create(new float[] {1, -1, 2, 0, 1, 3, 1, 1, -2, 5, 1, 2}, new long[] {4, 3}, 'c');
    final INDArray gradient = a.transpose().mmul(b);
    for (INDArray made : new INDArray[] {gradient, a.transpose().mmul(b, 'f'), b.transpose().mmul(a).transpose(),
        b.transpose().mmul(a).add(0).transpose().add(0)}) {
      assertEquals(gradient, made);
      final INDArray weights = Nd4j.zeros(DataType.FLOAT, 2, 3);
      final INDArray ordered = Nd4jArrays.inOrder(made);
      try (Context context = Context.cpu(1);
          TensorList params = new TensorList(context, Nd4jArrays.tensor(weights));
          TensorList grads = new TensorList(context, Nd4jArrays.tensor(ordered));
          Optimizer optimizer = new Optimizer(context, OptimizerOptions.sgd().lr(1), params, grads)) {
        optimizer.step();
      }
      assertEquals(gradient.neg(), weights);
    }
  }

  @Test
  void fOrderIsRefused() {
    refused("order 'f'", matrix().transpose().add(1));
    refused("order 'f'", Nd4j.create(DataType.HALF, new long[] {2, 3}, 'f'));
    refused("order 'f'", matrix().mmul(matrix().transpose(), 'f'));
    refused("inOrder", matrix().transpose());
  }

  @Test
  void gapsAreRefused() {
    refused("strides [3, 2]", matrix().get(NDArrayIndex.all(), NDArrayIndex.interval(0, 2, 3)));
    refused("strides", matrix().get(NDArrayIndex.all(), NDArrayIndex.interval(0, 2)));
    refused("strides", matrix().getColumn(1));
  }

  @Test
  void emptyArraysAreRefused() {
    refused("array is empty", Nd4j.empty(DataType.FLOAT));
    refused("array is empty", Nd4j.create(DataType.FLOAT, 0, 3));
  }

  /** The list is all that refers to the array, whose memory ND4J frees once its buffer is collected. */
  @Test
  void aListKeepsTheArrayAlive() throws InterruptedException {
    try (Context context = Context.cpu(1)) {
      final List<WeakReference<Object>> buffers = new ArrayList<>();
      final TensorList list = ones(context, buffers);
      for (int i = 0; i < 10; i++) {
        System.gc();
        Thread.sleep(10);
      }
      assertNotNull(buffers.get(0).get());
      assertEquals(1.0, list.diagnose().get(0).amax());
      list.close();
    }
  }

  private static TensorList ones(Context context, List<WeakReference<Object>> buffers) {
    final INDArray array = Nd4j.ones(DataType.FLOAT, 1000);
    buffers.add(new WeakReference<>(array.data()));
    return new TensorList(context, Nd4jArrays.tensor(array));
  }

  @Test
  void otherTypesAreRefused() {
    for (DataType type : new DataType[] {DataType.INT, DataType.LONG, DataType.SHORT, DataType.BOOL, DataType.UINT16}) {
      refused("of type " + type, Nd4j.create(type, 4));
    }
  }

  @Test
  void everyTypeIsSeenAsItIs() {
    final DataType[] types = {DataType.HALF, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE};
    final DType[] dtypes = {DType.FP16, DType.BF16, DType.FP32, DType.FP64};
    try (Context context = Context.cpu(1)) {
      for (int i = 0; i < types.length; i++) {
        final INDArray array = matrix().castTo(types[i]);
        final Tensor tensor = Nd4jArrays.tensor(array);
        assertEquals(dtypes[i], tensor.dtype());
        final Tensor copy = Tensor.allocate(DType.FP64, 6);
        Ops.cast(context, tensor, copy);
        final double[] values = new double[6];
        copy.doubles().get(values);
        assertArrayEquals(new double[] {1, 2, 3, 4, 5, 6}, values);
      }
    }
  }

  /** A view in order is memory of its own offset, and is written in place. */
  @Test
  void viewsInOrderKeepTheirOffset() {
    final INDArray all = Nd4j.create(new float[] {1, 2, 3, 4, 5, 6, 7, 8}, new long[] {4, 2}, 'c');
    final INDArray rows = all.get(NDArrayIndex.interval(1, 3), NDArrayIndex.all());
    assertTrue(rows.isView());
    try (Context context = Context.cpu(1)) {
      final Tensor[] middle = {Nd4jArrays.tensor(rows)};
      Ops.axpby(context, 0, middle, 0, middle);
    }
    assertArrayEquals(new float[] {1, 2, 0, 0, 0, 0, 7, 8}, all.data().asFloat());
  }

  @Test
  void inOrderCopiesOnlyWhatIsNot() {
    final INDArray array = matrix();
    assertSame(array, Nd4jArrays.inOrder(array));
    assertNotSame(array, Nd4jArrays.inOrder(array.transpose()));
    assertEquals(array.transpose(), Nd4jArrays.inOrder(array.transpose()));
  }
}
