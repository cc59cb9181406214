// SPDX-License-Identifier: Apache-2.0
using System;
using System.Runtime.InteropServices;

namespace Gradscaler
{
  /// <summary>Host memory that GradScaler.ReadReportAsync writes a report to. Can be used again and again.</summary>
  public sealed class ReportBuffer
  {
    /// <summary>Null if the caller owns the memory.</summary>
    private readonly Pin pin;

    /// <summary>Allocates the memory, for scalers on the CPU.</summary>
    public ReportBuffer()
    {
      // Longs, because a report is aligned as they are.
      pin = new Pin(new long[(Size + 7) / 8]);
      DeviceAddress = Address = pin.Address;
      Marshal.WriteInt32(Address, Size);
    }

    private ReportBuffer(IntPtr address, IntPtr deviceAddress)
    {
      Address = address;
      DeviceAddress = deviceAddress;
      Marshal.WriteInt32(Address, Size);
    }

    /// <summary>Pinned memory, as CUDA needs: Size bytes, aligned to 8, which the caller keeps valid.</summary>
    public static ReportBuffer At(IntPtr address) => At(address, address);

    /// <summary>Mapped memory of Vulkan, as At, by its address on the host and its VkDeviceAddress.</summary>
    public static ReportBuffer At(IntPtr address, IntPtr deviceAddress)
    {
      if (address == IntPtr.Zero || address.ToInt64() % 8 != 0)
      {
        throw new InvalidArgumentException("address is null or not aligned to 8 bytes");
      }
      return new ReportBuffer(address, deviceAddress);
    }

    /// <summary>Bytes of a report.</summary>
    public static int Size => NativeCallsPINVOKE.ReportSize();

    internal IntPtr Address { get; private set; }

    internal IntPtr DeviceAddress { get; private set; }

    internal bool IsPinned => pin == null;

    /// <summary>The report that was written last. Call it once the stream has passed that point.</summary>
    public Report Get()
    {
      using (var report = new NativeReport(Address, false))
      {
        var result = new Report(report);
        GC.KeepAlive(this);
        return result;
      }
    }
  }
}
