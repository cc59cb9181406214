// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.DType;
import io.github.gradscaler.Tensor;
import jcuda.NativePointerObject;
import jcuda.Pointer;
import jcuda.runtime.cudaStream_t;

/** Device memory and streams of JCuda, whose addresses only subclasses may read. */
public final class JCudaMemory {
  private JCudaMemory() {}

  private static final class Address extends Pointer {
    private static final long serialVersionUID = 1;

    Address(Pointer pointer) {
      super(pointer);
    }

    long value() {
      return getNativePointer() + getByteOffset();
    }
  }

  private static final class Stream extends NativePointerObject {
    private static final long serialVersionUID = 1;

    Stream(cudaStream_t stream) {
      super(stream);
    }

    long value() {
      return getNativePointer();
    }
  }

  /** Memory of cudaMalloc or cuMemAlloc, which the caller frees after the last use of the tensor; of a buffer, kept. */
  public static Tensor tensor(Pointer pointer, long count, DType dtype) {
    return Tensor.at(new Address(pointer).value(), count, dtype, pointer);
  }

  /** For the methods with a stream. */
  public static long stream(cudaStream_t stream) {
    return new Stream(stream).value();
  }
}
