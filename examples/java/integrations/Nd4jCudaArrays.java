// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.DType;
import io.github.gradscaler.GradScaler;
import io.github.gradscaler.Optimizer;
import io.github.gradscaler.Tensor;
import org.nd4j.jita.allocator.impl.AtomicAllocator;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;
import org.nd4j.linalg.jcublas.context.CudaContext;

/** Memory of ND4J's arrays with the CUDA backend. */
public final class Nd4jCudaArrays {
  private Nd4jCudaArrays() {}

  /** All elements of an array of floats that is no view. Keep the array reachable as long as the tensor is used. */
  public static Tensor tensor(INDArray array) {
    final AtomicAllocator allocator = AtomicAllocator.getInstance();
    final CudaContext context = allocator.getDeviceContext();
    return Tensor.at(allocator.getPointer(array, context).address(), array.length(), DType.FP32);
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
