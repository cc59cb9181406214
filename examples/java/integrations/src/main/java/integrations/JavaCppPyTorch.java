// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.DType;
import io.github.gradscaler.Tensor;
import org.bytedeco.pytorch.global.torch.Layout;
import org.bytedeco.pytorch.global.torch.ScalarType;

/** Memory of javacpp-pytorch's tensors. */
public final class JavaCppPyTorch {
  private JavaCppPyTorch() {}

  /**
   * All elements of a tensor on the CPU, in place. It must be dense and contiguous: gradients and weights are paired by
   * memory. The result keeps the PyTorch tensor alive; do not close that, or give it other memory, before the last use.
   */
  public static Tensor tensor(org.bytedeco.pytorch.Tensor source) {
    if (!source.is_cpu()) {
      throw new IllegalArgumentException("source is on " + source.device().str().getString()
          + ", not on the CPU: use cudaTensor and Context.cuda");
    }
    return dense(source);
  }

  /** The same for a tensor on a CUDA device, to be used with Context.cuda of that device's index. */
  public static Tensor cudaTensor(org.bytedeco.pytorch.Tensor source, int deviceIndex) {
    if (!source.is_cuda() || source.device().index() != deviceIndex) {
      throw new IllegalArgumentException(
          "source is on " + source.device().str().getString() + ", not on cuda:" + deviceIndex);
    }
    return dense(source);
  }

  private static Tensor dense(org.bytedeco.pytorch.Tensor source) {
    final DType dtype = dtype(source.scalar_type());
    if (source.layout().intern() != Layout.Strided || !source.is_contiguous()) {
      throw new IllegalArgumentException("source is not contiguous: pass source.contiguous(), and write to that");
    }
    if (source.is_neg()) {
      throw new IllegalArgumentException("source is a negated view: pass source.resolve_neg()");
    }
    // data_ptr() includes the storage offset.
    return Tensor.at(source.data_ptr().address(), source.numel(), dtype, source);
  }

  private static DType dtype(ScalarType type) {
    switch (type.intern()) {
      case Half:
        return DType.FP16;
      case BFloat16:
        return DType.BF16;
      case Float:
        return DType.FP32;
      case Double:
        return DType.FP64;
      default:
        throw new IllegalArgumentException(
            "source is of type " + type.intern() + ", not of Half, BFloat16, Float or Double");
    }
  }
}
