// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.DType;
import io.github.gradscaler.Tensor;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;

/** Memory of ND4J's arrays with the CPU backend. */
public final class Nd4jArrays {
  private Nd4jArrays() {}

  /** All elements. Keep the array reachable as long as the tensor is used. */
  public static Tensor tensor(INDArray array) {
    if (array.isView() || array.dataType() != DataType.FLOAT) {
      throw new IllegalArgumentException("the array is a view, or not of floats");
    }
    return Tensor.at(array.data().pointer().address(), array.length(), DType.FP32);
  }
}
