// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.DType;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.Tensor;
import org.nd4j.jita.allocator.impl.AtomicAllocator;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.api.shape.Shape;
import org.nd4j.linalg.factory.Nd4j;
import org.nd4j.linalg.jcublas.context.CudaContext;

/** Memory of ND4J's arrays with the CUDA backend. */
public final class Nd4jCudaArrays {
  private Nd4jCudaArrays() {}

  /** All elements of an array in 'c' order that is no view. The tensor keeps the array alive. */
  public static Tensor tensor(INDArray array) {
    if (array.isEmpty()) {
      throw new IllegalArgumentException("array is empty, and has no memory: leave it out of the list");
    }
    if (array.isAttached()) {
      throw new IllegalArgumentException(
          "array is in a workspace, whose memory other arrays get next: pass array.detach(), and write to that");
    }
    if (array.isView() || array.ordering() != 'c' || !Shape.hasDefaultStridesForShape(array)) {
      throw new IllegalArgumentException("array is a view or not in 'c' order: pass array.dup('c')");
    }
    final AtomicAllocator allocator = AtomicAllocator.getInstance();
    final CudaContext context = allocator.getDeviceContext();
    return Tensor.at(allocator.getPointer(array, context).address(), array.length(), dtype(array.dataType()), array);
  }

  private static DType dtype(DataType type) {
    switch (type) {
      case HALF:
        return DType.FP16;
      case BFLOAT16:
        return DType.BF16;
      case FLOAT:
        return DType.FP32;
      case DOUBLE:
        return DType.FP64;
      default:
        throw new IllegalArgumentException(
            "array is of type " + type + ", not of HALF, BFLOAT16, FLOAT or DOUBLE");
    }
  }

  /** One step between ND4J's work. ND4J has streams of its own, so each side waits for the other. */
  public static void step(GradScaler scaler, Optimizer optimizer, INDArray... written) {
    Nd4j.getExecutioner().commit();
    scaler.stepAndUpdate(optimizer);
    scaler.getScale();
    for (INDArray array : written) {
      AtomicAllocator.getInstance().tickDeviceWrite(array);
    }
  }
}
