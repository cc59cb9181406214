// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.function.IntConsumer;
import org.junit.jupiter.api.Test;

/** An object is destroyed once and during no call: calls on its thread and on others, in races with who closes it. */
class UsesTest {
  private static final int RACES = 50000;
  private static final int CALLS = 100;
  private final Uses[] objects = new Uses[RACES];
  private final AtomicIntegerArray destroyed = new AtomicIntegerArray(RACES);
  /** Both sides write to this first: a processor then holds back what it writes next, but not what it reads. */
  private final int[] contended = new int[1];
  /** The race that is on; RACES at the end. */
  private volatile int current = -1;

  private void make(int race) {
    objects[race] = new Uses(this, "Object", race, address -> destroyed.incrementAndGet((int) address));
    current = race;
  }

  private void work(int race) {
    for (int i = 0; i < 20; i++) {
      assertEquals(0, destroyed.get(race));
    }
  }

  /** Calls the object until it is closed, and again within each call, as a callback does. In the end closes it. */
  private void call(int race) {
    final Uses uses = objects[race];
    try {
      for (int i = 0; i < CALLS; i++) {
        contended[0] = i;
        uses.begin();
        try {
          work(race);
          uses.begin();
          uses.end();
          work(race);
        } finally {
          uses.end();
        }
      }
      uses.close();
    } catch (BadStateException e) {
      assertEquals("Object is closed", e.getMessage());
    }
  }

  private void close(int race) {
    for (int i = race % 64; i >= 0; i--) {
      contended[0] = i;
    }
    objects[race].close();
  }

  /** Makes and calls the objects on a thread, each while others do this to it. */
  private void race(IntConsumer... others) throws Exception {
    final ExecutorService pool = Executors.newFixedThreadPool(1 + others.length);
    final List<Future<?>> threads = new ArrayList<>();
    threads.add(pool.submit(() -> {
      try {
        for (int race = 0; race < RACES; race++) {
          make(race);
          call(race);
        }
      } finally {
        current = RACES;
      }
    }));
    for (IntConsumer other : others) {
      threads.add(pool.submit(() -> {
        for (int last = -1, race; (race = current) < RACES; last = race) {
          if (race != last) {
            other.accept(race);
          }
        }
      }));
    }
    for (Future<?> thread : threads) {
      thread.get();
    }
    pool.shutdown();
    for (int race = 0; race < RACES; race++) {
      assertEquals(1, destroyed.get(race));
    }
  }

  @Test
  void aCallerAndACloser() throws Exception {
    race(this::close);
  }

  @Test
  void twoCallersAndACloser() throws Exception {
    race(this::call, this::close);
  }

  @Test
  void aCallerAndTwoClosers() throws Exception {
    race(this::close, race -> objects[race].close());
  }

  /** What one thread has begun, another one ends. */
  @Test
  void sharedUses() throws Exception {
    race(race -> {
      try {
        objects[race].beginShared();
      } catch (BadStateException e) {
        return;
      }
      work(race);
      objects[race].endShared();
    }, this::close);
  }
}
