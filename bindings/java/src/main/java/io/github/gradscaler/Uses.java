// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Cleaner;
import java.lang.ref.WeakReference;
import java.util.List;
import java.util.function.LongConsumer;

/**
 * The calls that use a native object. Once it is closed no call begins, and the last one to end destroys it, on its
 * thread. The collector closes what nothing refers to.
 *
 * <p>Calls on the thread that made the object are counted without a locked instruction: it writes ownCalls, then reads
 * CLOSED. Whoever closes the object on another thread writes CLOSED, puts a memory barrier into all threads, then reads
 * ownCalls. HotSpot compiles accesses of VarHandles, other than plain ones, in the order of the program.
 */
final class Uses implements Runnable {
  private static final int CLOSED = 1;
  private static final int DESTROYED = 2;
  private static final int CALL = 4;
  /** False where the system has no such barrier. There all calls are counted by locked instructions. */
  private static final boolean HAS_BARRIER = NativeCallsJNI.barrier();

  private static final VarHandle STATE;
  private static final VarHandle OWN_CALLS;

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(Uses.class, "state", int.class);
      OWN_CALLS = MethodHandles.lookup().findVarHandle(Uses.class, "ownCalls", int.class);
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
  /** The thread whose calls ownCalls counts. Weak: it may refer to the proxy. */
  private final WeakReference<Thread> owner;
  private int ownCalls;
  /** CALL for each call in progress on other threads, CLOSED, and DESTROYED. */
  private volatile int state;

  /**
   * Takes over an object, which `destroy` gets once. It is closed when `proxy`, on which calls are made, is collected;
   * `type` is its name in messages.
   */
  Uses(Object proxy, String type, long address, LongConsumer destroy) {
    this.type = type;
    this.address = address;
    this.destroy = destroy;
    owner = new WeakReference<>(HAS_BARRIER ? Thread.currentThread() : null);
    cleanable = NativeLibrary.CLEANER.register(proxy, this);
  }

  /** The address, for a call, which must be followed by end() on this thread. */
  long begin() {
    if (isOwner()) {
      OWN_CALLS.setOpaque(this, ownCalls + 1);
      if (isClosed()) {
        end();
        throw closed();
      }
    } else {
      beginShared();
    }
    return address;
  }

  void end() {
    if (isOwner()) {
      OWN_CALLS.setRelease(this, ownCalls - 1);
      if (isClosed()) {
        destroyUnused();
      }
    } else {
      endShared();
    }
  }

  /** A call of a native method that takes the address. */
  void call(LongConsumer method) {
    final long begun = begin();
    try {
      method.accept(begun);
    } finally {
      end();
    }
  }

  /** For a use that may end on another thread, by endShared(). */
  void beginShared() {
    // One addition is faster than a comparison and an exchange; a refused call takes it back.
    if (((int) STATE.getAndAdd(this, CALL) & CLOSED) != 0) {
      endShared();
      throw closed();
    }
  }

  void endShared() {
    if ((int) STATE.getAndAdd(this, -CALL) == CALL + CLOSED) {
      destroyUnused();
    }
  }

  private boolean isOwner() {
    return owner.get() == Thread.currentThread();
  }

  private BadStateException closed() {
    return new BadStateException(type + " is closed");
  }

  boolean isClosed() {
    return ((int) STATE.getAcquire(this) & CLOSED) != 0;
  }

  void close() {
    cleanable.clean();
  }

  /** Called once, by close() or by the collector. */
  @Override
  public void run() {
    if ((int) STATE.getAndBitwiseOr(this, CLOSED) == 0) {
      destroyUnused();
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

  /**
   * Destroys the object once, unless a call is in progress or is being refused: then its end does it. After the barrier
   * the owner's next reading of CLOSED finds it, or ownCalls has its call.
   */
  private void destroyUnused() {
    if (HAS_BARRIER && !isOwner() && !NativeCallsJNI.barrier()) {
      return;
    }
    if ((int) OWN_CALLS.getAcquire(this) == 0 && STATE.compareAndSet(this, CLOSED, CLOSED + DESTROYED)) {
      destroy.accept(address);
      NativeMemory.remove(bytes);
      states.forEach(Owners.States::release);
    }
  }
}
