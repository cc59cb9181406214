// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Cleaner;
import java.util.function.LongConsumer;

/**
 * The calls that use a native object. Once it is closed no call begins, and the last one to end destroys it, on its
 * thread. The collector closes what nothing refers to.
 */
final class Uses implements Runnable {
  private static final int CLOSED = 1;
  private static final int CALL = 2;
  private static final VarHandle STATE;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(Uses.class, "state", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final String type;
  private final long address;
  private final LongConsumer destroy;
  private final Cleaner.Cleanable cleanable;
  private long bytes;
  /** CALL for each call in progress, and CLOSED. */
  private volatile int state;

  /**
   * Takes over an object.
   *
   * @param proxy what calls are made on; the object is closed when it is collected
   * @param type its name in messages
   * @param destroy called once with the address
   */
  Uses(Object proxy, String type, long address, LongConsumer destroy) {
    this.type = type;
    this.address = address;
    this.destroy = destroy;
    cleanable = NativeLibrary.CLEANER.register(proxy, this);
  }

  /** The address, for a call, which must be followed by end(). */
  long begin() {
    int calls;
    do {
      calls = state;
      if ((calls & CLOSED) != 0) {
        throw new BadStateException(type + " is closed");
      }
    } while (!STATE.weakCompareAndSet(this, calls, calls + CALL));
    return address;
  }

  void end() {
    if ((int) STATE.getAndAdd(this, -CALL) == CALL + CLOSED) {
      destroy();
    }
  }

  boolean isClosed() {
    return (state & CLOSED) != 0;
  }

  void close() {
    cleanable.clean();
  }

  /** Called once, by close() or by the collector. */
  @Override
  public void run() {
    if ((int) STATE.getAndBitwiseOr(this, CLOSED) == 0) {
      destroy();
    }
  }

  /** Counts native memory that the collector does not see, until the object is destroyed. */
  void count(long allocated) {
    bytes = allocated;
    NativeMemory.add(allocated);
  }

  private void destroy() {
    destroy.accept(address);
    NativeMemory.remove(bytes);
  }
}
