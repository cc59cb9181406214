// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Cleaner;
import java.util.List;
import java.util.function.LongConsumer;

/**
 * The calls that use a native object. Once it is closed no call begins, and the last one to end destroys it, on its
 * thread. The collector closes what nothing refers to.
 */
final class Uses implements Runnable {
  private static final int CLOSED = 1;
  private static final int DESTROYED = 2;
  private static final int CALL = 4;
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
  private List<Owners.States> states = List.of();
  /** CALL for each call in progress, CLOSED, and DESTROYED. */
  private volatile int state;

  /**
   * Takes over an object, which `destroy` gets once. It is closed when `proxy`, on which calls are made, is collected;
   * `type` is its name in messages.
   */
  Uses(Object proxy, String type, long address, LongConsumer destroy) {
    this.type = type;
    this.address = address;
    this.destroy = destroy;
    cleanable = NativeLibrary.CLEANER.register(proxy, this);
  }

  /** The address, for a call, which must be followed by end(). */
  long begin() {
    // One addition is faster than a comparison and an exchange; a refused call takes it back.
    if (((int) STATE.getAndAdd(this, CALL) & CLOSED) != 0) {
      end();
      throw new BadStateException(type + " is closed");
    }
    return address;
  }

  void end() {
    if ((int) STATE.getAndAdd(this, -CALL) == CALL + CLOSED) {
      destroyOnce();
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
      destroyOnce();
    }
  }

  /** Counts native memory that the collector does not see, until the object is destroyed. */
  void count(long allocated) {
    bytes = allocated;
    NativeMemory.add(allocated);
  }

  /** Keeps the state of other optimizers until the object is destroyed. */
  void hold(List<Owners.States> others) {
    others.forEach(Owners.States::hold);
    states = others;
  }

  /** Unless a call that is about to be refused counts just now: then it does this at its end. */
  private void destroyOnce() {
    if (STATE.compareAndSet(this, CLOSED, CLOSED + DESTROYED)) {
      destroy.accept(address);
      NativeMemory.remove(bytes);
      states.forEach(Owners.States::release);
    }
  }
}
