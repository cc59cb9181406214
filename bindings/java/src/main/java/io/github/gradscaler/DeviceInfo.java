// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

/** The properties of a device. From {@link Context#deviceInfo}. */
public final class DeviceInfo {
  private final DeviceType type;
  private final int index;
  private final int units;
  private final int level;
  private final long memoryBytes;
  private final String name;

  DeviceInfo(NativeDeviceInfo from) {
    type = DeviceType.of(from.getDeviceType());
    index = from.getDeviceIndex();
    units = from.getUnits();
    level = from.getLevel();
    memoryBytes = from.getMemoryBytes();
    name = from.getName();
  }

  /** Kind of device. */
  public DeviceType type() {
    return type;
  }

  /** Number of the device. */
  public int index() {
    return index;
  }

  /** CPU: threads this process may run on. CUDA: number of multiprocessors. */
  public int units() {
    return units;
  }

  /** CPU: the best usable instruction set, in the order of {@link CpuTarget}. CUDA: 10 * major + minor capability. */
  public int level() {
    return level;
  }

  /** Memory of the device in bytes; 0 if unknown. */
  public long memoryBytes() {
    return memoryBytes;
  }

  /** Name of the device. */
  public String name() {
    return name;
  }
}
