// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.nio.Buffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;

/**
 * A single number in device memory, such as found_inf, that a call reads or writes: the element at the position of a
 * direct buffer, which it keeps alive, or an address that the caller keeps valid.
 */
public final class DeviceScalar {
  private enum Kind {
    FLOAT,
    DOUBLE,
    INT
  }

  private final long address;
  private final Kind kind;
  private final long count;
  private final Object owner;
  private final Lifetime lifetime;

  private DeviceScalar(long address, Kind kind, long count, Buffer owner) {
    this.address = address;
    this.kind = kind;
    this.count = count;
    this.owner = owner;
    this.lifetime = Lifetime.of(owner);
  }

  private static DeviceScalar make(Buffer buffer, ByteOrder order, int bytes, Kind kind) {
    return new DeviceScalar(Memory.address(buffer, order, bytes, "buffer"), kind, buffer.remaining(), buffer);
  }

  /** The float at the position of a direct buffer in native order. */
  public static DeviceScalar of(FloatBuffer buffer) {
    return make(Check.notNull(buffer, "buffer"), buffer.order(), Float.BYTES, Kind.FLOAT);
  }

  /** The double at the position of a direct buffer, or as many as the call writes. */
  public static DeviceScalar of(DoubleBuffer buffer) {
    return make(Check.notNull(buffer, "buffer"), buffer.order(), Double.BYTES, Kind.DOUBLE);
  }

  /** The 32-bit integer at the position of a direct buffer. */
  public static DeviceScalar of(IntBuffer buffer) {
    return make(Check.notNull(buffer, "buffer"), buffer.order(), Integer.BYTES, Kind.INT);
  }

  /** A float in memory of the device. */
  public static DeviceScalar floatAt(long address) {
    return new DeviceScalar(address, Kind.FLOAT, Long.MAX_VALUE, null);
  }

  /** A double, or several, in memory of the device. */
  public static DeviceScalar doubleAt(long address) {
    return new DeviceScalar(address, Kind.DOUBLE, Long.MAX_VALUE, null);
  }

  /** A 32-bit integer in memory of the device. */
  public static DeviceScalar intAt(long address) {
    return new DeviceScalar(address, Kind.INT, Long.MAX_VALUE, null);
  }

  /** Refuses memory of an arena that was closed. */
  void requireUsable(String name) {
    Lifetime.requireUsable(lifetime, name);
  }

  /** Such as {@code DeviceScalar(FLOAT at 0x7f0012345680)}. */
  @Override
  public String toString() {
    return "DeviceScalar(" + kind + " at 0x" + Long.toHexString(address) + ")";
  }

  static long floats(DeviceScalar scalar, String name) {
    return addressOf(scalar, Kind.FLOAT, 1, name);
  }

  static long doubles(DeviceScalar scalar, long count, String name) {
    return addressOf(scalar, Kind.DOUBLE, count, name);
  }

  static long ints(DeviceScalar scalar, String name) {
    return addressOf(scalar, Kind.INT, 1, name);
  }

  /** 0 for null, which the library allows or refuses. */
  private static long addressOf(DeviceScalar scalar, Kind kind, long count, String name) {
    if (scalar == null) {
      return 0;
    }
    scalar.requireUsable(name);
    if (scalar.kind != kind) {
      throw new InvalidArgumentException(name + " is a device scalar of kind " + scalar.kind + ", not " + kind);
    }
    if (scalar.count < count) {
      throw new InvalidArgumentException(name + " has room for " + scalar.count + " elements, needs " + count);
    }
    return scalar.address;
  }
}
