// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.foreign.MemorySegment;

/** Tensors of memory segments, for Java 22 and later. Tensor inherits them. */
abstract class SegmentTensors {
  SegmentTensors() {}

  /**
   * A native segment in native order, of any size. The tensor keeps a segment of an automatic arena alive; once any
   * other arena is closed, every call that would touch the memory is refused.
   *
   * @param segment what to look at
   * @param dtype what its bytes are
   * @return a new tensor
   */
  public static Tensor of(MemorySegment segment, DType dtype) {
    Check.notNull(segment, "segment");
    Check.notNull(dtype, "dtype");
    if (!segment.isNative()) {
      throw new InvalidArgumentException("segment is on the heap, where the collector moves it; allocate it in an Arena");
    }
    if (segment.isReadOnly()) {
      throw new InvalidArgumentException("segment is read-only");
    }
    if (segment.byteSize() % dtype.size() != 0) {
      throw new InvalidArgumentException("segment has " + segment.byteSize() + " bytes, which is no multiple of the "
          + dtype.size() + " of " + dtype);
    }
    Lifetime.requireUsable(Lifetime.of(segment), "segment");
    return Tensor.at(segment.address(), segment.byteSize() / dtype.size(), dtype, segment);
  }
}
