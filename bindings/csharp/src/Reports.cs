// SPDX-License-Identifier: Apache-2.0
// The values that calls return, copied out of native memory. The other classes of values come from the header.

namespace Gradscaler
{
  /// <summary>A recommended loss scale.</summary>
  public sealed class Recommendation
  {
    internal Recommendation(NativeRecommendation from)
    {
      Scale = from.Scale;
      Flushed = from.Flushed;
    }

    /// <summary>The largest power of two that leaves two binades of room.</summary>
    public float Scale { get; private set; }

    /// <summary>Share (0 to 1) of the values that would still be lost at that scale.</summary>
    public double Flushed { get; private set; }
  }

  /// <summary>The properties of a device.</summary>
  public sealed class DeviceInfo
  {
    internal DeviceInfo(NativeDeviceInfo from)
    {
      Type = (DeviceType)from.DeviceType;
      Index = from.DeviceIndex;
      Units = from.Units;
      Level = from.Level;
      MemoryBytes = from.MemoryBytes;
      Name = from.Name;
    }

    /// <summary>Kind of device.</summary>
    public DeviceType Type { get; private set; }

    /// <summary>Number of the device.</summary>
    public int Index { get; private set; }

    /// <summary>CPU: threads this process may run on. CUDA: number of multiprocessors.</summary>
    public int Units { get; private set; }

    /// <summary>
    /// CPU: the best usable instruction set, in the order of CpuTarget. CUDA: 10 * major + minor capability.
    /// </summary>
    public int Level { get; private set; }

    /// <summary>Memory of the device in bytes; 0 if unknown.</summary>
    public long MemoryBytes { get; private set; }

    /// <summary>Name of the device.</summary>
    public string Name { get; private set; }
  }
}
