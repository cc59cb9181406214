// SPDX-License-Identifier: Apache-2.0
package integrations;

import io.github.gradscaler.DType;
import io.github.gradscaler.Tensor;
import org.bytedeco.javacpp.FloatPointer;

/** Memory of JavaCPP pointers as tensors. */
public final class JavaCpp {
  private JavaCpp() {}

  /** The elements from the position to the limit. The tensor keeps the pointer alive; do not close it. */
  public static Tensor tensor(FloatPointer pointer) {
    if (pointer.isNull() || pointer.limit() <= pointer.position()) {
      // What native code returns has the limit 0: JavaCPP does not know how much there is.
      throw new IllegalArgumentException("pointer is null, or has no elements between its position, "
          + pointer.position() + ", and its limit, " + pointer.limit() + ": call capacity(n)");
    }
    final long address = pointer.address() + pointer.position() * pointer.sizeof();
    return Tensor.at(address, pointer.limit() - pointer.position(), DType.FP32, pointer);
  }
}
