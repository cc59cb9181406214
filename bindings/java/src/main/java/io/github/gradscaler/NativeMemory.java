// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Counts roughly what the library allocates for objects. The collector sees an object as a few bytes, and would never
 * run in a program that forgets to close them. As for direct buffers, it is asked to run when much has been allocated
 * since its last run.
 */
final class NativeMemory {
  private static final AtomicLong HELD = new AtomicLong();
  private static final AtomicLong SINCE_COLLECTION = new AtomicLong();
  /** As much as the heap may be: what -XX:MaxDirectMemorySize is unless set. */
  private static final long THRESHOLD = Runtime.getRuntime().maxMemory();
  private static final long LONGEST_WAIT_MILLIS = 200;
  private static final long OBJECT_BYTES = 3 << 10;
  private static final long THREAD_BYTES = 64 << 10;
  private static final long TENSOR_BYTES = 64;
  private static final long HISTORY_ENTRY_BYTES = 32;

  private NativeMemory() {}

  /** Bytes of what was neither closed nor collected. */
  static long held() {
    return HELD.get();
  }

  /** Before an allocation: has forgotten objects destroyed if they hold as much as the heap may. */
  static void beforeAllocation() {
    if (SINCE_COLLECTION.get() < THRESHOLD || HELD.get() < THRESHOLD) {
      return;
    }
    SINCE_COLLECTION.set(0);
    final long before = HELD.get();
    System.gc();
    // The Cleaner's thread frees. It is waited for as long as it makes progress.
    long last = before;
    for (long waited = 0; waited < LONGEST_WAIT_MILLIS && HELD.get() > 0; waited += 10) {
      try {
        Thread.sleep(10);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return;
      }
      final long now = HELD.get();
      if (now == last && now < before) {
        return;
      }
      last = now;
    }
  }

  static long ofContext(int threads) {
    return OBJECT_BYTES + (threads - 1) * THREAD_BYTES;
  }

  static long ofList(long tensors) {
    return OBJECT_BYTES + tensors * TENSOR_BYTES;
  }

  static long ofScaler(int historyCapacity) {
    return OBJECT_BYTES + historyCapacity * HISTORY_ENTRY_BYTES;
  }

  /** State: what the library makes of it. */
  static long ofOptimizer(long state) {
    return OBJECT_BYTES + state;
  }

  static void add(long bytes) {
    HELD.addAndGet(bytes);
    SINCE_COLLECTION.addAndGet(bytes);
  }

  static void remove(long bytes) {
    HELD.addAndGet(-bytes);
  }
}
