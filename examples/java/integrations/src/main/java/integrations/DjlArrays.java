// SPDX-License-Identifier: Apache-2.0
package integrations;

import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.types.DataType;
import io.github.gradscaler.DType;
import io.github.gradscaler.Tensor;
import java.nio.ByteBuffer;

/** Memory of DJL's arrays with the PyTorch engine on the CPU. */
public final class DjlArrays {
  private DjlArrays() {}

  /**
   * All elements, in place. The array must be on the CPU and contiguous: gradients and weights are paired by memory. The
   * tensor keeps the array alive; its manager must stay open, which closes it.
   */
  public static Tensor tensor(NDArray array) {
    final DType dtype = dtype(array.getDataType());
    if (array.getDevice().isGpu()) {
      throw new IllegalArgumentException("array is on " + array.getDevice() + ", not on the CPU");
    }
    if (array.isSparse()) {
      throw new IllegalArgumentException("array is sparse: pass array.toDense()");
    }
    final Tensor tensor = Tensor.of(array.toByteBuffer(true), dtype);
    // DJL makes a copy of what is not contiguous, a new one for each call.
    final ByteBuffer again = array.toByteBuffer(true);
    if (tensor.address() != Tensor.of(again, dtype).address() || tensor.count() != array.size()) {
      throw new IllegalArgumentException("array is not contiguous: pass array.duplicate(), and write to that");
    }
    return Tensor.at(tensor.address(), tensor.count(), dtype, array);
  }

  /** Without BFLOAT16: DJL 0.35.1 ends the process when it converts to it, so that nothing of it could be tried. */
  private static DType dtype(DataType type) {
    switch (type) {
      case FLOAT16:
        return DType.FP16;
      case FLOAT32:
        return DType.FP32;
      case FLOAT64:
        return DType.FP64;
      default:
        throw new IllegalArgumentException(
            "array is of type " + type + ", not of FLOAT16, FLOAT32 or FLOAT64");
    }
  }
}
