// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.Buffer;
import java.nio.ByteOrder;

/** What must hold of a buffer before its address is taken. */
final class Memory {
  private Memory() {}

  /** Address of the element at the buffer's position. */
  static long address(Buffer buffer, ByteOrder order, int elementBytes, String name) {
    if (!buffer.isDirect()) {
      throw new InvalidArgumentException(name + " is not a direct buffer, as ByteBuffer.allocateDirect makes them");
    }
    if (buffer.isReadOnly()) {
      throw new InvalidArgumentException(name + " is read-only");
    }
    if (order != ByteOrder.nativeOrder()) {
      throw new InvalidArgumentException(
          name + " is not in the machine's byte order: use order(ByteOrder.nativeOrder())");
    }
    Lifetime.requireUsable(Lifetime.of(buffer), name);
    return NativeCallsJNI.bufferAddress(buffer) + (long) buffer.position() * elementBytes;
  }
}
