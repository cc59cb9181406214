// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.lang.ref.WeakReference;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiConsumer;

/**
 * What native code calls back. It knows a slot by a number only. The objects that may cause a call keep the slot alive;
 * once they are gone the number means nothing, and a call with it does nothing.
 */
final class CallbackSlot {
  private static final Map<Long, WeakReference<CallbackSlot>> SLOTS = new ConcurrentHashMap<>();
  private static final AtomicLong LAST = new AtomicLong();
  /** What a callback of this thread threw, until the call that caused it fails for that reason. */
  private static final ThreadLocal<Throwable> FAILURE = new ThreadLocal<>();

  private final long number = LAST.incrementAndGet();
  volatile BiConsumer<LogLevel, String> log;
  volatile DeviceReducer reducer;

  CallbackSlot() {
    final long own = number;
    SLOTS.put(own, new WeakReference<>(this));
    NativeLibrary.CLEANER.register(this, () -> SLOTS.remove(own));
  }

  /** What native code knows the slot by; never 0. */
  long number() {
    return number;
  }

  private static CallbackSlot find(long number) {
    final WeakReference<CallbackSlot> slot = SLOTS.get(number);
    return slot == null ? null : slot.get();
  }

  /** Called by native code, which drops what it throws. */
  static void log(long number, int level, byte[] message) {
    final CallbackSlot slot = find(number);
    final BiConsumer<LogLevel, String> receiver = slot == null ? null : slot.log;
    if (receiver != null) {
      receiver.accept(LogLevel.of(level), Text.fromNative(message));
    }
  }

  /** Called by native code. Returns whether the sums are made. */
  static boolean sum(long number, long values, long count, long stream) {
    try {
      find(number).reducer.sum(values, count, stream);
      return true;
    } catch (Throwable e) {
      FAILURE.set(e);
      return false;
    }
  }

  static Throwable takeFailure() {
    final Throwable failure = FAILURE.get();
    FAILURE.remove();
    return failure;
  }

  /** For host memory, which user code gets to see as a copy. */
  static DeviceReducer onHost(Reducer reducer) {
    return (address, count, stream) -> {
      final DoubleBuffer memory =
          NativeCallsJNI.doubles(address, count).order(ByteOrder.nativeOrder()).asDoubleBuffer();
      final double[] values = new double[memory.capacity()];
      memory.duplicate().get(values);
      reducer.sum(values);
      memory.put(values);
    };
  }
}
