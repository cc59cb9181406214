// SPDX-License-Identifier: Apache-2.0
using System;

namespace Gradscaler
{
  /// <summary>
  /// A single number in device memory, such as found_inf, that a call reads or writes: the first element of an array,
  /// which it keeps alive and in place, or an address that the caller keeps valid.
  /// </summary>
  public sealed class DeviceScalar
  {
    private enum Kind
    {
      Float,
      Double,
      Int
    }

    private readonly IntPtr address;
    private readonly Kind kind;
    private readonly long count;
    private readonly Pin pin;

    private DeviceScalar(IntPtr address, Kind kind)
    {
      this.address = address;
      this.kind = kind;
      count = long.MaxValue;
    }

    private DeviceScalar(Array array, Kind kind)
    {
      pin = new Pin(Check.NotNull(array, "array"));
      address = pin.Address;
      count = array.Length;
      this.kind = kind;
    }

    /// <summary>A float: the first of an array.</summary>
    public static DeviceScalar Of(float[] array) => new DeviceScalar(array, Kind.Float);

    /// <summary>A double, or as many as the call writes.</summary>
    public static DeviceScalar Of(double[] array) => new DeviceScalar(array, Kind.Double);

    /// <summary>A 32-bit integer: the first of an array.</summary>
    public static DeviceScalar Of(int[] array) => new DeviceScalar(array, Kind.Int);

    /// <summary>A float in memory of the device.</summary>
    public static DeviceScalar FloatAt(IntPtr address) => new DeviceScalar(address, Kind.Float);

    /// <summary>A double, or several, in memory of the device.</summary>
    public static DeviceScalar DoubleAt(IntPtr address) => new DeviceScalar(address, Kind.Double);

    /// <summary>A 32-bit integer in memory of the device.</summary>
    public static DeviceScalar IntAt(IntPtr address) => new DeviceScalar(address, Kind.Int);

    internal static IntPtr Floats(DeviceScalar scalar, string name) => AddressOf(scalar, Kind.Float, 1, name);

    internal static IntPtr Doubles(DeviceScalar scalar, long count, string name) =>
        AddressOf(scalar, Kind.Double, count, name);

    internal static IntPtr Ints(DeviceScalar scalar, string name) => AddressOf(scalar, Kind.Int, 1, name);

    /// <summary>Zero for null, which the library allows or refuses.</summary>
    private static IntPtr AddressOf(DeviceScalar scalar, Kind kind, long count, string name)
    {
      if (scalar == null)
      {
        return IntPtr.Zero;
      }
      if (scalar.kind != kind)
      {
        throw new InvalidArgumentException($"{name} is a device scalar of kind {scalar.kind}, not {kind}");
      }
      if (scalar.count < count)
      {
        throw new InvalidArgumentException($"{name} has room for {scalar.count} elements, needs {count}");
      }
      return scalar.address;
    }
  }
}
