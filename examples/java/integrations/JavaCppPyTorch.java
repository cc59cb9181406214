// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.DType;
import io.github.gradscaler.Tensor;

/** Memory of javacpp-pytorch's tensors. */
public final class JavaCppPyTorch {
  private JavaCppPyTorch() {}

  /** All elements, on the CPU or a CUDA device. Keep the PyTorch tensor reachable as long as this one is used. */
  public static Tensor tensor(org.bytedeco.pytorch.Tensor source, DType dtype) {
    if (!source.is_contiguous() || source.element_size() != (dtype == DType.FP64 ? 8 : dtype == DType.FP32 ? 4 : 2)) {
      throw new IllegalArgumentException("the tensor is not contiguous, or not of " + dtype);
    }
    return Tensor.at(source.data_ptr().address(), source.numel(), dtype);
  }
}
