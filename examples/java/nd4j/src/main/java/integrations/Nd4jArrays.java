// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.DType;
import io.github.gradscaler.Tensor;
import java.util.Arrays;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;

/** Memory of ND4J's arrays with the CPU backend. */
public final class Nd4jArrays {
  private Nd4jArrays() {}

  /**
   * All elements, in place. The array must lie in 'c' order without gaps: lists are paired by memory, and a gradient in
   * 'f' order would be applied transposed. The tensor keeps the array's memory alive; do not close the array before the
   * last use.
   */
  public static Tensor tensor(INDArray array) {
    requireCpu();
    if (array.isEmpty()) {
      throw new IllegalArgumentException("array is empty, and has no memory: leave it out of the list");
    }
    if (array.isAttached()) {
      throw new IllegalArgumentException(
          "array is in a workspace, whose memory other arrays get next: pass array.detach(), and write to that");
    }
    final DType dtype = dtype(array.dataType());
    if (!isInOrder(array)) {
      throw new IllegalArgumentException("array has shape " + Arrays.toString(array.shape()) + ", order '"
          + array.ordering() + "' and strides " + Arrays.toString(array.stride())
          + ", not 'c' order without gaps: pass the result of Nd4jArrays.inOrder(array), or have mmuli write into an"
          + " array that Nd4j.create made in 'c' order");
    }
    // offset() counts elements from the start of the buffer, which a view shares with others.
    final long address = array.data().pointer().address() + array.offset() * dtype.size();
    return Tensor.at(address, array.length(), dtype, array.data());
  }

  /** The array itself if it lies in 'c' order without gaps, else a copy that does. */
  public static INDArray inOrder(INDArray array) {
    return isInOrder(array) ? array : array.dup('c');
  }

  /** By the strides: for a column ND4J may say 'f' although both orders are the same. */
  private static boolean isInOrder(INDArray array) {
    long expected = 1;
    for (int i = array.rank() - 1; i >= 0; i--) {
      if (array.size(i) != 1) {
        if (array.stride(i) != expected) {
          return false;
        }
        expected *= array.size(i);
      }
    }
    return true;
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

  private static void requireCpu() {
    if (!Nd4j.getBackend().getEnvironment().isCPU()) {
      throw new IllegalStateException("ND4J's backend is not the CPU: use Nd4jCudaArrays");
    }
  }
}
