// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.UndeclaredThrowableException;
import java.nio.Buffer;

/**
 * Buffers that were made of a MemorySegment of Java 21 or later: their memory goes when the arena is closed, whoever
 * refers to the buffer. By reflection, because this package's classes are for Java 11.
 */
final class MemorySegments {
  private static final Class<?> SEGMENT;
  private static final MethodHandle OF_BUFFER;
  private static final MethodHandle SCOPE;
  private static final MethodHandle IS_ALIVE;
  private static final MethodHandle IS_ACCESSIBLE;

  static {
    Class<?> segment = null;
    MethodHandle ofBuffer = null;
    MethodHandle scope = null;
    MethodHandle isAlive = null;
    MethodHandle isAccessible = null;
    try {
      segment = Class.forName("java.lang.foreign.MemorySegment");
      final Class<?> lifetime = Class.forName("java.lang.foreign.MemorySegment$Scope");
      final MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      ofBuffer = generic(lookup.findStatic(segment, "ofBuffer", MethodType.methodType(segment, Buffer.class)),
          Object.class, Buffer.class);
      scope = generic(lookup.findVirtual(segment, "scope", MethodType.methodType(lifetime)), Object.class,
          Object.class);
      isAlive = generic(lookup.findVirtual(lifetime, "isAlive", MethodType.methodType(boolean.class)), boolean.class,
          Object.class);
      isAccessible = generic(lookup.findVirtual(segment, "isAccessibleBy",
          MethodType.methodType(boolean.class, Thread.class)), boolean.class, Object.class, Thread.class);
    } catch (ReflectiveOperationException e) {
      ofBuffer = null; // an older Java: there are no such buffers
    }
    SEGMENT = segment;
    OF_BUFFER = ofBuffer;
    SCOPE = scope;
    IS_ALIVE = isAlive;
    IS_ACCESSIBLE = isAccessible;
  }

  private MemorySegments() {}

  private static MethodHandle generic(MethodHandle handle, Class<?> result, Class<?>... parameters) {
    return handle.asType(MethodType.methodType(result, parameters));
  }

  /** That of the memory of a buffer or a segment, if it can go before the object does; else, and for others, null. */
  static Lifetime lifetime(Object owner) {
    if (OF_BUFFER == null) {
      return null;
    }
    try {
      final Object segment = owner instanceof Buffer ? (Object) OF_BUFFER.invokeExact((Buffer) owner) : owner;
      if (!SEGMENT.isInstance(segment)) {
        return null;
      }
      // Those of allocateDirect, of Arena.global() and of Arena.ofAuto(). The names only spare a check in every step.
      final String kind = ((Object) SCOPE.invokeExact(segment)).getClass().getSimpleName();
      return kind.equals("GlobalSession") || kind.equals("ImplicitSession") ? null : name -> requireUsable(segment, name);
    } catch (Throwable e) {
      throw rethrown(e);
    }
  }

  /** Refuses memory of a closed arena, and that of a confined one in another thread, which could close it meanwhile. */
  private static void requireUsable(Object segment, String name) {
    final boolean alive;
    final boolean accessible;
    try {
      alive = (boolean) IS_ALIVE.invokeExact((Object) SCOPE.invokeExact(segment));
      accessible = (boolean) IS_ACCESSIBLE.invokeExact(segment, Thread.currentThread());
    } catch (Throwable e) {
      throw rethrown(e);
    }
    if (!alive) {
      throw new BadStateException(name + ": the arena of its memory is closed");
    }
    if (!accessible) {
      throw new BadStateException(
          name + ": the arena of its memory is confined to another thread: use Arena.ofShared()");
    }
  }

  private static RuntimeException rethrown(Throwable e) {
    if (e instanceof Error) {
      throw (Error) e;
    }
    return e instanceof RuntimeException ? (RuntimeException) e : new UndeclaredThrowableException(e);
  }
}
