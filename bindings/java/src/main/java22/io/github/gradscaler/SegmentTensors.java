// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.foreign.MemorySegment;
import java.nio.Buffer;

/** Tensors of memory segments, for Java 22 and later. Tensor inherits them. */
abstract class SegmentTensors {
  SegmentTensors() {}

  /** That of the memory of a segment, or of a buffer that was made of one, if its arena can be closed; else null. */
  static Lifetime lifetime(Object owner) {
    final MemorySegment segment = owner instanceof Buffer buffer ? MemorySegment.ofBuffer(buffer)
        : owner instanceof MemorySegment given ? given : null;
    if (segment == null) {
      return null;
    }
    // Those of allocateDirect, of Arena.global() and of Arena.ofAuto(). The names only spare a check in every step.
    final String kind = segment.scope().getClass().getSimpleName();
    return kind.equals("GlobalSession") || kind.equals("ImplicitSession") ? null : name -> requireUsable(segment, name);
  }

  /** Refuses memory of a closed arena, and that of a confined one in another thread, which could close it meanwhile. */
  private static void requireUsable(MemorySegment segment, String name) {
    if (!segment.scope().isAlive()) {
      throw new BadStateException(name + ": the arena of its memory is closed");
    }
    if (!segment.isAccessibleBy(Thread.currentThread())) {
      throw new BadStateException(
          name + ": the arena of its memory is confined to another thread: use Arena.ofShared()");
    }
  }

  /**
   * A native segment in native order, of any size. The tensor keeps a segment of an automatic arena alive; once any
   * other arena is closed, every call that would touch the memory is refused.
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
